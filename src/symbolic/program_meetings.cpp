// SPDX-License-Identifier: Apache-2.0
#include "src/symbolic/program_meetings.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "src/base/at.h"
#include "src/base/budget.h"
#include "src/base/counted.h"

namespace lockstep::symbolic {

std::vector<int> calls_read(const RankProgram& program, const ProgramContent& content) {
  std::vector<int> calls;
  for (const ContentPart& part : content) {
    for (const SourceTerm& term : part.terms) {
      const int call = program.sources[at(term.source)].call;
      if (call >= 0) calls.push_back(call);
    }
  }
  std::sort(calls.begin(), calls.end());
  calls.erase(std::unique(calls.begin(), calls.end()), calls.end());
  return calls;
}

namespace {

bool goes_in_pairs(ProgramOp op) { return op == ProgramOp::send || op == ProgramOp::recv; }

/// Of the parts into which what a member puts in, or gets, falls: the one at a position.
std::int64_t part_of(const std::vector<std::int64_t>& splits, std::int64_t whole, std::size_t members,
                     std::size_t position) {
  return splits.empty() ? whole / static_cast<std::int64_t>(members) : splits[position];
}

/// Says why calls that came together are no collective.
class MeetingCheck {
 public:
  MeetingCheck(const RankPrograms& programs, const Meeting& meeting)
      : programs_(programs), meeting_(meeting), ranks_(meeting.ranks(programs)), members_(ranks_.size()) {}

  std::string run() {
    for (std::size_t i = 0; i < members_; ++i) {
      if (const std::string part = differs(call(0), call(i)); !part.empty())
        return fmt::format("ranks {} and {} call it with different {}", ranks_[0], ranks_[i], part);
      if (std::string what = wrong_splits(i); !what.empty()) return what;
    }
    if (call(0).op == ProgramOp::all_to_all) {
      if (std::string what = wrong_pair(); !what.empty()) return what;
    }
    for (std::size_t i = 0; i < members_; ++i) elements_ += call(i).elements;
    for (std::size_t i = 0; i < members_; ++i) {
      if (std::string what = wrong_output(i); !what.empty()) return what;
    }
    return "";
  }

 private:
  const ProgramCall& call(std::size_t position) const {
    return programs_.of(ranks_[position]).calls[at(meeting_.calls[position])];
  }

  static std::string differs(const ProgramCall& one, const ProgramCall& other) {
    if (goes_in_pairs(one.op)) {
      if (one.dtype != other.dtype) return "types";
      return one.elements != other.elements ? "numbers of elements" : "";
    }
    if (one.op != other.op) return "operations";
    if (one.dtype != other.dtype) return "types";
    if (one.reduce != other.reduce || one.factor != other.factor) return "reductions";
    if (one.root != other.root) return "roots";
    const bool is_even = one.op == ProgramOp::all_reduce || one.op == ProgramOp::reduce ||
                         one.op == ProgramOp::reduce_scatter || one.op == ProgramOp::broadcast;
    if (is_even && one.elements != other.elements) return "numbers of elements";
    // Each has splits of its own.
    if (one.op == ProgramOp::all_to_all || one.op == ProgramOp::scatter) return "";
    return one.input_splits != other.input_splits || one.output_splits != other.output_splits ? "splits" : "";
  }

  std::string wrong_splits(std::size_t i) const {
    const ProgramCall& own = call(i);
    const auto all = static_cast<std::int64_t>(members_);
    const bool falls_apart = own.op == ProgramOp::reduce_scatter || own.op == ProgramOp::all_to_all ||
                             (own.op == ProgramOp::scatter && static_cast<int>(i) == own.root);
    const std::vector<std::int64_t>& splits = own.input_splits;
    const bool fits = splits.empty() ? own.elements % all == 0
                                     : splits.size() == members_ && std::accumulate(splits.begin(), splits.end(),
                                                                                    std::int64_t{0}) == own.elements;
    if (falls_apart && !fits)
      return fmt::format("rank {} puts in {}, which do not fall into {}", ranks_[i], counted(own.elements, "element"),
                         counted(all, "part"));
    if (!own.output_splits.empty() && own.output_splits.size() != members_)
      return fmt::format("rank {} has {} for {}", ranks_[i], counted(own.output_splits.size(), "split"),
                         counted(all, "member"));
    if (own.op != ProgramOp::all_gather) return "";
    const std::int64_t expected = own.output_splits.empty() ? call(0).elements : own.output_splits[i];
    if (own.elements == expected) return "";
    return fmt::format("rank {} puts in {}, and {} were to be gathered from it", ranks_[i],
                       counted(own.elements, "element"), expected);
  }

