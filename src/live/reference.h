// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "src/base/at.h"
#include "src/live/formula.h"

namespace lockstep::live {

/// A run of the same model on the same data on one device, whose gradients are the true ones.
class ReferenceRun {
 public:
  /// Reads the folder. Throws InputError where that is not possible, where the run has more than one rank, where its
  /// sketches are not those of `run`, or where no parameter has the name of one in `run`.
  ReferenceRun(const std::string& folder, const CapturedRun& run, int threads);
  ReferenceRun(const ReferenceRun&) = delete;
  ReferenceRun& operator=(const ReferenceRun&) = delete;

  const CapturedRun& run() const { return run_; }
  /// The reference's number of a parameter of the run; -1 where it has none of the name and shape.
  int counterpart(int parameter) const { return counterpart_[at(parameter)]; }
  /// Parameters that one of the two runs has alone, or in another shape: sentences.
  const std::vector<std::string>& unmatched() const { return unmatched_; }
  SketchFiles& files() { return files_; }

 private:
  void match(const CapturedRun& run);

  CapturedRun run_;
  SketchFiles files_;
  std::vector<int> counterpart_;  // by parameter of the run
  std::vector<std::string> unmatched_;
};

/// The run that is compared, in one optimizer step.
struct ComparedStep {
  const CapturedRun& run;
  SketchFiles& files;
  const RunFormulas& formulas;
  const Expected& expected;
  int step = 0;
  Dtype coarsest = Dtype::float64;  ///< of reductions
  std::vector<int> parameters;      ///< that are compared, each with a counterpart
  /// The contributions to a piece, and its results, by rank.
  std::function<std::vector<const SketchedTensor*>(int parameter, int piece)> contributions, results;
};

/// Compares what the ranks contribute to each parameter, added up with the coefficients that are expected, and what the
/// optimizers get, with the reference's gradient: what its own contributions add up to with the coefficients that its
/// own loss asks for, or as they are where that is not known.
std::vector<ReferencedParameter> compare_with_reference(const ComparedStep& compared, ReferenceRun& reference,
                                                        int threads);

}  // namespace lockstep::live
