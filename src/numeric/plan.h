// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "src/numeric/component.h"
#include "src/numeric/reference.h"
#include "src/schedule/walk_memory.h"

namespace lockstep::numeric {

/// A factor in all the forms in which it is needed; those but `exact` are filled by bind().
struct Factor {
  Rational exact{1};
  double multiply = 1, divide = 1;  ///< as two exact steps
  std::int64_t whole = 0;           ///< reference only: in units of the reference's last bit
  std::uint64_t residue = 1;        ///< modulo 2^61 - 1
};

/// A number of the generator times a factor.
struct GeneratedTerm {
  std::uint64_t key = 0;
  Factor factor;
};

/// What happens to the buffers of one component, with everything looked up that does not depend
/// on the element.
struct PlannedEvent {
  const Event* event = nullptr;  ///< none: a check at the end of an optimizer step
  std::size_t position = 0;
  std::vector<int> nodes;            ///< index into Plan::nodes; collective: by member
  int from = -1;                     ///< copy, accumulate: the node that is read
  std::vector<GeneratedTerm> terms;  ///< backward, leftover
  Factor by;                         ///< scale; average: 1/n
  const Cut* cut = nullptr;
  std::vector<const Intervals*> views;  ///< by member; empty where whole buffers meet
  int check = -1;                       ///< check: its number, what is checked, and the optimizer step
  const Intervals* owned = nullptr;
  int optimizer_step = 0;
};

/// A (logical parameter, piece) that some node of the component holds.
struct PieceUse {
  int logical = 0;
  int piece = 0;
  std::int64_t numel = 0;
  /// By completed optimizer step.
  struct Expected {
    std::vector<GeneratedTerm> terms;
    int unit = 0;  ///< Factor::whole counts in units of 2^unit
  };
  std::vector<Expected> expected;
};

struct PlannedNode {
  BufferNode node;
  int piece = 0;  ///< index into Plan::pieces
  bool is_result = false;
};

struct Plan {
  std::vector<PlannedNode> nodes;
  std::vector<PieceUse> pieces;
  std::vector<PlannedEvent> events;
  int checks = 0;
  std::int64_t numel = 0;
  bool aligned = true;
  /// Element-steps for each local element: what events, checks and the reference do to it.
  double cost_per_element = 0;
};

/// What the plan of a component will be like, without making it.
struct ComponentCost {
  double entries = 0;      ///< members of events, and contributions to buffers and references
  double per_element = 0;  ///< as in Plan::cost_per_element; at least that
};

/// Looks up plans. Safe to use from several threads.
class Planner {
 public:
  Planner(const Schedule& schedule, const Timeline& timeline, const Components& components)
      : schedule_(schedule),
        timeline_(timeline),
        components_(components),
        reference_(schedule),
        contributions_(timeline.memory->contributions()),
        factors_(schedule) {}

  Plan plan(const Component& component) const;
  /// Complexity: linear in the component's nodes and uses, whatever the number of contributions.
  ComponentCost cost(const Component& component) const;

 private:
  Rational by(const Step& step, int rank, int optimizer_step, int micro_batch) const;
  void plan_use(const Component& component, const EventUse& use, Plan& plan) const;
  int node_index(const Component& component, int rank, int buffer, const std::string& name) const;

  const Schedule& schedule_;
  const Timeline& timeline_;
  const Components& components_;
  Reference reference_;
  const Contributions& contributions_;
  Factors factors_;
  mutable std::mutex mutex_;
  mutable std::map<std::tuple<const Step*, int, int, int>, Rational> by_;
};

}  // namespace lockstep::numeric
