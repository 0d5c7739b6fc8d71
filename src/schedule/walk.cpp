// SPDX-License-Identifier: Apache-2.0
#include "src/schedule/walk.h"

#include <algorithm>
#include <unordered_map>

#include "src/base/at.h"
#include "src/base/budget.h"

namespace lockstep {

namespace {

const std::vector<int> no_buffers;

bool share_a_buffer(const std::vector<int>& a, const std::vector<int>& b, int& which) {
  for (std::size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    if (a[i] == b[j]) {
      which = a[i];
      return true;
    }
    (a[i] < b[j] ? i : j)++;
  }
  return false;
}

// The name of a buffer that both steps read or write, or "".
std::string common_buffer(const Step& a, const Step& b) {
  for (const std::string* name : {&a.buffer, &a.from}) {
    if (!name->empty() && (*name == b.buffer || *name == b.from)) return *name;
  }
  return "";
}

}  // namespace

namespace schedule {

Walk::Walk(const Schedule& schedule, Timeline& timeline, AtRace at_race)
    : schedule_(&schedule),
      timeline_(&timeline),
      calls_(schedule, *timeline.memory),
      ownership_(schedule),
      meetings_(*timeline.memory),
      at_race_(at_race),
      positions_(unroll(schedule)),
      ranks_(static_cast<std::size_t>(schedule.mesh.world())) {
  Budget::spend(16 * static_cast<std::int64_t>(schedule.mesh.world()));
  const auto steps = static_cast<std::size_t>(schedule.batch.steps());
  owned_.assign(steps, std::vector<std::vector<Intervals>>(ranks_.size()));
  ends_.assign(steps, std::vector<std::size_t>(ranks_.size()));
  finished_.assign(steps, 0);
}

void Walk::run() {
  for (std::size_t time = 0; time < positions_.size(); ++time) {
    run_time(time);
    if (timeline_->outcome.kind != Outcome::Kind::complete) break;
  }
  if (timeline_->outcome.kind == Outcome::Kind::complete) report_stuck();
  keep_completed();
}

void Walk::run_time(std::size_t time) {
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    if (!ranks_[rank].waits_in && !ranks_[rank].stopped) ready_.push(static_cast<int>(rank));
  }
  while (!ready_.empty()) {
    const int rank = ready_.top();
    ready_.pop();
    advance(rank, time);
  }
}

// Executes everything up to and including position `time`, unless the rank gets blocked.
void Walk::advance(int rank, std::size_t time) {
  RankState& state = ranks_[at(rank)];
  while (state.next <= time && !state.waits_in && !state.stopped) {
    const Position& position = positions_[state.next++];
    Budget::spend(2);
    if (!position.step) {
      end_of_list(rank, position);
    } else if (calls_.runs(position, rank)) {
      execute(rank, position, time);
    }
  }
}

void Walk::execute(int rank, const Position& position, std::size_t time) {
  const Step& step = *position.step;
  if (step.op == Op::wait) return wait(rank, position);
  const Operation& row = operation(step.op);
  const std::vector<int>* buffers = &calls_.selected(step, rank);
  const Budget::Place place("step", step.name);
  Budget::spend(16 + static_cast<std::int64_t>(buffers->size()) / 4);
  if (row.counts) {
    if (!calls_.counts(position, rank)) buffers = &no_buffers;
  } else if (buffers->empty()) {
    return;  // a rank on which the selectors match nothing does not call
  }
  // Nor does one that is not among the picked coordinates.
  if (row.of_a_group() && meetings_.group_of(step, rank) < 0) return;
  const std::vector<int>& touched = row.touches() ? *buffers : no_buffers;
  if (races(rank, position, touched)) return;
  if (step.async) ranks_[at(rank)].in_flight.push_back({&step, &touched});
  if (row.collective) {
    collective(rank, position, *buffers, time);
  } else if (row.of_a_group()) {
    own(rank, position, *buffers, time);
  } else {
    local(rank, position, *buffers, time);
    if (step.async) ranks_[at(rank)].in_flight.back().event = timeline_->events.size() - 1;
  }
}

bool Walk::races(int rank, const Position& position, const std::vector<int>& buffers) {
  const Step& step = *position.step;
  bool found = false;
  RankState& state = ranks_[at(rank)];
  for (InFlight& flight : state.in_flight) {
    if (flight.waited_for && flight.step != &step) continue;
    int buffer = flight.buffers->empty() ? -1 : flight.buffers->front();
    std::string name = flight.step->buffer;
    const bool reads_norm = operation(step.op).clips() && operation(flight.step->op).counts;
    if (flight.step != &step && !reads_norm) {
      name = common_buffer(step, *flight.step);
      if (name.empty() || !share_a_buffer(buffers, *flight.buffers, buffer)) continue;
    }
    found = true;
    if (at_race_ == AtRace::ends) {
      report_race(rank, position, step.name, name, buffer, *flight.step);
    } else if (waits_instead(rank, flight)) {
      return true;
    }
  }
  if (at_race_ == AtRace::ends) return found;
  // Its own name is from now on that of what it starts.
  std::erase_if(state.in_flight, [&](const InFlight& flight) { return flight.step == &step; });
  return false;
}

/// Whether the rank must stand still for it: then it comes back to the same position.
bool Walk::waits_instead(int rank, InFlight& flight) {
  RankState& state = ranks_[at(rank)];
  if (flight.meeting == nullptr) {
    flight.waited_for = true;
    return false;
  }
  --state.next;
  state.waits_in = flight.step;
  state.meeting = flight.meeting;
  flight.meeting->blocked.push_back(rank);
  return true;
}

// All races of one time are reported, and they end the run before a wrong meeting of that time does.
void Walk::report_race(int rank, const Position& position, const std::string& step, const std::string& name, int buffer,
                       const Step& in_flight) {
  Outcome& outcome = timeline_->outcome;
  const bool first = outcome.kind != Outcome::Kind::race;
  outcome.optimizer_step = first ? position.optimizer_step : std::min(outcome.optimizer_step, position.optimizer_step);
  outcome.kind = Outcome::Kind::race;
  outcome.why.clear();
  outcome.member_calls.clear();
  std::string touches;  // a step that touches no buffer can still be started twice
  if (buffer >= 0) {
    const int parameter = schedule_->model.local(rank).buffers[at(buffer)].parameters.front();
    touches = name + " of " + schedule_->model.parameters()[at(parameter)].name;
  }
  outcome.races.push_back({rank, step, touches, in_flight.name});
  ranks_[at(rank)].stopped = true;
}

void Walk::local(int rank, const Position& position, const std::vector<int>& buffers, std::size_t time) {
  const Step& step = *position.step;
  Event event;
  event.op = step.op;
  event.time = static_cast<int>(time);
  event.optimizer_step = position.optimizer_step;
  event.micro_batch = position.micro_batch;
  if (operation(step.op).adds == Operation::Adds::gradient) {
    calls_.check_backward(position, rank);
  } else {
    event.by = calls_.by(position, rank);
  }
  event.calls.push_back(member_call(rank, position, buffers, -1).call);
  timeline_->events.push_back(std::move(event));
}

void Walk::change(int rank, int buffer, Intervals owned) {
  if (owned == ownership_.owned(rank, buffer)) return;
  timeline_->ownership.push_back({timeline_->events.size() - 1, rank, buffer, owned});
  ownership_.set(rank, buffer, std::move(owned));
}

// `own` moves no data, so nobody waits: a member takes its slice when it comes by.
void Walk::own(int rank, const Position& position, const std::vector<int>& buffers, std::size_t time) {
  const Step& step = *position.step;
  const int group = meetings_.group_of(step, rank);
  const std::vector<int>& ranks = meetings_.members(group);
  MemberCall call = member_call(rank, position, buffers, group);
  Event event;
  event.op = step.op;
  event.time = static_cast<int>(time);
  event.optimizer_step = position.optimizer_step;
  event.micro_batch = position.micro_batch;
  event.calls.push_back(call.call);
  timeline_->events.push_back(std::move(event));
  const auto member = static_cast<int>(std::lower_bound(ranks.begin(), ranks.end(), rank) - ranks.begin());
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    const Intervals view = call.call.owned.empty() ? Intervals{{0, call.cuts[i].numel}} : call.call.owned[i];
    OwningMember owner{ownership_.owned(rank, buffers[i]), view, &call.cuts[i], member, false};
    change(rank, buffers[i], owned_after(operation(step.op), owner));
  }
  for (const int buffer : buffers) {
    // One earlier caller with the same parameter is enough: the others are joined to it already.
    const int logical = schedule_->model.local(rank).buffers[at(buffer)].logical;
    const auto [first, is_new] =
        owners_.try_emplace({&step, position.optimizer_step, position.micro_batch, group, logical}, rank, buffer);
    if (is_new) continue;
    const auto [other, held] = first->second;
    ownership_.join({position.optimizer_step, position.optimizer_step}, {rank, other}, {buffer, held});
  }
}

