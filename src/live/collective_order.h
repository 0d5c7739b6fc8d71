// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "src/live/captured_run.h"

namespace lockstep::live {

/// What does not meet among the collectives that the ranks of a process group recorded.
struct CollectiveOrder {
  /// The first of each group: a call of another operation, size or type, or one that some ranks do not make; sentences.
  std::vector<std::string> wrong;
  /// Calls that meet and come from different places of the program: sentences.
  std::vector<std::string> suspicious;
};

/// Complexity: linear in the recorded collectives. Where a rank's record is missing or cut off, what it lacks is no
/// finding.
CollectiveOrder compare_collectives(const CapturedRun& run);

}  // namespace lockstep::live
