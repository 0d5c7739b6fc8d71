// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "src/live/captured_run.h"

namespace lockstep::live {

/// What does not meet among the collectives that the ranks of a process group recorded.
struct CollectiveOrder {
  /// The first of each group: a call of another operation, size or type, or one that some ranks do not make.
  std::vector<VerifiedCollective> wrong;
  /// Calls that meet and come from different places of the program, or into which ranks put gradients of different
  /// parameters: sentences.
  std::vector<std::string> suspicious;
};

/// The calls of one process group, by rank, from the same place of its sequence on. Those of one place meet only if
/// they have the same number.
struct GroupCalls {
  std::string group;  ///< in words: "ranks 0 and 1"
  std::map<int, std::vector<const CapturedCollective*>> calls;
  bool numbered = false;  ///< the calls say their numbers; else they are counted, from 1
  /// Of the ranks whose records are known, the first optimizer step of which they may lack something that others
  /// captured: a call before it that they lack was not made.
  std::map<int, int> whole;
  std::set<int> stopped;  ///< ranks that would have gone on behind the last optimizer step that is looked at
};

/// Adds the first call of the group that does not meet; where all do, the first that comes from different places.
/// Complexity: linear in the calls.
void compare_group(const GroupCalls& group, CollectiveOrder& order);

/// "all_reduce of 768 float32 elements at train.py:9 in main".
std::string call_words(const CapturedCollective& call);

/// Complexity: linear in the recorded collectives. Where a rank's record is missing or cut off, what it lacks is no
/// finding.
CollectiveOrder compare_collectives(const CapturedRun& run);

}  // namespace lockstep::live
