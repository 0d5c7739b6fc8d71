// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "src/scenario/parts_hash.h"
#include "src/schedule/walk_memory.h"

namespace lockstep::diagnosis {

/// What steps come to at the sizes and for the parameters of one schedule. Many edits say the same there in other
/// words: where there are two of each, a division by dp is one by the micro-batches, and all but the first micro-batch
/// are the last one.
class ResolvedSteps {
 public:
  /// The memory was made for the mesh, model and batch of the schedule; both must outlive it.
  ResolvedSteps(const Schedule& schedule, schedule::WalkMemory& memory);

  /// Equal for lists of steps that nothing tells apart in a replay, names aside, and for others only by an accident of
  /// 64 bits. Throws InputError where a walk does so for the groups of a step.
  std::uint64_t hash(const std::vector<Step>& steps);

 private:
  void add(const std::vector<Step>& steps, bool in_each);
  void add(const Step& step, bool in_each);
  void add(const Geometry& geometry);
  void add_values(const Expression& expression, bool in_each);
  std::string values_of(const Expression& expression, bool in_each) const;
  int selection(const Selectors& params);
  int groups(const std::optional<Over>& over);

  const Schedule* schedule_;
  schedule::WalkMemory* memory_;
  std::vector<const LocalModel*> locals_;  // of all ranks, each once
  scenario::PartsHash hash_;
  std::vector<const Step*> list_;  // that are hashed, in order
  // Answers that many lists have in common.
  std::map<std::vector<std::string>, int> selections_;
  std::map<std::vector<std::vector<int>>, int> selected_;
  std::map<const std::vector<int>*, int> groups_;
  std::map<std::vector<int>, int> grouped_;
  // By expression, and whether in `each`: their hash. The expression is kept, so that no other comes to lie there.
  std::map<std::pair<const Expression::Node*, bool>, std::pair<Expression, std::uint64_t>> values_;
  Expression always_, once_;  // what a step without `when` and without `by` comes to
};

}  // namespace lockstep::diagnosis
