// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "src/transformer/config.h"
#include "src/transformer/matrix.h"

namespace lockstep::transformer {

/// One sequence and what each of its tokens counts in the loss.
struct Sequence {
  /// `length` inputs, and behind them the targets that reach further: 1 + mtp_layers more.
  std::vector<int> tokens;
  /// By position: the factor on the cross-entropy of the next token; 0 masks it.
  std::vector<double> weights;
  /// The same for every depth of multi-token prediction; empty: no such loss.
  std::vector<double> mtp_weights;
  /// By position: the number of the tokens that are routed together, among which an expert of limited capacity chooses;
  /// empty: all are.
  std::vector<int> routing_groups;
  /// By position: the factor on the auxiliary losses of its token, in all layers; empty: no such loss.
  std::vector<double> auxiliary_weights;

  int length() const { return static_cast<int>(weights.size()); }
  friend bool operator==(const Sequence&, const Sequence&) = default;
};

/// What one device computes for one sequence: its loss, and the gradient of it added to `gradients`, which has a tensor
/// for each parameter. Written plainly, forward and backward by hand; knows nothing of ranks. Number is double, long
/// double, or Perturbed, which shows the rounding error.
template <class Number>
Number run_reference(const Config& config, const Tensors<Number>& parameters, const Sequence& sequence,
                     Tensors<Number>& gradients);

/// Tensors of the same shapes that are zero.
template <class Number>
Tensors<Number> zeros_like(const Tensors<Number>& tensors) {
  Tensors<Number> zeros;
  for (const auto& [name, tensor] : tensors) zeros[name] = Matrix<Number>(tensor.rows(), tensor.cols());
  return zeros;
}

}  // namespace lockstep::transformer
