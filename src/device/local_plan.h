// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "src/device/folding.h"
#include "src/device/messenger.h"
#include "src/numeric/plan.h"

namespace lockstep::device {

/// What one process does of a plan: the buffers of its ranks, and the collectives in which they take part.
struct LocalPlan {
  LocalPlan(const numeric::Plan& plan, const Folding& folding, int process);

  /// By node: the number of its buffer in this process; -1 where another process holds it.
  std::vector<int> slot;
  int slots = 0;
  /// By piece: the number of its reference in this process; -1 where no rank of it holds the piece.
  std::vector<int> piece_slot;
  int piece_slots = 0;
  /// The most buffers and references that any process has; the same in all of them.
  int most_slots = 0;

  /// The members of a collective, folded on processes.
  struct Meeting {
    Processes processes;               ///< empty where no member is here, and for what is no collective
    std::vector<std::size_t> at;       ///< by member: index into `processes`
    std::vector<std::size_t> members;  ///< those that are here, ascending
  };
  std::vector<Meeting> meetings;  ///< by event

  /// By piece and completed optimizer step: elements that ranks of this process hand to their optimizers, so that they
  /// are compared with the reference here.
  std::vector<std::vector<Intervals>> compared;
  /// By piece: the reference is hashed in parts of equal length, one by each process that holds a result of it, in
  /// their order. This is the part of this process.
  std::vector<Intervals> shares;

  bool takes_part() const { return slots > 0; }
};

}  // namespace lockstep::device
