// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "lockstep/check.h"

namespace lockstep::diagnosis {

/// What a comparison of all owners of each element with each other says, after the clip by the norm.
enum class Replicas {
  agree,   ///< all owners of an element hold the same, and scale it by the same norm
  differ,  ///< those of some element do not
  alone    ///< every element that is wrong has one owner: there is nothing to compare
};
/// "agree", "differ", "nothing to compare".
std::string_view name_of(Replicas replicas);

/// For a result of the symbolic engine with the verdict `mismatch`.
Replicas compare_replicas(const CheckResult& result);

/// Whether the schedule is right and the values are wrong all the same: a mismatch that the transformer engine alone
/// sees.
bool wrong_in_model_alone(const CheckResult& result);

/// Whether some rank's optimizer gets a wrong value for some element.
bool any_value_wrong(const SymbolicResult& symbolic);

/// Whether values are right and only the gradient norm is not.
bool wrong_in_norm_alone(const CheckResult& result);

/// Whether a comparison with one device that accepts a relative error of `tolerance` passes a mismatch for certain:
/// every coefficient of every element that is wrong is within `tolerance` of the right one, no contribution is missing
/// and none is foreign or left over, nothing is unowned, and the norm, if every element of the gradient has the same
/// size, is within `tolerance` too. A mean of norms and a norm that is taken too early count as noticed. Where only the
/// model is wrong, the difference of each buffer has at most `tolerance` times the length of the right gradient.
bool within_tolerance(const CheckResult& result, const Rational& tolerance);

}  // namespace lockstep::diagnosis
