// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <set>
#include <vector>

#include "src/base/at.h"
#include "src/numeric/preparation.h"

namespace lockstep::numeric {

/// Adds up what replays of parts of components found, by buffer and by logical parameter. For one thread at a time.
class ReplayResults {
 public:
  ReplayResults(const Schedule& schedule, const Timeline& timeline);

  /// What `plan`, replayed over the elements of `task`, found.
  void merge(const Task& task, const Plan& plan, const Findings& found);
  /// The component cannot be replayed: a factor of it has no residue, and no float has enough bits.
  void give_up(std::size_t component) { unreachable_.insert(component); }
  const std::set<std::size_t>& given_up() const { return unreachable_; }

  /// Everything but HostResult::elements.
  HostResult collect(const Preparation& preparation);

  /// By optimizer step and buffer, all buffers of rank 0 first.
  std::vector<std::vector<HostBuffer>>& buffers() { return results_; }
  /// By optimizer step and logical parameter.
  std::vector<std::vector<GradientHash>>& references() { return references_; }
  /// The number of a rank's first buffer; that of the world's size is the number of all.
  std::size_t first_of(int rank) const { return first_[at(rank)]; }

 private:
  std::size_t flat(const BufferNode& node) const { return first_of(node.rank) + static_cast<std::size_t>(node.buffer); }

  const Schedule& schedule_;
  std::vector<std::size_t> first_;
  std::vector<std::vector<HostBuffer>> results_;
  std::vector<std::vector<GradientHash>> references_;
  std::set<std::size_t> unreachable_;
};

/// What there is to say where no optimizer step was completed.
HostResult nothing_to_replay(const Schedule& schedule);

}  // namespace lockstep::numeric
