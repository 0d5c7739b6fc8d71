// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "lockstep/tensor_file.h"
#include "src/live/captured_run.h"

namespace lockstep::live {

/// The sketches of a run, read where they are asked for. May be used from several threads at once.
class SketchFiles {
 public:
  /// `sums`: to which rows are made shorter, a part of what the run has; 0: they stay as they are.
  explicit SketchFiles(const CapturedRun& run, int sums = 0)
      : run_(run), sums_(static_cast<std::size_t>(sums == 0 ? run.header.sums : sums)) {}

  /// The sums of a tensor's gradient, without the loss scale, from the rank's file of the step. Nothing where the file
  /// is missing, which missing() then names. Throws InputError where the file is not valid or has no such row.
  std::optional<std::vector<double>> row(const SketchedTensor& tensor, int step);
  /// Closes the files of all steps before `step`; they are opened anew where they are asked for.
  void close_before(int step);
  /// Files that were asked for and are not there.
  std::set<std::pair<int, int>> missing() const;  // step and rank

 private:
  struct Open {
    std::unique_ptr<const TensorFile> file;
    const StoredTensor* sketches = nullptr;   // float64, or whole numbers that are to be multiplied by
    const StoredTensor* exponents = nullptr;  // these powers of two, one for each row; null: float64
  };

  std::shared_ptr<const Open> open(int rank, int step);

  const CapturedRun& run_;
  std::size_t sums_;
  mutable std::mutex mutex_;
  std::map<std::pair<int, int>, std::shared_ptr<const Open>> files_;  // by step and rank
  std::set<std::pair<int, int>> missing_;
};

}  // namespace lockstep::live