void Walk::wait(int rank, const Position& position) {
  RankState& state = ranks_[at(rank)];
  for (std::size_t i = 0; i < state.in_flight.size(); ++i) {
    const InFlight flight = state.in_flight[i];
    if (flight.step->name != position.step->wait_for) continue;
    state.in_flight.erase(state.in_flight.begin() + static_cast<std::ptrdiff_t>(i));
    if (flight.meeting) {
      state.waits_in = flight.step;
      state.meeting = flight.meeting;
      state.passing = flight;
      flight.meeting->blocked.push_back(rank);
    } else {
      passed(rank, flight);
    }
    return;
  }
}

void Walk::passed(int rank, const InFlight& flight) {
  if (flight.event) timeline_->waits.push_back({timeline_->events.size(), rank, *flight.event});
}

void Walk::end_of_list(int rank, const Position& position) {
  RankState& state = ranks_[at(rank)];
  const std::size_t optimizer_step = at(position.optimizer_step);
  if (at_race_ == AtRace::waits) {
    for (InFlight& flight : state.in_flight) {
      if (waits_instead(rank, flight)) return;
    }
  } else if (!state.in_flight.empty()) {
    for (const InFlight& flight : state.in_flight) {
      report_race(rank, position, "", flight.step->buffer, flight.buffers->empty() ? -1 : flight.buffers->front(),
                  *flight.step);
    }
    return;
  }
  owned_[optimizer_step][at(rank)] = ownership_.finish(rank);
  ends_[optimizer_step][at(rank)] = timeline_->events.size();
  ++finished_[optimizer_step];
}

