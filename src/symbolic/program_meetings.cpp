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
#include "src/symbolic/program_operations.h"

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

GroupPositions::GroupPositions(const RankPrograms& programs) : programs_(programs), sorted_(programs.members.size()) {
  for (std::size_t group = 0; group < sorted_.size(); ++group) {
    const std::vector<int>& members = programs.members[group];
    if (std::is_sorted(members.begin(), members.end())) continue;
    for (std::size_t i = 0; i < members.size(); ++i) sorted_[group].emplace_back(members[i], i);
    std::sort(sorted_[group].begin(), sorted_[group].end());
  }
}

std::size_t GroupPositions::of(int group, int rank) const {
  const auto& sorted = sorted_[at(group)];
  if (!sorted.empty()) return std::lower_bound(sorted.begin(), sorted.end(), std::pair(rank, std::size_t{0}))->second;
  const std::vector<int>& members = programs_.members[at(group)];
  return static_cast<std::size_t>(std::lower_bound(members.begin(), members.end(), rank) - members.begin());
}

namespace {

using Parts = ProgramOperation::Parts;
using Brings = ProgramOperation::Brings;

/// Says why calls that came together are no collective. Members of one program make one call, which is looked at once.
class MeetingCheck {
 public:
  MeetingCheck(const RankPrograms& programs, const Meeting& meeting)
      : programs_(programs), meeting_(meeting), ranks_(meeting.ranks(programs)), members_(ranks_.size()) {}

  std::string run() {
    for (std::size_t i = 0; i < members_; ++i) {
      const ProgramCall& own = call(i);
      std::vector<std::size_t>& positions = positions_[{programs_.program_of[at(ranks_[i])], meeting_.calls[i]}];
      positions.push_back(i);
      if (positions.size() == 1) {
        if (const std::string part = differs(call(0), own); !part.empty())
          return fmt::format("ranks {} and {} call it with different {}", ranks_[0], ranks_[i], part);
      }
      if (positions.size() == 1 || static_cast<int>(i) == own.root) {
        if (std::string what = wrong_splits(i); !what.empty()) return what;
      }
      if (std::string what = wrong_part(i); !what.empty()) return what;
    }
    if (program_operation(call(0).op).brings == Brings::part_of_each && !all_pairs_agree()) return wrong_pair();
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
    const ProgramOperation& row = program_operation(one.op);
    if (row.in_pairs) {
      if (one.dtype != other.dtype) return "types";
      return one.elements != other.elements ? "numbers of elements" : "";
    }
    if (one.op != other.op) return "operations";
    if (one.dtype != other.dtype) return "types";
    if (one.reduce != other.reduce || one.factor != other.factor) return "reductions";
    if (one.root != other.root) return "roots";
    if (row.even && one.elements != other.elements) return "numbers of elements";
    if (row.own_splits) return "";
    return one.input_splits != other.input_splits || one.output_splits != other.output_splits ? "splits" : "";
  }

  std::string wrong_splits(std::size_t i) const {
    const ProgramCall& own = call(i);
    const auto all = static_cast<std::int64_t>(members_);
    const Parts parts = program_operation(own.op).parts;
    const bool falls_apart =
        parts == Parts::of_each || (parts == Parts::of_the_root && static_cast<int>(i) == own.root);
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
    return "";
  }

  std::string wrong_part(std::size_t i) const {
    const ProgramCall& own = call(i);
    if (own.op != ProgramOp::all_gather) return "";
    const std::int64_t expected = own.output_splits.empty() ? call(0).elements : own.output_splits[i];
    if (own.elements == expected) return "";
    return fmt::format("rank {} puts in {}, and {} were to be gathered from it", ranks_[i],
                       counted(own.elements, "element"), expected);
  }

  std::int64_t sent(const ProgramCall& one, std::size_t to) const {
    return part_at(one.input_splits, one.elements, members_, to);
  }

  /// Whether the members of an all-to-all agree on what they send each other. Between those that make one call and
  /// those that make another it is as much for all of them.
  bool all_pairs_agree() const {
    for (const auto& [taking, takers] : positions_) {
      const std::vector<std::int64_t>& taken = call(takers.front()).output_splits;
      if (taken.empty()) continue;
      for (const auto& [sending, senders] : positions_) {
        const ProgramCall& source = call(senders.front());
        Budget::spend(1 + static_cast<std::int64_t>((takers.size() + senders.size()) / 8));
        const std::int64_t each = sent(source, takers.front());
        const bool agree =
            std::all_of(takers.begin(), takers.end(), [&](std::size_t to) { return sent(source, to) == each; }) &&
            std::all_of(senders.begin(), senders.end(), [&](std::size_t from) { return taken[from] == each; });
        if (!agree) return false;
      }
    }
    return true;
  }

