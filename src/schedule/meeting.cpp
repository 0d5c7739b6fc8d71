// SPDX-License-Identifier: Apache-2.0
#include "src/schedule/meeting.h"

#include <algorithm>

#include "src/base/at.h"
#include "src/base/counted.h"

namespace lockstep::schedule {

namespace {

std::int64_t elements(const Schedule& schedule, const Call& call, std::size_t position) {
  if (!call.owned.empty()) return size(call.owned[position]);
  const int buffer = (*call.buffers)[position];
  return schedule.model.local(call.rank).buffers[at(buffer)].numel;
}

Dtype dtype_of(const Schedule& schedule, const Call& call, std::size_t position) {
  const int buffer = (*call.buffers)[position];
  return schedule.model.local(call.rank).buffers[at(buffer)].dtype;
}

bool moves_data(Op op) { return operation(op).writes != Operation::Writes::nothing; }

}  // namespace

int Meetings::group_of(const Step& step, int rank) {
  const std::vector<int>*& by_rank = of_step_[&step];
  if (by_rank == nullptr) by_rank = &memory_->groups_of(step.over.value_or(Over{}));
  return (*by_rank)[at(rank)];
}

Meeting& Meetings::arrive(int group, int rank, MemberCall call) {
  const std::vector<int>& ranks = members(group);
  const auto member = static_cast<std::size_t>(std::lower_bound(ranks.begin(), ranks.end(), rank) - ranks.begin());
  while (groups_.size() <= at(group)) groups_.emplace_back();
  Group& state = groups_[at(group)];
  if (state.next.empty()) state.next.assign(ranks.size(), 0);
  const std::size_t number = state.next[member]++ - state.first;
  while (state.open.size() <= number) {
    Meeting& fresh = state.open.emplace_back();
    fresh.group = group;
    fresh.members.resize(ranks.size());
    fresh.missing = static_cast<int>(ranks.size());
  }
  Meeting& meeting = state.open[number];
  meeting.members[member] = std::move(call);
  --meeting.missing;
  return meeting;
}

// Meetings of one group complete in order: every member calls them in order.
void Meetings::finish(Meeting& meeting) {
  Group& state = groups_[at(meeting.group)];
  if (&state.open.front() != &meeting) throw InternalError("a collective completed before an earlier one of its group");
  state.open.pop_front();
  ++state.first;
}

std::string describe(const Schedule& schedule, const MemberCall& call) {
  const Step& step = *call.call.step;
  std::string text(operation(step.op).name);
  if (!moves_data(step.op)) return text;
  if (operation(step.op).value == Operation::Value::reduction)
    text += step.reduction == Reduction::average ? " (avg)" : " (sum)";
  std::int64_t total = 0;
  for (std::size_t i = 0; i < call.call.buffers->size(); ++i) total += elements(schedule, call.call, i);
  const std::size_t count = call.call.buffers->size();
  text += " of " + counted(count, "parameter") + ", " + counted(total, "element");
  if (count > 0) text += ", " + std::string(name_of(dtype_of(schedule, call.call, 0)));
  if (call.root >= 0) text += ", root " + std::to_string(call.root);
  return text;
}

std::string disagreement(const Schedule& schedule, const Meeting& meeting) {
  const MemberCall& first = *meeting.members.front();
  const Op op = first.call.step->op;
  for (const auto& member : meeting.members) {
    if (member->call.step->op != op) return "different operations meet";
  }
  if (!moves_data(op)) return "";
  const bool reduces = operation(op).value == Operation::Value::reduction;
  for (const auto& member : meeting.members) {
    if (reduces && member->call.step->reduction != first.call.step->reduction) return "sum meets avg";
    if (member->root != first.root) return "the members name different roots";
    if (member->call.buffers->size() != first.call.buffers->size())
      return "the members bring different numbers of parameters";
    for (std::size_t i = 0; i < first.call.buffers->size(); ++i) {
      if (elements(schedule, member->call, i) != elements(schedule, first.call, i)) {
        return "parameter " + std::to_string(i + 1) + " differs in size";
      }
      if (dtype_of(schedule, member->call, i) != dtype_of(schedule, first.call, i)) {
        return "parameter " + std::to_string(i + 1) + " differs in dtype";
      }
    }
    if (member->cuts != first.cuts) return "the members cut the parameters differently";
  }
  return "";
}

}  // namespace lockstep::schedule
