// SPDX-License-Identifier: Apache-2.0
#include "src/live/collective_order.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string_view>

#include "src/live/words.h"

namespace lockstep::live {

namespace {

using Calls = std::vector<const CapturedCollective*>;

/// Whether each rank of the group puts in as many elements.
bool is_even(std::string_view op) {
  static const std::set<std::string_view> even = {"all_reduce", "reduce", "reduce_scatter", "broadcast"};
  return even.contains(op);
}

bool meet(const CapturedCollective& one, const CapturedCollective& other) {
  return one.op == other.op && one.dtype == other.dtype && one.reduce == other.reduce && one.root == other.root &&
         (!is_even(one.op) || one.elements == other.elements);
}

/// "all_reduce of 768 float32 at train.py:9 in main"
std::string call_words(const CapturedCollective& call) {
  std::string text = call.op;
  if (!call.dtype.empty()) text += fmt::format(" of {} {}", call.elements, call.dtype);
  if (!call.reduce.empty() && call.reduce != "sum") text += fmt::format(" ({})", call.reduce);
  if (call.root >= 0) text += fmt::format(" from or to rank {}", call.root);
  if (!call.call.empty()) text += " at " + call.call;
  return text;
}

class GroupOrder {
 public:
  GroupOrder(const std::vector<int>& group, std::map<int, Calls> calls, const std::set<int>& whole)
      : group_(group), calls_(std::move(calls)), whole_(whole) {}

  void compare(CollectiveOrder& order) const {
    const auto& [first, own] = *calls_.begin();
    for (const auto& [rank, other] : calls_) {
      const std::size_t both = std::min(own.size(), other.size());
      for (std::size_t i = 0; i < both; ++i) {
        if (meet(*own[i], *other[i])) continue;
        order.wrong.push_back(fmt::format("{}: rank {} calls {}, and rank {} {}.", place(i, *own[i]), first,
                                          call_words(*own[i]), rank, call_words(*other[i])));
        return;
      }
      const int shorter = own.size() < other.size() ? first : rank;
      if (own.size() != other.size() && whole_.contains(shorter)) {
        const CapturedCollective& missing = own.size() < other.size() ? *other[both] : *own[both];
        order.wrong.push_back(fmt::format("{}: rank {} calls {}, and rank {} nothing.", place(both, missing),
                                          shorter == first ? rank : first, call_words(missing), shorter));
        return;
      }
    }
    for (const auto& [rank, other] : calls_) {
      for (std::size_t i = 0; i < std::min(own.size(), other.size()); ++i) {
        if (own[i]->call == other[i]->call || own[i]->call.empty() || other[i]->call.empty()) continue;
        order.suspicious.push_back(fmt::format(
            "{}: rank {} calls {}, and rank {} from {}. Were these different gradients, they would be mixed.",
            place(i, *own[i]), first, call_words(*own[i]), rank, other[i]->call));
        return;
      }
    }
  }

 private:
  std::string place(std::size_t number, const CapturedCollective& call) const {
    return fmt::format("collective {} of {}, in optimizer step {}", number + 1, rank_words(group_), call.step);
  }

  const std::vector<int>& group_;
  std::map<int, Calls> calls_;  // by rank, of those that were recorded
  const std::set<int>& whole_;
};

}  // namespace

CollectiveOrder compare_collectives(const CapturedRun& run) {
  std::map<std::vector<int>, std::map<int, Calls>> groups;
  std::set<int> whole;
  for (const RankRecord& rank : run.ranks) {
    if (rank.ended && !rank.cut_off) whole.insert(rank.header.rank);
    for (const CapturedCollective& call : rank.collectives) groups[call.group][rank.header.rank].push_back(&call);
  }
  CollectiveOrder order;
  for (auto& [group, calls] : groups) {
    // Who recorded none is behind by all of them, unless nothing of it was recorded.
    for (const RankRecord& rank : run.ranks) {
      if (!rank.collectives.empty() && std::binary_search(group.begin(), group.end(), rank.header.rank))
        calls[rank.header.rank];
    }
    if (calls.size() > 1) GroupOrder(group, std::move(calls), whole).compare(order);
  }
  return order;
}

}  // namespace lockstep::live
