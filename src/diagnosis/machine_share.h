// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mutex>
#include <shared_mutex>

#include "lockstep/check.h"
#include "src/diagnosis/workload.h"

namespace lockstep::diagnosis {

/// What checks at once share: each a part of the machine, or one alone all of it.
struct SharedMachine {
  std::shared_mutex mutex;
};

/// Whether nobody has named engines, so that a check may choose them.
bool is_by_default(const CheckOptions& options);
inline constexpr const char* replays_all_the_same =
    ". A smaller dp, or fewer micro-batches, nearly always show the same fault; --engine symbolic,host replays it all "
    "the same";

/// Whether the check can be done; else `result` says why not. Takes the host engine away where it alone is too much.
bool fits(CheckResult& result, const Workload& workload, CheckOptions& options);

/// A part of a machine that several checks use at once: one thread of it, or all where the check is large.
class MachineShare {
 public:
  MachineShare(const Workload& workload, CheckOptions& options) {
    if (options.side_by_side == nullptr) return;
    // Larger ones could fill the memory together, and have work for all cores by themselves.
    constexpr double small_bytes = 1.28e8, small_elements = 1e7;
    if (workload.bytes + workload.host_bytes > small_bytes || workload.elements > small_elements) {
      alone_ = std::unique_lock(options.side_by_side->mutex);
      return;
    }
    beside_ = std::shared_lock(options.side_by_side->mutex);
    options.progress = {};
    threads_ = 1;
  }
  /// For HostOptions.
  int threads() const { return threads_; }

 private:
  std::unique_lock<std::shared_mutex> alone_;
  std::shared_lock<std::shared_mutex> beside_;
  int threads_ = 0;
};

}  // namespace lockstep::diagnosis
