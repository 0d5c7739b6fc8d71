// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "lockstep/timeline.h"
#include "src/base/at.h"

namespace lockstep::schedule {

/// What walks over schedules have in common that differ in their steps alone: each answer is worked out once, however
/// many walks use the memory one after the other. Refers to the mesh, the model and the batch of the schedule that it
/// was made for. What it returns a reference to stays where it is.
class WalkMemory {
 public:
  explicit WalkMemory(const Schedule& schedule) : schedule_(&schedule) {}

  /// From any thread.
  const Contributions& contributions();
  /// Indices of the buffers of a local model that selectors choose.
  const std::vector<int>& selected(const Selectors& params, const LocalModel& local);
  /// The group that `over` puts each rank in: a number that is the same for each `over` with that set of ranks; -1 for
  /// none.
  const std::vector<int>& groups_of(const Over& over);
  /// The ranks of a group, ascending.
  const std::vector<int>& members(int group) const { return members_[at(group)]->first; }
  /// The value of `by` of a step that has one, as Factors::by() gives it or throws.
  Rational by(const Step& step, int rank, int optimizer_step, int micro_batch);

 private:
  const Schedule* schedule_;
  std::once_flag once_;
  std::optional<Contributions> contributions_;
  std::map<std::pair<int, std::vector<std::string>>, std::vector<int>> selections_;  // by local model and selectors
  std::map<std::string, std::vector<int>> groups_of_;                                // by `over`: by rank
  std::map<std::vector<int>, int> numbers_;                                          // of groups, by their ranks
  std::vector<std::map<std::vector<int>, int>::const_iterator> members_;             // by number
  // By expression, rank, optimizer step and micro-batch. The expression is kept, so that no other comes to lie there.
  std::map<std::tuple<const Expression::Node*, int, int, int>, std::pair<Expression, Rational>> factors_;
};

}  // namespace lockstep::schedule
