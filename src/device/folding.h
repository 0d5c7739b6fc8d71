// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "lockstep/intervals.h"

namespace lockstep::device {

/// Ranks shared out to processes: contiguous, and as evenly as can be. With more processes than ranks some hold none.
class Folding {
 public:
  /// Both at least 1.
  Folding(int ranks, int processes) : ranks_(ranks), processes_(processes) {}

  int processes() const { return static_cast<int>(processes_); }
  int process_of(int rank) const { return static_cast<int>(((rank + std::int64_t{1}) * processes_ - 1) / ranks_); }
  /// The ranks of a process.
  Interval ranks_of(int process) const {
    return {process * ranks_ / processes_, (process + std::int64_t{1}) * ranks_ / processes_};
  }

 private:
  std::int64_t ranks_, processes_;
};

}  // namespace lockstep::device