  /// Of an all-to-all: two members that do not agree on what one sends the other.
  std::string wrong_pair() const {
    for (std::size_t i = 0; i < members_; ++i) {
      const ProgramCall& own = call(i);
      if (own.output_splits.empty()) continue;
      for (std::size_t j = 0; j < members_; ++j) {
        const std::int64_t sent = part_of(call(j).input_splits, call(j).elements, members_, i);
        if (sent != own.output_splits[j])
          return fmt::format("rank {} sends {} to rank {}, which takes {}", ranks_[j], counted(sent, "element"),
                             ranks_[i], own.output_splits[j]);
      }
    }
    return "";
  }

  /// Elements that a member gets.
  std::int64_t brought(std::size_t i) const {
    const ProgramCall& own = call(i);
    std::int64_t sum = 0;
    switch (own.op) {
      case ProgramOp::reduce_scatter:
        return part_of(own.input_splits, own.elements, members_, i);
      case ProgramOp::all_gather:
      case ProgramOp::gather:
        return elements_;
      case ProgramOp::scatter:
        return part_of(call(at(own.root)).input_splits, call(at(own.root)).elements, members_, i);
      case ProgramOp::all_to_all:
        for (std::size_t j = 0; j < members_; ++j) sum += part_of(call(j).input_splits, call(j).elements, members_, i);
        return sum;
      default:
        return own.elements;
    }
  }

  std::string wrong_output(std::size_t i) const {
    const ProgramCall& own = call(i);
    if (own.output < 0) return "";
    const std::int64_t taken = programs_.of(ranks_[i]).sources[at(own.output)].elements, all = brought(i);
    if (taken == all) return "";
    return fmt::format("rank {} takes {} of it, and it brings {}", ranks_[i], counted(taken, "element"), all);
  }

  const RankPrograms& programs_;
  const Meeting& meeting_;
  const std::vector<int>& ranks_;
  std::size_t members_;
  std::int64_t elements_ = 0;  // that all put in
};

class Matcher {
 public:
  explicit Matcher(const RankPrograms& programs) : programs_(programs), ranks_(at(programs.world())) {
    for (const RankProgram& program : programs.programs) reads_.push_back(reads_of(program));
    result_.of_rank.resize(ranks_.size());
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      const std::size_t calls = programs.of(static_cast<int>(rank)).calls.size();
      Budget::spend(1 + static_cast<std::int64_t>(calls));
      result_.of_rank[rank].assign(calls, -1);
    }
    of_group_.resize(programs.members.size());
    next_in_group_.resize(programs.members.size());
    for (std::size_t group = 0; group < programs.members.size(); ++group)
      next_in_group_[group].assign(programs.members[group].size(), 0);
  }

  Meetings run() {
    for (int rank = 0; rank < programs_.world(); ++rank) ready_.push_back(rank);
    while (!ready_.empty()) {
      const int rank = ready_.back();
      ready_.pop_back();
      go_on(rank);
    }
    find_stuck();
    return std::move(result_);
  }

 private:
  struct Running {
    std::size_t next = 0;   // in the program's order
    int waits_for = -1;     // meeting
    int waiting_call = -1;  // its own call there
  };

  /// By place in the program's order: the calls whose outputs are read there.
  static std::vector<std::vector<int>> reads_of(const RankProgram& program) {
    std::vector<std::vector<int>> reads;
    reads.reserve(program.order.size());
    for (const int item : program.order)
      reads.push_back(calls_read(program, item < 0 ? program.results[at(~item)] : program.calls[at(item)].input));
    return reads;
  }

  bool completes(int rank, int call) {
    if (result_.reached(rank, call)) return true;
    Running& own = ranks_[at(rank)];
    own.waits_for = result_.of_rank[at(rank)][at(call)];
    own.waiting_call = call;
    waiting_[own.waits_for].push_back(rank);
    return false;
  }

  void go_on(int rank) {
    const RankProgram& program = programs_.of(rank);
    const std::vector<std::vector<int>>& reads = reads_[at(programs_.program_of[at(rank)])];
    Running& own = ranks_[at(rank)];
    own.waits_for = -1;
    for (; own.next < program.order.size(); ++own.next) {
      const int item = program.order[own.next];
      const bool is_issued = item >= 0 && result_.of_rank[at(rank)][at(item)] >= 0;
      if (!is_issued) {
        for (const int call : reads[own.next]) {
          if (!completes(rank, call)) return;
        }
      }
      if (item < 0) continue;
      if (!is_issued) arrive(rank, item);
      if (!program.calls[at(item)].async && !completes(rank, item)) return;
    }
  }

