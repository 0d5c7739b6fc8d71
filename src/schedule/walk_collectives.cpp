// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "src/base/at.h"
#include "src/base/counted.h"
#include "src/schedule/walk.h"

namespace lockstep::schedule {

namespace {

std::string list_of(const std::vector<int>& ranks) {
  std::string text;
  for (std::size_t i = 0; i < ranks.size() && i < 8; ++i) text += (i ? ", " : "") + std::to_string(ranks[i]);
  return ranks.size() > 8 ? text + ", …" : text;
}

}  // namespace

int Walk::root_in(int group, const Step& step, int rank) {
  if (!step.root) return -1;
  const std::vector<int>& ranks = meetings_.members(group);
  if (step.root->position) {
    if (*step.root->position < static_cast<int>(ranks.size())) return *step.root->position;
    throw InputError({{step.places->root, "\"root\" of step \"" + step.name + "\" is position " +
                                              std::to_string(*step.root->position) + ", but the group of rank " +
                                              std::to_string(rank) + " has " + counted(ranks.size(), "member") +
                                              ", counted from 0"}});
  }
  int found = -1;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const bool fits =
        std::all_of(step.root->coordinates.begin(), step.root->coordinates.end(), [&](const auto& coordinate) {
          return schedule_->mesh.coordinate(ranks[i], coordinate.first) == coordinate.second;
        });
    if (!fits) continue;
    if (found >= 0) {
      throw InputError(
          {{step.places->root, "\"root\" of step \"" + step.name + "\" names several members of the group of ranks " +
                                   list_of(ranks) + "; give the coordinates that single one out"}});
    }
    found = static_cast<int>(i);
  }
  if (found < 0) {
    throw InputError({{step.places->root, "\"root\" of step \"" + step.name +
                                              "\" names no member of the group of ranks " + list_of(ranks)}});
  }
  return found;
}

// `group` is -1 for local steps.
MemberCall Walk::member_call(int rank, const Position& position, const std::vector<int>& buffers, int group) {
  const Step& step = *position.step;
  MemberCall result;
  result.call.rank = rank;
  result.call.step = &step;
  result.call.buffers = &buffers;
  result.call.optimizer_step = position.optimizer_step;
  result.micro_batch = position.micro_batch;
  const Operation& row = operation(step.op);
  if (step.on_owned || row.counts) {
    for (int buffer : buffers) result.call.owned.push_back(ownership_.owned(rank, buffer));
  }
  if (group < 0) return result;
  result.root = root_in(group, step, rank);
  const int n = static_cast<int>(meetings_.members(group).size());
  if (row.cuts == Operation::Cuts::its_own) {
    if (result.call.owned.empty()) {
      result.cuts = calls_.layout(step, rank, n).cuts;
    } else {
      std::vector<std::int64_t> numels;
      for (const Intervals& owned : result.call.owned) numels.push_back(size(owned));
      result.cuts = calls_.layout(step, rank, n, buffers, numels).cuts;
    }
  } else if (row.cuts == Operation::Cuts::those_of_the_scatter) {
    // What each parameter's last scatter cut; the others by this step's own geometry, which lays out all that
    // the step selects.
    bool viewed = false;
    for (int buffer : buffers) {
      const auto& scattered = ownership_.scattered(rank, buffer);
      if (!scattered) continue;
      viewed = viewed || scattered->view.has_value();
      if (scattered->group != group) {
        const int parameter = schedule_->model.local(rank).buffers[at(buffer)].parameters.front();
        throw InputError(
            {{step.places->over,
              std::string(row.name) + " \"" + step.name + "\" runs over ranks " + list_of(meetings_.members(group)) +
                  ", but " + schedule_->model.parameters()[at(parameter)].name + " was last scattered by \"" +
                  scattered->step->name + "\" over ranks " + list_of(meetings_.members(scattered->group)) +
                  "; a gather undoes the last reduce-scatter and needs the same group"}});
      }
    }
    for (std::size_t i = 0; i < buffers.size(); ++i) {
      const int buffer = buffers[i];
      const auto& scattered = ownership_.scattered(rank, buffer);
      result.cuts.push_back(scattered ? scattered->cut : calls_.layout(step, rank, n).cuts[i]);
      if (!viewed) continue;
      const std::int64_t numel = schedule_->model.local(rank).buffers[at(buffer)].numel;
      result.call.owned.push_back(scattered && scattered->view ? *scattered->view : unite(Intervals{{0, numel}}, {}));
    }
  }
  return result;
}

