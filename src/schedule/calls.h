// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "src/schedule/walk_memory.h"

namespace lockstep::schedule {

/// One place in the unrolled list: a step in one iteration of one optimizer step, or (step null)
/// the end of the list.
struct Position {
  const Step* step = nullptr;
  const Step* each = nullptr;  ///< the `each` around it
  int optimizer_step = 0;
  int micro_batch = -1;
};

/// Unrolls the list for every optimizer step; each ends with a position without a step.
std::vector<Position> unroll(const Schedule& schedule);

/// Answers what a rank does at a position: whether it calls, on which buffers, with which factor,
/// cut how. Answers that ranks share are worked out once.
class Calls {
 public:
  /// The memory was made for the mesh, model and batch of the schedule; both must outlive it.
  Calls(const Schedule& schedule, WalkMemory& memory) : schedule_(&schedule), memory_(&memory) {}

  /// `when` and `only` of the step and of the `each` around it.
  bool runs(const Position& position, int rank);
  /// Indices of the selected buffers on this rank. The vector lives as long as the memory.
  const std::vector<int>& selected(const Step& step, int rank);
  /// The geometry of `step` over whole buffers on this rank, for a group of `n`.
  const GeometryLayout& layout(const Step& step, int rank, int n);
  /// The same over parts of `buffers`.
  GeometryLayout layout(const Step& step, int rank, int n, const std::vector<int>& buffers,
                        const std::vector<std::int64_t>& numels);
  /// `by` of scale and leftover.
  Rational by(const Position& position, int rank);
  /// Evaluates `by` of a backward wherever an engine will, so that mistakes show now.
  void check_backward(const Position& position, int rank);
  /// Whether a norm counts this rank's elements.
  bool counts(const Position& position, int rank);

 private:
  Environment environment(const Position& position, int rank) const;
  bool condition(const Step& step, const Position& position, int rank);
  template <class Function>
  auto evaluated(const Step& step, const Place& place, const char* key, int rank, Function function);

  const Schedule* schedule_;
  WalkMemory* memory_;
  std::map<std::pair<const Step*, int>, const std::vector<int>*> selected_;
  std::map<std::tuple<const Step*, int, int>, std::unique_ptr<GeometryLayout>> layouts_;
  // By step, optimizer step and micro-batch: answers that are the same on every rank.
  std::map<std::tuple<const Step*, int, int>, bool> conditions_;
  std::map<std::tuple<const Step*, int, int>, Rational> factors_of_;
  std::map<std::tuple<const Step*, int, int>, bool> backward_checked_;
};

}  // namespace lockstep::schedule
