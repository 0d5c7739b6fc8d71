// SPDX-License-Identifier: Apache-2.0
#include "src/live/extraction_order.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <limits>
#include <map>
#include <set>
#include <tuple>

#include "src/base/at.h"
#include "src/live/words.h"

namespace lockstep::live {

namespace {

using symbolic::Meeting;
using symbolic::ProgramCall;

class ExtractionOrder {
 public:
  ExtractionOrder(const Extraction& extraction, const symbolic::Meetings& meetings)
      : extraction_(extraction), programs_(extraction.programs), meetings_(meetings) {}

  CollectiveOrder run() {
    // Ranks of one program call the same: of these one speaks for all in a group.
    for (std::size_t program = 0; program < programs_.programs.size(); ++program) add_calls(static_cast<int>(program));
    for (auto& [number, group] : groups_) {
      const std::vector<int>& members = programs_.members[at(number)];
      std::vector<int> sorted = members;
      std::sort(sorted.begin(), sorted.end());
      group.group = rank_words(sorted);
      std::set<int> speak;
      for (const auto& [rank, calls] : group.calls) speak.insert(programs_.program_of[at(rank)]);
      for (const int rank : sorted) {
        if (speak.insert(programs_.program_of[at(rank)]).second) group.calls[rank];
        group.whole[rank] = last_of(rank);
        if (extraction_.details[at(programs_.program_of[at(rank)])].stopped) group.stopped.insert(rank);
      }
      const std::size_t before = order_.wrong.size();
      compare_group(group, order_);
      if (order_.wrong.size() > before) told_.insert(number);
    }
    tell_meetings();
    tell_stuck();
    return std::move(order_);
  }

 private:
  void add_calls(int program) {
    const ExtractedProgram& details = extraction_.details[at(program)];
    const std::vector<ProgramCall>& calls = programs_.programs[at(program)].calls;
    std::map<int, std::vector<int>> speakers;  // by the group that calls name: one rank in each process group
    for (std::size_t i = 0; i < calls.size(); ++i) {
      if (calls[i].group < 0) continue;
      const symbolic::ProgramGroup& group = programs_.groups[at(calls[i].group)];
      const auto [found, is_new] = speakers.try_emplace(calls[i].group);
      if (is_new) {
        std::set<int> seen;
        for (const int rank : details.ranks) {
          if (seen.insert(group.on(rank)).second) found->second.push_back(rank);
        }
      }
      for (const int rank : found->second) {
        const int number = group.on(rank);
        groups_[number].calls[rank].push_back(with_root(details.calls[i], calls[i], number));
      }
    }
  }

  /// A root may be told by its position in the group.
  const CapturedCollective* with_root(const CapturedCollective& call, const ProgramCall& own, int group) {
    if (own.root < 0 || call.root >= 0) return &call;
    CapturedCollective& copy = copies_.emplace_back(call);
    copy.root = programs_.members[at(group)][at(own.root)];
    return &copy;
  }

  /// What a rank would have called from this optimizer step on is not known.
  int last_of(int rank) const {
    const ExtractedProgram& details = extraction_.details[at(programs_.program_of[at(rank)])];
    const auto& steps = extraction_.run.ranks[at(rank)].steps;
    if (!details.stopped || steps.empty()) return std::numeric_limits<int>::max();
    return steps.rbegin()->first + (steps.rbegin()->second.complete ? 1 : 0);
  }

  const CapturedCollective& call(int rank, int number) const {
    return extraction_.details[at(programs_.program_of[at(rank)])].calls[at(number)];
  }