void Walk::collective(int rank, const Position& position, const std::vector<int>& buffers, std::size_t time) {
  const Step& step = *position.step;
  const int group = meetings_.group_of(step, rank);
  RankState& state = ranks_[at(rank)];
  MemberCall call = member_call(rank, position, buffers, group);
  if (meetings_.members(group).size() == 1) {
    // A group of one is the identity; a norm still counts, and a gather still finds its scatter.
    if (operation(step.op).counts) {
      Event event;
      event.op = step.op;
      event.time = static_cast<int>(time);
      event.optimizer_step = position.optimizer_step;
      event.micro_batch = position.micro_batch;
      event.calls.push_back(std::move(call.call));
      timeline_->events.push_back(std::move(event));
    } else if (operation(step.op).ownership == Operation::Ownership::intersects_own_slice) {
      for (std::size_t i = 0; i < buffers.size(); ++i) {
        ownership_.scatter(rank, buffers[i], {&step, group, call.cuts[i], std::nullopt});
      }
    }
    return;
  }
  Meeting& meeting = meetings_.arrive(group, rank, std::move(call));
  if (step.async) {
    state.in_flight.back().meeting = &meeting;
  } else {
    state.waits_in = &step;
    state.meeting = &meeting;
    meeting.blocked.push_back(rank);
  }
  if (meeting.missing == 0) complete(meeting, time);
}

void Walk::complete(Meeting& meeting, std::size_t time) {
  const std::vector<int>& ranks = meetings_.members(meeting.group);
  const std::string why = disagreement(*schedule_, meeting);
  Outcome& outcome = timeline_->outcome;
  const MemberCall& first = *meeting.members.front();
  if (!why.empty()) {
    if (outcome.kind == Outcome::Kind::race) return;  // a race was met at this time, and a race comes first
    if (outcome.kind == Outcome::Kind::complete) outcome.optimizer_step = first.call.optimizer_step;
    outcome.kind = Outcome::Kind::invalid_collective;
    if (outcome.why.empty()) outcome.why = why;
    for (const auto& member : meeting.members) {
      outcome.optimizer_step = std::min(outcome.optimizer_step, member->call.optimizer_step);
      Outcome::MemberCall call{member->call.rank, member->call.step->name, {}, describe(*schedule_, *member)};
      for (int other : ranks) {
        if (other != member->call.rank) call.with.push_back(other);
      }
      outcome.member_calls.push_back(std::move(call));
    }
    return;  // its members stay where they are: the run ends at this time
  }
  Event event;
  event.op = first.call.step->op;
  event.time = static_cast<int>(time);
  event.optimizer_step = first.call.optimizer_step;
  event.micro_batch = first.micro_batch;
  event.average = first.call.step->reduction == Reduction::average;
  event.root = first.root;
  event.cuts = first.cuts;
  for (auto& member : meeting.members) event.calls.push_back(std::move(member->call));
  std::optional<std::size_t> number;
  const Operation& row = operation(event.op);
  if (row.touches()) {
    number = timeline_->events.size();
    timeline_->events.push_back(std::move(event));
    if (row.changes()) apply_ownership(timeline_->events.back(), meeting.group);
  }
  for (int rank : ranks) {
    for (InFlight& flight : ranks_[at(rank)].in_flight) {
      if (flight.meeting != &meeting) continue;
      flight.meeting = nullptr;
      flight.event = number;
    }
  }
  for (int rank : meeting.blocked) {
    RankState& state = ranks_[at(rank)];
    state.waits_in = nullptr;
    state.meeting = nullptr;
    if (state.passing) {
      state.passing->event = number;
      passed(rank, *state.passing);
      state.passing.reset();
    }
    ready_.push(rank);
  }
  meetings_.finish(meeting);
}

void Walk::apply_ownership(const Event& event, int group) {
  const Operation& row = operation(event.op);
  const std::size_t positions = event.calls.front().buffers->size();
  for (std::size_t i = 0; i < positions; ++i) {
    std::vector<int> ranks, buffers;
    for (std::size_t member = 0; member < event.calls.size(); ++member) {
      const Call& call = event.calls[member];
      const int buffer = (*call.buffers)[i];
      const std::int64_t numel = schedule_->model.local(call.rank).buffers[at(buffer)].numel;
      const Intervals view = call.owned.empty() ? unite(Intervals{{0, numel}}, {}) : call.owned[i];
      ranks.push_back(call.rank);
      buffers.push_back(buffer);
      if (row.ownership == Operation::Ownership::intersects_own_slice) {
        std::optional<Intervals> cut_view;
        if (!call.owned.empty()) cut_view = view;
        ownership_.scatter(call.rank, buffer, {call.step, group, event.cuts[i], cut_view});
      }
      if (row.ownership == Operation::Ownership::keeps) continue;
      OwningMember owner{ownership_.owned(call.rank, buffer), view, event.cuts.empty() ? nullptr : &event.cuts[i],
                         static_cast<int>(member), static_cast<int>(member) == event.root};
      change(call.rank, buffer, owned_after(row, owner));
    }
    if (row.joins_family) {
      std::vector<int> steps;
      for (const Call& call : event.calls) steps.push_back(call.optimizer_step);
      ownership_.join(steps, ranks, buffers);
    }
  }
}

}  // namespace lockstep::schedule
