// SPDX-License-Identifier: Apache-2.0
#include "src/numeric/plan.h"

#include <algorithm>
#include <map>
#include <set>

#include "src/base/at.h"
#include "src/numeric/generator.h"

namespace lockstep::numeric {

namespace {

auto order(const BufferNode& node) { return std::tuple(node.rank, node.buffer, node.name); }

// Where a completed step's results of a rank stand between the events.
std::size_t end_of(const Timeline& timeline, std::size_t optimizer_step, int rank) {
  if (optimizer_step < timeline.rank_ends.size()) return timeline.rank_ends[optimizer_step][at(rank)];
  return timeline.step_ends[optimizer_step];
}

}  // namespace

Rational Planner::by(const Step& step, int rank, int optimizer_step, int micro_batch) const {
  if (!step.by) return Rational(1);
  const int evaluated_on = step.by->uses_rank() ? rank : -1;
  const std::lock_guard lock(mutex_);
  const auto [found, is_new] = by_.try_emplace({&step, evaluated_on, optimizer_step, micro_batch});
  if (is_new) found->second = factors_.by(step, rank, optimizer_step, micro_batch);
  return found->second;
}

int Planner::node_index(const Component& component, int rank, int buffer, const std::string& name) const {
  const auto number = std::find(components_.names.begin(), components_.names.end(), name) - components_.names.begin();
  const BufferNode wanted{rank, buffer, static_cast<int>(number)};
  const auto found = std::lower_bound(component.nodes.begin(), component.nodes.end(), wanted,
                                      [](const BufferNode& a, const BufferNode& b) { return order(a) < order(b); });
  if (found == component.nodes.end() || order(*found) != order(wanted))
    throw InternalError("an event touches a buffer outside its component");
  return static_cast<int>(found - component.nodes.begin());
}

void Planner::plan_use(const Component& component, const EventUse& use, Plan& plan) const {
  const Event& event = timeline_.events[use.event];
  PlannedEvent planned;
  planned.event = &event;
  planned.position = use.position;
  planned.optimizer_step = event.optimizer_step;
  bool any_view = false;
  for (const Call& call : event.calls) {
    planned.nodes.push_back(node_index(component, call.rank, (*call.buffers)[use.position], call.step->buffer));
    any_view = any_view || !call.owned.empty();
  }
  const Call& call = event.calls.front();
  const int buffer = (*call.buffers)[use.position];
  const int logical = schedule_.model.original(schedule_.model.local(call.rank).buffers[at(buffer)].logical);
  if (any_view) {
    for (const Call& member : event.calls)
      planned.views.push_back(member.owned.empty() ? nullptr : &member.owned[use.position]);
  }
  if (!event.cuts.empty()) planned.cut = &event.cuts[use.position];
  const Operation& row = operation(event.op);
  switch (row.adds) {
    case Operation::Adds::nothing:
      break;
    case Operation::Adds::gradient: {
      const int counted = schedule_.batch.first_micro_batch(event.optimizer_step) + event.micro_batch;
      for (const Contribution& contribution :
           contributions_.of(call.rank, buffer, event.optimizer_step, event.micro_batch, call.step->uses)) {
        GeneratedTerm& term = planned.terms.emplace_back();
        term.key = gradient_key(logical, contribution.source, counted, contribution.site_use);
        term.factor.exact = by(*call.step, contribution.evaluated_on, event.optimizer_step, event.micro_batch);
      }
      break;
    }
    case Operation::Adds::leftover: {
      GeneratedTerm& term = planned.terms.emplace_back();
      term.key = leftover_key(logical, call.step->what, call.step->per_rank ? call.rank : -1);
      term.factor.exact = event.by;
      break;
    }
    case Operation::Adds::buffer:
      planned.from = node_index(component, call.rank, buffer, call.step->from);
      break;
  }
  if (row.keeps == Operation::Keeps::multiple) planned.by.exact = event.by;
  if (row.reduces() && event.average) planned.by.exact = Rational(1, static_cast<std::int64_t>(event.calls.size()));
  plan.cost_per_element += static_cast<double>(std::max(planned.nodes.size(), planned.terms.size()));
  plan.events.push_back(std::move(planned));
}

ComponentCost Planner::cost(const Component& component) const {
  ComponentCost cost;
  const auto add = [&](double entries) {
    cost.entries += entries;
    cost.per_element += entries;
  };
  for (const EventUse& use : component.uses) {
    const Event& event = timeline_.events[use.event];
    double entries = static_cast<double>(event.calls.size());
    if (operation(event.op).adds == Operation::Adds::gradient) {
      const Call& call = event.calls.front();
      entries = std::max(entries, static_cast<double>(contributions_.most(call.rank, (*call.buffers)[use.position])));
    }
    add(entries);
  }
  const std::size_t steps = timeline_.step_ends.size();
  std::set<std::pair<int, int>> pieces;
  for (const BufferNode& node : component.nodes) {
    const LocalBuffer& buffer = schedule_.model.local(node.rank).buffers[at(node.buffer)];
    if (node.name == 0) add(static_cast<double>(steps));
    if (!pieces.emplace(buffer.logical, buffer.piece).second) continue;
    for (std::size_t step = 0; step < steps; ++step)
      add(static_cast<double>(reference_.most_terms(buffer.logical, buffer.piece, static_cast<int>(step))));
  }
  return cost;
}

Plan Planner::plan(const Component& component) const {
  Plan plan;
  plan.numel = component.numel;
  plan.aligned = component.aligned;
  std::map<std::pair<int, int>, int> pieces;
  struct Check {
    std::size_t before;  // the event
    int node;
    int optimizer_step;
  };
  std::vector<Check> checks;
  const std::size_t steps = timeline_.step_ends.size();
  for (const BufferNode& node : component.nodes) {
    const LocalBuffer& buffer = schedule_.model.local(node.rank).buffers[at(node.buffer)];
    const auto [found, is_new] =
        pieces.try_emplace({buffer.logical, buffer.piece}, static_cast<int>(plan.pieces.size()));
    if (is_new) {
      PieceUse& piece = plan.pieces.emplace_back(PieceUse{buffer.logical, buffer.piece, buffer.numel, {}});
      for (std::size_t step = 0; step < steps; ++step) {
        auto& expected = piece.expected.emplace_back();
        for (ReferenceTerm& term : reference_.terms(buffer.logical, buffer.piece, static_cast<int>(step))) {
          expected.terms.push_back({term.key, Factor{.exact = term.weight}});
        }
        plan.cost_per_element += static_cast<double>(expected.terms.size());
      }
    }
    if (node.name == 0) {
      for (std::size_t step = 0; step < steps; ++step) {
        checks.push_back(
            {end_of(timeline_, step, node.rank), static_cast<int>(plan.nodes.size()), static_cast<int>(step)});
      }
    }
    plan.nodes.push_back({node, found->second, node.name == 0});
  }
  std::stable_sort(checks.begin(), checks.end(), [](const Check& a, const Check& b) {
    return std::tuple(a.before, a.optimizer_step) < std::tuple(b.before, b.optimizer_step);
  });
  std::size_t next = 0;
  const auto add_checks = [&](std::size_t before) {
    for (; next < checks.size() && checks[next].before <= before; ++next) {
      PlannedEvent planned;
      planned.nodes = {checks[next].node};
      planned.optimizer_step = checks[next].optimizer_step;
      planned.check = plan.checks++;
      const BufferNode& node = plan.nodes[at(checks[next].node)].node;
      planned.owned = &timeline_.owned[at(checks[next].optimizer_step)][at(node.rank)][at(node.buffer)];
      plan.events.push_back(std::move(planned));
    }
  };
  for (const EventUse& use : component.uses) {
    add_checks(use.event);
    if (next == checks.size()) break;  // what a step that nobody completed did is of no interest
    plan_use(component, use, plan);
  }
  add_checks(timeline_.events.size());
  plan.cost_per_element += static_cast<double>(plan.checks);
  return plan;
}

}  // namespace lockstep::numeric