  /// What is no collective though all came, for other reasons than those that captures can show, and sends that nobody
  /// receives.
  void tell_meetings() {
    std::set<std::pair<int, int>> pairs;
    for (const Meeting& meeting : meetings_.all) {
      const std::vector<int>& ranks = meeting.ranks(programs_);
      const auto came = std::find_if(meeting.calls.begin(), meeting.calls.end(), [](int one) { return one >= 0; }) -
                        meeting.calls.begin();
      const CapturedCollective& own = call(ranks[at(came)], meeting.calls[at(came)]);
      const RunPlace place{ranks[at(came)], own.line};
      if (meeting.group >= 0) {
        if (meeting.wrong.empty() || !told_.insert(meeting.group).second) continue;
        const GroupCalls& group = groups_.at(meeting.group);
        order_.wrong.push_back({fmt::format("collective {} of {}, in optimizer step {}, {}: {}.", meeting.number,
                                            group.group, own.step, call_words(own), meeting.wrong),
                                place});
        continue;
      }
      if (pairs.contains({ranks[0], ranks[1]})) continue;
      if (meeting.complete() ? meeting.wrong.empty() : comes(meeting)) continue;
      if (!meeting.complete() && own.step >= last_of(ranks[came == 0 ? 1 : 0])) continue;
      pairs.emplace(ranks[0], ranks[1]);
      const std::string what = meeting.complete() ? meeting.wrong
                               : came == 0        ? fmt::format("rank {} receives nothing", ranks[1])
                                                  : fmt::format("rank {} sends nothing", ranks[0]);
      order_.wrong.push_back({fmt::format("send {} from rank {} to rank {}, in optimizer step {}, {}: {}.",
                                          meeting.number, ranks[0], ranks[1], own.step, call_words(own), what),
                              place});
    }
  }

  /// Of a send or a receive whose other rank has not come: whether it would have, had it not waited elsewhere for ever.
  bool comes(const Meeting& meeting) {
    const bool is_sent = meeting.calls[0] >= 0;
    const int absent = meeting.pair[is_sent ? 1 : 0], other = meeting.pair[is_sent ? 0 : 1];
    const symbolic::ProgramOp op = is_sent ? symbolic::ProgramOp::recv : symbolic::ProgramOp::send;
    const auto [found, is_new] = calls_of_pairs_.try_emplace({absent, other, is_sent}, 0);
    if (is_new) {
      const std::vector<ProgramCall>& calls = programs_.of(absent).calls;
      found->second = std::count_if(calls.begin(), calls.end(), [&](const ProgramCall& one) {
        return one.op == op && one.peer.on(absent) == other;
      });
    }
    return found->second >= meeting.number;
  }

  /// Ranks that wait for each other in a circle; who waits for one that has ended was told by the group.
  void tell_stuck() {
    const std::vector<symbolic::StuckRank>& stuck = meetings_.stuck;
    if (stuck.empty() || stuck.front().ended) return;
    constexpr std::size_t most = 4;
    std::string text = "deadlock: ";
    for (std::size_t i = 0; i < std::min(stuck.size(), most); ++i) {
      const symbolic::StuckRank& one = stuck[i];
      text += fmt::format("{}rank {} waits in the {} for rank {}", i == 0 ? "" : ", ", one.rank,
                          call_words(call(one.rank, one.call)), one.missing);
    }
    if (stuck.size() > most) text += fmt::format(", and so on through {} ranks", stuck.size());
    order_.wrong.insert(order_.wrong.begin(),
                        {text + ".", {stuck.front().rank, call(stuck.front().rank, stuck.front().call).line}});
  }

  const Extraction& extraction_;
  const symbolic::RankPrograms& programs_;
  const symbolic::Meetings& meetings_;
  std::map<int, GroupCalls> groups_;
  std::deque<CapturedCollective> copies_;
  std::set<int> told_;                                                 // groups
  std::map<std::tuple<int, int, bool>, std::int64_t> calls_of_pairs_;  // by who makes them, with whom, and if receives
  CollectiveOrder order_;
};

}  // namespace

CollectiveOrder order_of_calls(const Extraction& extraction, const symbolic::Meetings& meetings) {
  return ExtractionOrder(extraction, meetings).run();
}

}  // namespace lockstep::live
