// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "src/transformer/reference.h"

namespace lockstep::transformer {

/// A gradient of one device, and how far rounding can move it.
struct RoundedGradient {
  Tensors<double> gradient;
  /// By element: the root mean square of the rounding error, were the errors of the operations independent.
  Tensors<double> deviation;
  /// Operations that round.
  double operations = 0;

  /// A bound on the error of an element, from its deviation: sqrt(operations) times as much (docs/transformer.md).
  double worst(double of_deviation) const;
};

/// The sum of the gradients of several sequences in float64, and its rounding error from `samples` perturbed runs.
RoundedGradient rounded_gradient(const Config& config, const Tensors<double>& parameters,
                                 const std::vector<Sequence>& sequences, int samples = 4);

}  // namespace lockstep::transformer
