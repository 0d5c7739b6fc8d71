// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/symbolic/programs.h"

namespace lockstep::symbolic {

/// The calls of several ranks that are one collective, or a send and its receive.
struct Meeting {
  int group = -1;           ///< index into RankPrograms::members; -1: a send and a receive
  std::int64_t number = 0;  ///< in its group, or among the sends of these two ranks, from 1
  std::vector<int> pair;    ///< of a send and a receive: the two ranks; else empty
  std::vector<int> calls;   ///< by position in the group: the call of that rank's program; -1: it never came
  int arrived = 0;
  std::string wrong;  ///< all came, and why it is no collective: half a sentence; ""

  bool complete() const { return arrived == static_cast<int>(calls.size()); }
  const std::vector<int>& ranks(const RankPrograms& programs) const {
    return group < 0 ? pair : programs.members[static_cast<std::size_t>(group)];
  }
};

/// A rank that waits for ever, and for whom.
struct StuckRank {
  int rank = 0;
  int call = 0;        ///< of its program: what it waits for
  int missing = 0;     ///< a rank that has not come there
  bool ended = false;  ///< that one has ended without it; else it waits as well
};

/// Which calls meet.
struct Meetings {
  std::vector<Meeting> all;
  std::vector<int> order;                 ///< of those to which all came, one that ranks could go through
  std::vector<std::vector<int>> of_rank;  ///< by rank and call: the meeting; -1: the rank never gets there
  std::vector<StuckRank> stuck;  ///< ranks that wait for each other in a circle; where there is none, the first
                                 ///< that waits for one that has ended; empty: every rank ends
  bool reached(int rank, int call) const {  ///< whether that call of that rank completes
    const int meeting = of_rank[static_cast<std::size_t>(rank)][static_cast<std::size_t>(call)];
    return meeting >= 0 && all[static_cast<std::size_t>(meeting)].complete();
  }
};

/// Runs the ranks' calls as c10d matches them: the n-th on a process group of each member, the n-th send to a rank with
/// its n-th receive from there. A call that is not asynchronous holds its rank until all came; an asynchronous one
/// until something reads its output. Complexity: linear in the calls of all ranks.
Meetings match_calls(const RankPrograms& programs);

}  // namespace lockstep::symbolic