  /// The first two members of an all-to-all that do not agree.
  std::string wrong_pair() const {
    for (std::size_t i = 0; i < members_; ++i) {
      const ProgramCall& own = call(i);
      if (own.output_splits.empty()) continue;
      Budget::spend(1 + static_cast<std::int64_t>(members_ / 8));
      for (std::size_t j = 0; j < members_; ++j) {
        const std::int64_t sent = this->sent(call(j), i);
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
    switch (program_operation(own.op).brings) {
      case Brings::what_goes_in:
        break;
      case Brings::own_part:
        return sent(own, i);
      case Brings::all_inputs:
        return elements_;
      case Brings::part_of_the_root:
        return sent(call(at(own.root)), i);
      case Brings::part_of_each:
        for (const auto& [sending, senders] : positions_) sum += std::ssize(senders) * sent(call(senders.front()), i);
        return sum;
    }
    return own.elements;
  }

  std::string wrong_output(std::size_t i) const {
    const ProgramCall& own = call(i);
    if (own.output < 0) return "";
    const std::int64_t taken = programs_.of(ranks_[i]).sources[at(own.output)].elements, all = brought(i);
    const bool is_given_nothing = own.op == ProgramOp::gather && at(own.root) != i;
    if (taken == all || (taken == 0 && is_given_nothing)) return "";
    return fmt::format("rank {} takes {} of it, and it brings {}", ranks_[i], counted(taken, "element"), all);
  }

  const RankPrograms& programs_;
  const Meeting& meeting_;
  const std::vector<int>& ranks_;
  std::size_t members_;
  // Of those that make one call: the number of the program and of the call in it, which order them on every machine
  // alike.
  std::map<std::pair<int, std::size_t>, std::vector<std::size_t>> positions_;
  std::int64_t elements_ = 0;  // that all put in
};

class Matcher {
 public:
  explicit Matcher(const RankPrograms& programs)
      : programs_(programs), positions_(programs), ranks_(at(programs.world())) {
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
    if (program_operation(call.op).in_pairs) {
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
    const std::size_t position = positions_.of(group, rank);
    std::size_t& next = next_in_group_[at(group)][position];
    if (next == of_group_[at(group)].size())
      of_group_[at(group)].push_back(add(group, next, programs_.members[at(group)].size()));
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

  /// Goes from meeting to meeting in which ranks wait: from each to those in which its absent members do.
  void find_stuck() {
    struct Visit {
      int meeting = 0;
      int rank = 0;              // who waits there, as the meeting before says
      std::size_t position = 0;  // of the next member to be looked at
      int missing = 0;           // who is waited for in the next visit
    };
    std::vector<char> seen(result_.all.size(), 0);  // 1: on the way; 2: none of a circle
    for (int first = 0; first < programs_.world(); ++first) {
      std::vector<Visit> way;
      if (ranks_[at(first)].waits_for >= 0) way.push_back({ranks_[at(first)].waits_for, first, 0, 0});
      while (!way.empty()) {
        Visit& own = way.back();
        const Meeting& meeting = result_.all[at(own.meeting)];
        if (seen[at(own.meeting)] == 2 || own.position == meeting.calls.size()) {
          seen[at(own.meeting)] = 2;
          way.pop_back();
          continue;
        }
        seen[at(own.meeting)] = 1;
        const std::size_t position = own.position++;
        if (meeting.calls[position] >= 0) continue;
        own.missing = meeting.ranks(programs_)[position];
        const int next = ranks_[at(own.missing)].waits_for;
        if (next < 0) {
          if (result_.stuck.empty()) result_.stuck = {{own.rank, ranks_[at(own.rank)].waiting_call, own.missing, true}};
        } else if (seen[at(next)] == 0) {
          way.push_back({next, own.missing, 0, 0});
        } else if (seen[at(next)] == 1) {
          auto begin = std::find_if(way.begin(), way.end(), [&](const Visit& one) { return one.meeting == next; });
          begin->rank = own.missing;
          result_.stuck.clear();
          for (; begin != way.end(); ++begin)
            result_.stuck.push_back({begin->rank, ranks_[at(begin->rank)].waiting_call, begin->missing, false});
          return;
        }
      }
    }
  }

  struct Pair {
    std::vector<int> meetings;
    std::size_t sent = 0, received = 0;
  };

  const RankPrograms& programs_;
  GroupPositions positions_;
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
