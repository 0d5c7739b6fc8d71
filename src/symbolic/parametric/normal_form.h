// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "lockstep/expression.h"
#include "src/expression/node.h"

namespace lockstep::parametric {

/// The same comparison of sums of products, in which what stands on both sides is gone: `2 * dp - dp > 5` is `dp > 5`,
/// `tp + dp > tp` is `dp > 0`. Of one name it is a polynomial by Horner's rule, whose range is narrower than that of
/// its terms; of several what is subtracted stands on the other side. Null where it compares anything else, or no name
/// stands in it twice. `is_positive`: of a name, at all sizes; no other may be there.
std::shared_ptr<const Expression::Node> normal_form(const Expression::Node& comparison,
                                                    const std::function<bool(const std::string&)>& is_positive);

}  // namespace lockstep::parametric
