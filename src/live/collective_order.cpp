// SPDX-License-Identifier: Apache-2.0
#include "src/live/collective_order.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <map>
#include <set>
#include <string_view>

#include "src/base/at.h"
#include "src/base/counted.h"
#include "src/live/run_gaps.h"
#include "src/live/words.h"
#include "src/symbolic/program_operations.h"

namespace lockstep::live {

namespace {

/// Whether each rank of the group puts in as many elements.
bool is_even(std::string_view op) {
  const symbolic::ProgramOperation* row = symbolic::program_operation_named(op);
  return row != nullptr && row->even;
}

/// Who puts nothing in has no type, as of a scatter all but its root.
bool have_one_type(const CapturedCollective& one, const CapturedCollective& other) {
  return one.dtype == other.dtype || (one.dtype.empty() && one.elements == 0) ||
         (other.dtype.empty() && other.elements == 0);
}

bool meet(const CapturedCollective& one, const CapturedCollective& other) {
  return one.number == other.number && one.op == other.op && have_one_type(one, other) && one.reduce == other.reduce &&
         one.root == other.root && (!is_even(one.op) || one.elements == other.elements);
}

/// Types in words, of many only the first. Others than those that a framework has may be of any length.
std::string type_words(const std::string& types) {
  constexpr std::size_t longest = 60;
  if (types.size() <= longest) return types;
  std::size_t end = longest;
  while (end > 0 && (static_cast<unsigned char>(types[end]) & 0xC0) == 0x80) --end;
  return types.substr(0, end) + "\xE2\x80\xA6";
}

std::string place(const GroupCalls& group, std::size_t index, const CapturedCollective& call) {
  const std::int64_t number = group.numbered ? call.number : static_cast<std::int64_t>(index) + 1;
  return fmt::format("collective {} of {}{}", number, group.group,
                     call.step < 0 ? "" : fmt::format(", in optimizer step {}", call.step));
}

/// Whether calls at the same place of the sequences do not meet; told then.
bool tell_wrong(const GroupCalls& group, CollectiveOrder& order) {
  const auto& [first, own] = *group.calls.begin();
  for (const auto& [rank, other] : group.calls) {
    const std::size_t both = std::min(own.size(), other.size());
    for (std::size_t i = 0; i < both; ++i) {
      if (meet(*own[i], *other[i])) continue;
      const bool other_number = own[i]->number != other[i]->number;
      order.wrong.push_back({fmt::format("{}: rank {} calls {}, and rank {} {}{}.", place(group, i, *own[i]), first,
                                         call_words(*own[i]), rank, call_words(*other[i]),
                                         other_number ? fmt::format(" as collective {}", other[i]->number) : ""),
                             {first, own[i]->line}});
      return true;
    }
    const int shorter = own.size() < other.size() ? first : rank;
    const auto whole = group.whole.find(shorter);
    if (own.size() == other.size() || whole == group.whole.end()) continue;
    const CapturedCollective& missing = own.size() < other.size() ? *other[both] : *own[both];
    if (missing.step < whole->second) {
      const int longer = shorter == first ? rank : first;
      const bool is_stopped = group.stopped.contains(shorter);
      order.wrong.push_back({fmt::format("{}: rank {} calls {}, and rank {} nothing{}.", place(group, both, missing),
                                         longer, call_words(missing), shorter,
                                         is_stopped ? " up to its last optimizer step that was looked at" : ""),
                             {longer, missing.line}});
      return true;
    }
  }
  return false;
}

/// Whether a reduction is filled by gradients of these parameters alone.
bool is_filled(const CapturedRun& run, const CapturedCollective& call) {
  std::int64_t left = call.elements;
  for (const int parameter : call.parameters) {
    std::int64_t own = 1;
    for (const std::int64_t size : run.parameters[at(parameter)].declared.shape) own *= size;
    left -= std::min(own, left);
  }
  return left == 0;
}

bool is_disjoint(std::vector<int> one, std::vector<int> other) {
  std::sort(one.begin(), one.end());
  std::sort(other.begin(), other.end());
  std::vector<int> both;
  std::set_intersection(one.begin(), one.end(), other.begin(), other.end(), std::back_inserter(both));
  return both.empty();
}

std::string carried_words(const CapturedRun& run, const CapturedCollective& call) {
  const std::string& first = run.parameters[at(call.parameters.front())].declared.name;
  return call.parameters.size() == 1 ? first
                                     : fmt::format("{} and {}", first, counted(call.parameters.size() - 1, "other"));
}

/// The first reduction whose ranks put in gradients of different parameters, each of which fills it.
void tell_crossed(const CapturedRun& run, const GroupCalls& group, CollectiveOrder& order) {
  const auto reduces = [](std::string_view op) {
    const symbolic::ProgramOperation* row = symbolic::program_operation_named(op);
    return row != nullptr && row->reduces;
  };
  const auto& [first, own] = *group.calls.begin();
  for (const auto& [rank, other] : group.calls) {
    for (std::size_t i = 0; i < std::min(own.size(), other.size()); ++i) {
      const CapturedCollective &one = *own[i], &two = *other[i];
      if (one.parameters == two.parameters || one.parameters.empty() || two.parameters.empty()) continue;
      if (!reduces(one.op) || !meet(one, two) || !is_disjoint(one.parameters, two.parameters)) continue;
      if (!is_filled(run, one) || !is_filled(run, two)) continue;
      order.suspicious.push_back(fmt::format("{}: in the {}, rank {} puts {} and rank {} puts {}: gradients are mixed.",
                                             place(group, i, one), call_words(one), first, carried_words(run, one),
                                             rank, carried_words(run, two)));
      return;
    }
  }
}

/// Whether one of both ranks is the root, which one function calls in another branch than the others: as scatters and
/// gathers are written.
bool is_of_root_and_others(const CapturedCollective& one, int first, const CapturedCollective& two, int second) {
  if (one.root < 0 || one.root != two.root || (one.root == first) == (two.root == second)) return false;
  const auto file = [](const std::string& call) { return call.substr(0, call.rfind(':')); };
  const auto function = [](const std::string& call) { return call.substr(std::min(call.rfind(" in "), call.size())); };
  return file(one.call) == file(two.call) && function(one.call) == function(two.call);
}

}  // namespace

std::string call_words(const CapturedCollective& call) {
  std::string text = call.op;
  if (!call.dtype.empty()) text += fmt::format(" of {}", counted(call.elements, type_words(call.dtype) + " element"));
  if (!call.reduce.empty() && call.reduce != "sum") text += fmt::format(" ({})", call.reduce);
  if (call.root >= 0) text += fmt::format(" from or to rank {}", call.root);
  if (!call.call.empty()) text += " at " + call.call;
  return text;
}

void compare_group(const GroupCalls& group, CollectiveOrder& order) {
  if (group.calls.size() < 2 || tell_wrong(group, order)) return;
  const auto& [first, own] = *group.calls.begin();
  for (const auto& [rank, other] : group.calls) {
    for (std::size_t i = 0; i < std::min(own.size(), other.size()); ++i) {
      if (own[i]->call == other[i]->call || own[i]->call.empty() || other[i]->call.empty()) continue;
      if (is_of_root_and_others(*own[i], first, *other[i], rank)) continue;
      order.suspicious.push_back(
          fmt::format("{}: rank {} calls {}, and rank {} from {}. Were these different gradients, they would be mixed.",
                      place(group, i, *own[i]), first, call_words(*own[i]), rank, other[i]->call));
      return;
    }
  }
}

CollectiveOrder compare_collectives(const CapturedRun& run) {
  std::map<std::vector<int>, GroupCalls> groups;
  std::map<int, int> whole;
  for (const RankRecord& rank : run.ranks) {
    whole.emplace(rank.header.rank, untold_from(rank, run.steps));
    for (const CapturedCollective& call : rank.collectives) groups[call.group].calls[rank.header.rank].push_back(&call);
  }
  CollectiveOrder order;
  for (auto& [ranks, group] : groups) {
    group.group = rank_words(ranks);
    group.whole = whole;
    // Who recorded none is behind by all of them, unless nothing of it was recorded.
    for (const RankRecord& rank : run.ranks) {
      if ((rank.header.collectives || !rank.collectives.empty()) &&
          std::binary_search(ranks.begin(), ranks.end(), rank.header.rank))
        group.calls[rank.header.rank];
    }
    compare_group(group, order);
    if (group.calls.size() > 1) tell_crossed(run, group, order);
  }
  return order;
}

}  // namespace lockstep::live
