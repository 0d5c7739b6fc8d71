// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <tuple>
#include <vector>

#include "src/live/columns.h"

namespace lockstep::live {

/// The sketches of a run, asked whether a formula that somebody else has is that of a result.
class Evidence {
 public:
  /// By parameter, optimizer step of the run, rank and micro-batch.
  using Formula = std::map<std::tuple<int, int, int, int>, Rational>;

  /// `run` must outlive it.
  Evidence(const CapturedRun& run, CapturedLoss loss);
  /// Whether nothing but noise is left of a result when this sum of contributions is taken from it. Of
  /// another parameter's the same piece is meant, whose elements go with those of the result by their places in it.
  bool explains(const VerifiedPiece& piece, const Formula& formula);

 private:
  struct Tensors {
    std::vector<const SketchedTensor*> contributions, results;
  };

  const CapturedRun& run_;
  CapturedLoss loss_;
  SketchFiles files_;
  std::map<std::tuple<int, int, int>, Tensors> tensors_;  // by step, parameter and piece
};

}  // namespace lockstep::live
