// SPDX-License-Identifier: Apache-2.0
#include "src/transformer/runtime.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <deque>

#include "src/base/at.h"
#include "src/transformer/collectives.h"

namespace lockstep::transformer {

struct Runtime::Meeting {
  std::vector<int> arrived;  ///< positions in the group
};

struct Runtime::Rank {
  std::coroutine_handle<> here;  ///< where it goes on
  Request request;               ///< what it waits in, where `waits`
  bool waits = false;
  Real result;
  std::vector<int>* received = nullptr;
  std::int64_t calls = 0;
};

CommunicationError::CommunicationError(Kind of_kind, const std::string& what, std::vector<Line> of_ranks)
    : std::runtime_error(what), kind(of_kind), lines(std::move(of_ranks)) {}

std::string_view name_of(Communication kind) {
  static constexpr std::string_view names[] = {"all_reduce", "all_reduce_max", "all_gather", "reduce_scatter",
                                               "all_to_all", "send",           "receive"};
  return names[static_cast<std::size_t>(kind)];
}

Runtime::Runtime(int world, std::uint64_t seed) : ranks_(static_cast<std::size_t>(world)), state_(seed) {}
Runtime::~Runtime() = default;

void Runtime::run(const std::function<Task<>(int rank)>& program) {
  std::vector<Task<>> tasks;
  for (int rank = 0; rank < static_cast<int>(ranks_.size()); ++rank) {
    tasks.push_back(program(rank));
    ranks_[at(rank)].here = tasks.back().frame();
    make_ready(rank);
  }
  while (!ready_.empty()) {
    const int rank = next_ready();
    ranks_[at(rank)].here.resume();
    if (tasks[at(rank)].done()) tasks[at(rank)].rethrow();
  }
  const bool all_done = std::all_of(tasks.begin(), tasks.end(), [](const Task<>& task) { return task.done(); });
  if (!all_done) report_stuck();
  report_unmatched();
}

Runtime::Communicate Runtime::communicate(int rank, Request request, std::vector<int>* received) {
  return {*this, rank, std::move(request), received};
}

void Runtime::Communicate::await_suspend(std::coroutine_handle<> here) {
  runtime_.ranks_[at(rank_)].here = here;
  runtime_.begin(rank_, std::move(request_), received_);
}

Real Runtime::Communicate::await_resume() { return std::move(runtime_.ranks_[at(rank_)].result); }

void Runtime::make_ready(int rank) { ready_.push_back(rank); }

// Any order will do. The seed picks one, and tests try several.
int Runtime::next_ready() {
  state_ = state_ * 6364136223846793005u + 1442695040888963407u;
  const std::size_t chosen = static_cast<std::size_t>(state_ >> 33) % ready_.size();
  const int rank = ready_[chosen];
  ready_[chosen] = ready_.back();
  ready_.pop_back();
  return rank;
}

void Runtime::begin(int rank, Request request, std::vector<int>* received) {
  Rank& state = ranks_[at(rank)];
  state.request = std::move(request);
  state.received = received;
  state.waits = true;
  ++state.calls;
  ++communications_;
  const bool is_message = state.request.kind == Communication::send || state.request.kind == Communication::receive;
  is_message ? message(rank) : meet(rank);
}

void Runtime::message(int rank) {
  Rank& state = ranks_[at(rank)];
  if (state.request.kind == Communication::send) {
    const int peer = state.request.peer;
    const int channel = state.request.channel;
    messages_[{rank, peer, channel}].push_back(std::move(state.request));
    state.waits = false;
    state.result = {};
    make_ready(rank);
    const Rank& other = ranks_[at(peer)];
    if (!other.waits || other.request.kind != Communication::receive || other.request.peer != rank ||
        other.request.channel != channel)
      return;
    rank = peer;
  }
  Rank& receiver = ranks_[at(rank)];
  const auto found = messages_.find({receiver.request.peer, rank, receiver.request.channel});
  if (found == messages_.end()) return;
  Request& sent = found->second.front();
  if (sent.site != receiver.request.site) {
    const int sender = receiver.request.peer;
    throw CommunicationError(
        CommunicationError::Kind::mismatch,
        fmt::format("rank {} receives {} and rank {} sent {}: messages between two ranks arrive in the order in which "
                    "they were sent",
                    rank, receiver.request.site, sender, sent.site),
        {{sender, describe(sent), ranks_[at(sender)].calls, {}},
         {rank, describe(receiver.request), receiver.calls, {}}});
  }
  receiver.result = std::move(sent.tensor);
  found->second.erase(found->second.begin());
  if (found->second.empty()) messages_.erase(found);
  receiver.waits = false;
  make_ready(rank);
}

void Runtime::meet(int rank) {
  const std::vector<int> group = ranks_[at(rank)].request.group;
  const auto member = std::lower_bound(group.begin(), group.end(), rank);
  if (member == group.end() || *member != rank)
    throw std::logic_error(fmt::format("rank {} calls a collective of a group without it", rank));
  std::unique_ptr<Meeting>& meeting = meetings_[group];
  if (!meeting) meeting = std::make_unique<Meeting>();
  meeting->arrived.push_back(static_cast<int>(member - group.begin()));
  const Request& mine = ranks_[at(rank)].request;
  const int first = group[at(meeting->arrived.front())];
  if (!agree(ranks_[at(first)].request, mine)) report_mismatch(group, *meeting);
  if (meeting->arrived.size() < group.size()) return;
  finish(group, *meeting);
  meetings_.erase(group);
}

void Runtime::finish(const std::vector<int>& group, Meeting&) {
  std::vector<const Request*> requests;
  for (const int member : group) requests.push_back(&ranks_[at(member)].request);
  std::vector<std::vector<int>> received(group.size());
  std::vector<Real> results = perform(requests, received);
  for (std::size_t i = 0; i < group.size(); ++i) {
    Rank& state = ranks_[at(group[i])];
    state.result = std::move(results[i]);
    if (state.received != nullptr) *state.received = std::move(received[i]);
    state.waits = false;
    make_ready(group[i]);
  }
}

void Runtime::report_mismatch(const std::vector<int>& group, const Meeting& meeting) const {
  std::vector<CommunicationError::Line> lines;
  for (const int position : meeting.arrived) {
    const int rank = group[at(position)];
    const Rank& state = ranks_[at(rank)];
    lines.push_back({rank, describe(state.request), state.calls, {}});
  }
  throw CommunicationError(CommunicationError::Kind::mismatch,
                           fmt::format("rank {} calls {} where rank {} of its group calls {}", lines.back().rank,
                                       lines.back().calls, lines.front().rank, lines.front().calls),
                           lines);
}

void Runtime::report_stuck() const {
  std::vector<CommunicationError::Line> lines;
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    const Rank& state = ranks_[rank];
    if (!state.waits) continue;
    CommunicationError::Line line{static_cast<int>(rank), describe(state.request), state.calls, {}};
    if (state.request.kind == Communication::receive) {
      line.waits_for = {state.request.peer};
    } else {
      const std::vector<int>& arrived = meetings_.at(state.request.group)->arrived;
      for (std::size_t i = 0; i < state.request.group.size(); ++i) {
        if (std::find(arrived.begin(), arrived.end(), static_cast<int>(i)) == arrived.end())
          line.waits_for.push_back(state.request.group[i]);
      }
    }
    lines.push_back(std::move(line));
  }
  const CommunicationError::Line& first = lines.front();
  // A receive says itself from whom.
  const std::string for_whom =
      ranks_[at(first.rank)].request.kind == Communication::receive
          ? ""
          : fmt::format(" for rank{} {}", first.waits_for.size() == 1 ? "" : "s", fmt::join(first.waits_for, ", "));
  throw CommunicationError(
      CommunicationError::Kind::deadlock,
      fmt::format("{} {} for others that never come: rank {} in {}{}", lines.size(),
                  lines.size() == 1 ? "rank waits" : "ranks wait", first.rank, first.calls, for_whom),
      lines);
}

void Runtime::report_unmatched() const {
  if (messages_.empty()) return;
  std::vector<CommunicationError::Line> lines;
  for (const auto& [from_to, sent] : messages_) {
    const int from = from_to[0];
    for (const Request& request : sent)
      lines.push_back({from, describe(request), ranks_[at(from)].calls, {from_to[1]}});
  }
  throw CommunicationError(CommunicationError::Kind::unmatched,
                           fmt::format("rank {} never received what rank {} sent: {}", lines.front().waits_for.front(),
                                       lines.front().rank, lines.front().calls),
                           lines);
}

}  // namespace lockstep::transformer
