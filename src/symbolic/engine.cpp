// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "src/base/at.h"
#include "src/symbolic/engine_state.h"

namespace lockstep {

symbolic::SymbolicMemory::SymbolicMemory(const Schedule& schedule) {
  std::size_t total = 0;
  for (int rank = 0; rank < schedule.mesh.world(); ++rank) {
    first.push_back(total);
    total += schedule.model.local(rank).buffers.size();
  }
  first.push_back(total);
}

int symbolic::SymbolicMemory::number_of(const Step& step) {
  return step_numbers
      .emplace(std::pair(step.by ? step.by->text() : "", step.uses), static_cast<int>(step_numbers.size()))
      .first->second;
}

SymbolicEngine::State::State(const Schedule& the_schedule, const Timeline& the_timeline,
                             symbolic::SymbolicMemory* of_others)
    : schedule(the_schedule),
      timeline(the_timeline),
      contributions(the_timeline.memory->contributions()),
      factors(the_schedule),
      own(of_others == nullptr ? std::make_unique<symbolic::SymbolicMemory>(the_schedule) : nullptr),
      memory(of_others == nullptr ? *own : *of_others),
      forms(memory.forms),
      contents(memory.contents) {
  slot(schedule.result);
  for (const Event& event : timeline.events) {
    if (operation(event.op).clips()) clipped_steps.insert(event.optimizer_step);
  }
}

SymbolicEngine::SymbolicEngine(const Schedule& schedule, const Timeline& timeline)
    : state_(std::make_unique<State>(schedule, timeline, nullptr)) {}

SymbolicEngine::SymbolicEngine(const Schedule& schedule, const Timeline& timeline, symbolic::SymbolicMemory& memory)
    : state_(std::make_unique<State>(schedule, timeline, &memory)) {}

SymbolicEngine::~SymbolicEngine() = default;

SymbolicResult SymbolicEngine::run(const std::function<void(std::size_t)>& after_event) {
  State& state = *state_;
  const Timeline& timeline = state.timeline;
  for (std::vector<int>& slot : state.buffers) std::fill(slot.begin(), slot.end(), -1);
  state.norm_calls.clear();
  state.norms_of.assign(static_cast<std::size_t>(state.schedule.mesh.world()), {});
  state.clip_factor_of.clear();
  state.clip_names.clear();
  state.right_factors.clear();
  state.other_norms.clear();
  const int completed = static_cast<int>(timeline.rank_ends.size());
  state.snapshots.assign(static_cast<std::size_t>(completed), std::vector<int>(state.memory.first.back(), -1));

  // A rank's list ends before this event: its optimizer reads the result buffer now.
  std::multimap<std::size_t, std::pair<int, int>> ends;
  for (int step = 0; step < completed; ++step) {
    const auto& of_rank = timeline.rank_ends[at(step)];
    for (std::size_t rank = 0; rank < of_rank.size(); ++rank)
      ends.emplace(of_rank[rank], std::pair(step, static_cast<int>(rank)));
  }
  auto next_end = ends.begin();
  const auto read_results = [&](std::size_t event) {
    for (; next_end != ends.end() && next_end->first <= event; ++next_end) {
      const auto [step, rank] = next_end->second;
      const std::size_t buffers = state.schedule.model.local(rank).buffers.size();
      for (std::size_t buffer = 0; buffer < buffers; ++buffer) {
        state.snapshots[at(step)][state.index(rank, static_cast<int>(buffer))] =
            state.held(state.slot(state.schedule.result), rank, static_cast<int>(buffer));
      }
    }
  };
  for (std::size_t event = 0; event < timeline.events.size(); ++event) {
    read_results(event);
    state.happen(timeline.events[event]);
    if (after_event) after_event(event);
  }
  read_results(timeline.events.size());

  SymbolicResult result;
  for (int step = 0; step < completed; ++step) {
    result = state.result_of(step);
    if (!result.match) break;
  }
  return result;
}

std::vector<SymbolicEngine::Content> SymbolicEngine::content(int rank, int buffer, const std::string& name) const {
  State& state = *state_;
  std::vector<Content> result;
  std::int64_t begin = 0;
  for (const symbolic::Contents::Segment& segment :
       state.contents.content(state.held(state.slot(name), rank, buffer))) {
    result.push_back({{begin, segment.end}, segment.form});
    begin = segment.end;
  }
  return result;
}

std::vector<SymbolicEngine::Content> SymbolicEngine::handed_over(int rank, int buffer, int optimizer_step) const {
  std::vector<Content> result;
  state_->visit_handed_over(rank, buffer, optimizer_step, [&](const Interval& elements, int form) {
    result.push_back({elements, form});
  });
  return result;
}

int SymbolicEngine::reference(int logical, int piece, int optimizer_step) {
  return state_->expected(logical, piece, optimizer_step);
}

Rational SymbolicEngine::by(const Term& term) const { return state_->by(term); }

}  // namespace lockstep
