// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "src/transformer/rank_context.h"

namespace lockstep::transformer {

/// What a norm's backward needs.
struct NormState {
  Real normalized;
  Real inverse;  ///< a column: of the norm of each row
};

/// LayerNorm or RMSNorm over the rows, with the rank's parameters NAME.weight and NAME.bias.
Real norm_forward(const RankContext& context, const std::string& name, const Real& input, NormState& state);
Real norm_backward(const RankContext& context, const std::string& name, const Real& gradient, const NormState& state,
                   LocalGradients& gradients);

/// The same at a site: on the rank's slice of the sequence, or where the site is dropped on all of it.
Task<Real> norm_forward_at(const char* site, const RankContext& context, const std::string& name, Real input,
                           NormState& state);
Task<Real> norm_backward_at(const char* site, const RankContext& context, const std::string& name, Real gradient,
                            const NormState& state, LocalGradients& gradients);

}  // namespace lockstep::transformer
