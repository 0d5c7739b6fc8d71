// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "lockstep/timeline.h"
#include "src/base/at.h"

namespace lockstep::schedule {

/// Who owns what during a walk: whole at the start of each optimizer step, narrowed by reductions,
/// widened by gathers. Also remembers which reduce-scatter an all_gather would undo, and which
/// ranks answer together for a parameter (families).
class Ownership {
 public:
  explicit Ownership(const Schedule& schedule);

  /// The last reduce-scatter of a buffer in this optimizer step.
  struct Scattered {
    const Step* step = nullptr;
    int group = -1;  ///< number of the group it ran over
    Cut cut;
    std::optional<Intervals> view;  ///< what it cut, where that was not the whole buffer
  };

  const Intervals& owned(int rank, int buffer) const { return owned_[index(rank, buffer)]; }
  void set(int rank, int buffer, Intervals intervals) { owned_[index(rank, buffer)] = std::move(intervals); }
  const std::optional<Scattered>& scattered(int rank, int buffer) const { return scattered_[index(rank, buffer)]; }
  void scatter(int rank, int buffer, Scattered scattered) { scattered_[index(rank, buffer)] = std::move(scattered); }

  /// These ranks answer together for what they hold in common. `buffers[i]` is the buffer of
  /// `ranks[i]`, `optimizer_steps[i]` the step in which it takes part.
  void join(const std::vector<int>& optimizer_steps, const std::vector<int>& ranks, const std::vector<int>& buffers);

  /// Ends the rank's list: returns what it owns and makes everything whole again.
  std::vector<Intervals> finish(int rank);
  /// Family numbers of all buffers in an optimizer step: one for those that are the same piece on
  /// the same stage and were joined, directly or through others.
  std::vector<std::vector<int>> families(int optimizer_step);

 private:
  std::size_t index(int rank, int buffer) const { return first_[at(rank)] + static_cast<std::size_t>(buffer); }
  std::vector<int>& parents(int optimizer_step);
  static int root_of(std::vector<int>& parents, int index);

  const Schedule* schedule_;
  std::vector<std::size_t> first_;  // by rank: index of its first buffer; one more at the end
  std::vector<Intervals> owned_;
  std::vector<std::optional<Scattered>> scattered_;
  std::map<int, std::vector<int>> parents_;  // union-find, by optimizer step
};

}  // namespace lockstep::schedule