  int meeting_for(int rank, int number) {
    const ProgramCall& call = programs_.of(rank).calls[at(number)];
    if (goes_in_pairs(call.op)) {
      const bool sends = call.op == ProgramOp::send;
      const std::pair<int, int> pair =
          sends ? std::pair(rank, call.peer.on(rank)) : std::pair(call.peer.on(rank), rank);
      Pair& of_pair = pairs_[pair];
      std::size_t& next = sends ? of_pair.sent : of_pair.received;
      if (next == of_pair.meetings.size()) {
        of_pair.meetings.push_back(add(-1, next, 2));
        result_.all.back().pair = {pair.first, pair.second};
      }
      const int meeting = of_pair.meetings[next++];
      result_.all[at(meeting)].calls[sends ? 0 : 1] = number;
      return meeting;
    }
    const int group = programs_.groups[at(call.group)].on(rank);
    const std::vector<int>& members = programs_.members[at(group)];
    const auto position = static_cast<std::size_t>(std::find(members.begin(), members.end(), rank) - members.begin());
    std::size_t& next = next_in_group_[at(group)][position];
    if (next == of_group_[at(group)].size()) of_group_[at(group)].push_back(add(group, next, members.size()));
    const int meeting = of_group_[at(group)][next++];
    result_.all[at(meeting)].calls[position] = number;
    return meeting;
  }

  int add(int group, std::size_t before, std::size_t members) {
    Meeting meeting;
    meeting.group = group;
    meeting.number = static_cast<std::int64_t>(before) + 1;
    meeting.calls.assign(members, -1);
    result_.all.push_back(std::move(meeting));
    return static_cast<int>(result_.all.size()) - 1;
  }

  void arrive(int rank, int call) {
    Budget::spend(2);
    const int number = meeting_for(rank, call);
    result_.of_rank[at(rank)][at(call)] = number;
    Meeting& meeting = result_.all[at(number)];
    ++meeting.arrived;
    if (!meeting.complete()) return;
    meeting.wrong = MeetingCheck(programs_, meeting).run();
    result_.order.push_back(number);
    const auto found = waiting_.find(number);
    if (found == waiting_.end()) return;
    ready_.insert(ready_.end(), found->second.begin(), found->second.end());
    waiting_.erase(found);
  }

  /// Follows who waits for whom from the first rank that does not end.
  void find_stuck() {
    int rank = 0;
    while (rank < programs_.world() && ranks_[at(rank)].waits_for < 0) ++rank;
    if (rank == programs_.world()) return;
    std::map<int, std::size_t> seen;
    std::vector<StuckRank> chain;
    while (seen.try_emplace(rank, chain.size()).second) {
      const Running& own = ranks_[at(rank)];
      const Meeting& meeting = result_.all[at(own.waits_for)];
      const auto absent = std::find(meeting.calls.begin(), meeting.calls.end(), -1) - meeting.calls.begin();
      const int missing = meeting.ranks(programs_)[at(absent)];
      const bool ended = ranks_[at(missing)].waits_for < 0;
      chain.push_back({rank, own.waiting_call, missing, ended});
      if (ended) {
        result_.stuck = {chain.back()};
        return;
      }
      rank = missing;
    }
    result_.stuck.assign(chain.begin() + static_cast<std::ptrdiff_t>(seen.at(rank)), chain.end());
  }

  struct Pair {
    std::vector<int> meetings;
    std::size_t sent = 0, received = 0;
  };

  const RankPrograms& programs_;
  std::vector<Running> ranks_;
  std::vector<std::vector<std::vector<int>>> reads_;     // by program
  std::vector<std::vector<int>> of_group_;               // meetings in their order
  std::vector<std::vector<std::size_t>> next_in_group_;  // by position
  std::map<std::pair<int, int>, Pair> pairs_;
  std::map<int, std::vector<int>> waiting_;  // ranks by meeting
  std::vector<int> ready_;
  Meetings result_;
};

}  // namespace

Meetings match_calls(const RankPrograms& programs) { return Matcher(programs).run(); }

}  // namespace lockstep::symbolic