void Walk::report_stuck() {
  Outcome& outcome = timeline_->outcome;
  std::unordered_map<const Meeting*, std::vector<int>> missing;  // the same for all that wait in it
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    const RankState& state = ranks_[rank];
    if (!state.waits_in) continue;
    const auto [found, is_new] = missing.try_emplace(state.meeting);
    if (is_new) {
      const std::vector<int>& members = meetings_.members(state.meeting->group);
      for (std::size_t i = 0; i < members.size(); ++i) {
        if (!state.meeting->members[i]) found->second.push_back(members[i]);
      }
    }
    const Budget::Place place("step", state.waits_in->name);
    Budget::checkpoint();
    Outcome::Stuck stuck{static_cast<int>(rank), state.waits_in->name, found->second};
    const int optimizer_step = positions_[state.next - 1].optimizer_step;
    if (outcome.stuck.empty() || optimizer_step < outcome.optimizer_step) outcome.optimizer_step = optimizer_step;
    outcome.kind = Outcome::Kind::deadlock;
    outcome.stuck.push_back(std::move(stuck));
  }
}

void Walk::keep_completed() {
  for (std::size_t step = 0; step < finished_.size() && finished_[step] == schedule_->mesh.world(); ++step) {
    timeline_->owned.push_back(std::move(owned_[step]));
    timeline_->family.push_back(ownership_.families(static_cast<int>(step)));
    timeline_->step_ends.push_back(*std::max_element(ends_[step].begin(), ends_[step].end()));
    timeline_->rank_ends.push_back(std::move(ends_[step]));
  }
}

}  // namespace schedule

Timeline walk(const Schedule& schedule, AtRace at_race, std::shared_ptr<schedule::WalkMemory> memory) {
  Timeline timeline;
  timeline.memory = memory != nullptr ? std::move(memory) : std::make_shared<schedule::WalkMemory>(schedule);
  schedule::Walk(schedule, timeline, at_race).run();
  return timeline;
}

}  // namespace lockstep
