// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "src/base/at.h"
#include "src/schedule/walk_memory.h"

namespace lockstep::schedule {

/// One member's call of a collective, with everything that has to agree.
struct MemberCall {
  Call call;
  int micro_batch = -1;
  int root = -1;          ///< position in the group
  std::vector<Cut> cuts;  ///< by buffer, where the op cuts
};

/// The k-th collective of a group: complete when every member has called.
struct Meeting {
  int group = 0;
  std::vector<std::optional<MemberCall>> members;
  int missing = 0;
  std::vector<int> blocked;  ///< ranks that stand in it until it is complete
};

/// Brings the members of each group together in the order in which each of them calls.
class Meetings {
 public:
  explicit Meetings(WalkMemory& memory) : memory_(&memory) {}

  /// The group that this step's `over` puts the rank in; -1 for none.
  int group_of(const Step& step, int rank);
  const std::vector<int>& members(int group) const { return memory_->members(group); }

  /// Adds the rank's next call of this group. The meeting stays valid until finish().
  Meeting& arrive(int group, int rank, MemberCall call);
  /// Forgets a complete meeting.
  void finish(Meeting& meeting);

 private:
  struct Group {
    std::deque<Meeting> open;
    std::size_t first = 0;          // number of the first open meeting
    std::vector<std::size_t> next;  // by member: number of its next meeting
  };
  WalkMemory* memory_;
  std::deque<Group> groups_;  // by number; a deque, because ranks keep pointers to open meetings
  std::unordered_map<const Step*, const std::vector<int>*> of_step_;  // by rank: number
};

/// What a call brings to a meeting, in words: "all_reduce (sum) of 2 parameters, 768 elements, float32".
std::string describe(const Schedule& schedule, const MemberCall& call);
/// Why these calls cannot be one collective; empty where they agree.
std::string disagreement(const Schedule& schedule, const Meeting& meeting);

}  // namespace lockstep::schedule
