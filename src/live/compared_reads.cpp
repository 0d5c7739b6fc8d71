// SPDX-License-Identifier: Apache-2.0
#include "src/live/compared_reads.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <tuple>

namespace lockstep::live {

std::vector<ReadComparison::ReadByRanks> ReadComparison::by_ranks(const std::vector<ReadStretch>& stretches) {
  std::map<std::tuple<std::int64_t, std::int64_t, int>, std::vector<int>> grouped;
  for (const ReadStretch& one : stretches) grouped[{one.elements.begin, one.elements.end, one.sum}].push_back(one.rank);
  std::vector<ReadByRanks> all;
  for (auto& [key, ranks] : grouped) {
    const auto& [begin, end, sum] = key;
    std::sort(ranks.begin(), ranks.end());
    ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
    all.push_back({{begin, end}, sum, std::move(ranks)});
  }
  return all;
}

// Elements in their order, cut where either side begins to read something else.
void ReadComparison::compare(const std::string& name, const std::vector<ReadStretch>& old_reads,
                             const std::vector<ReadStretch>& new_reads, const SumWords& old_words,
                             const SumWords& new_words) {
  const std::vector<ReadByRanks> before = by_ranks(old_reads), after = by_ranks(new_reads);
  std::set<std::int64_t> ends;
  for (const std::vector<ReadByRanks>* side : {&before, &after}) {
    for (const ReadByRanks& one : *side) ends.insert({one.elements.begin, one.elements.end});
  }
  FoundBySums found;
  ByEnd old_open, new_open;  // by their end
  auto old_next = before.begin(), new_next = after.begin();
  for (auto end = ends.begin(); end != ends.end() && std::next(end) != ends.end(); ++end) {
    const Interval part{*end, *std::next(end)};
    const auto move_on = [&](ByEnd& open, auto& next, const std::vector<ReadByRanks>& side) {
      open.erase(open.begin(), open.upper_bound(part.begin));
      for (; next != side.end() && next->elements.begin <= part.begin; ++next) open.emplace(next->elements.end, &*next);
    };
    move_on(old_open, old_next, before);
    move_on(new_open, new_next, after);
    if (!old_open.empty() || !new_open.empty())
      compare_part(name, part, old_open, new_open, old_words, new_words, found);
  }
  for (auto& [sums, one] : found) {
    const auto formula = [](const SumWords& words, int sum, int rank) {
      return sum == ComparedSide::no_gradient ? std::string("no gradient")
             : sum == nobody                  ? std::string(nobody_reads)
                                              : words.formula(sum, rank);
    };
    one.difference.parameter = name;
    one.difference.before = formula(old_words, sums.first, one.old_rank);
    one.difference.after = formula(new_words, sums.second, one.new_rank);
    result_.gradients.push_back(std::move(one.difference));
  }
}

void ReadComparison::compare_part(const std::string& name, const Interval& part, const ByEnd& before,
                                  const ByEnd& after, const SumWords& old_words, const SumWords& new_words,
                                  FoundBySums& found) {
  for (const auto& [words, open] : {std::pair(&old_words, &before), std::pair(&new_words, &after)}) {
    for (const auto& [end, one] : *open) {
      if (one->sum < ComparedSide::no_gradient)
        return undecided(name, fmt::format("[{}, {})", part.begin, part.end), words->reason(one->sum));
    }
  }
  if (before.size() == 1 && after.size() == 1 && before.begin()->second->sum == after.begin()->second->sum) {
    // One sum, whoever reads it.
    other_readers(name, before.begin()->second->ranks, after.begin()->second->ranks);
    return;
  }
  ByRank old_sums, new_sums;
  std::set<int> of_old, of_new;
  for (const auto& [end, one] : before) {
    of_old.insert(one->sum);
    for (const int rank : one->ranks) old_sums[rank].insert(one->sum);
  }
  for (const auto& [end, one] : after) {
    of_new.insert(one->sum);
    for (const int rank : one->ranks) new_sums[rank].insert(one->sum);
  }
  if (of_old.empty()) of_old = {nobody};
  if (of_new.empty()) of_new = {nobody};
  std::map<std::pair<int, int>, std::pair<std::set<int>, std::set<int>>> here;
  std::vector<int> old_ranks, new_ranks;
  for (const auto& [rank, sums] : old_sums) {
    old_ranks.push_back(rank);
    const auto there = new_sums.find(rank);
    const std::set<int>& others = there == new_sums.end() ? of_new : there->second;
    if (sums == others ||
        (there == new_sums.end() && std::includes(others.begin(), others.end(), sums.begin(), sums.end())))
      continue;
    auto& [old_of, new_of] = here[{*sums.begin() == *others.begin() ? *sums.rbegin() : *sums.begin(),
                                   *sums.begin() == *others.begin() ? *others.rbegin() : *others.begin()}];
    old_of.insert(rank);
    if (there != new_sums.end()) new_of.insert(rank);
  }
  for (const auto& [rank, sums] : new_sums) {
    new_ranks.push_back(rank);
    if (old_sums.contains(rank) || std::includes(of_old.begin(), of_old.end(), sums.begin(), sums.end())) continue;
    here[{*of_old.begin(), *sums.begin()}].second.insert(rank);
  }
  other_readers(name, old_ranks, new_ranks);
  for (auto& [sums, ranks] : here) {
    // Where a rank reads it in one of the two alone, it stands against those who read it in the other.
    if (ranks.first.empty()) ranks.first = readers(old_sums, sums.first);
    if (ranks.second.empty()) ranks.second = readers(new_sums, sums.second);
    Found& one = found[sums];
    if (one.old_rank < 0 && !ranks.first.empty()) one.old_rank = *ranks.first.begin();
    if (one.new_rank < 0 && !ranks.second.empty()) one.new_rank = *ranks.second.begin();
    add(one.difference, part, ranks.first, ranks.second);
  }
}

std::set<int> ReadComparison::readers(const ByRank& sums, int sum) {
  std::set<int> ranks;
  for (const auto& [rank, own] : sums) {
    if (own.contains(sum)) ranks.insert(rank);
  }
  return ranks;
}

void ReadComparison::add(GradientDifference& difference, const Interval& part, const std::set<int>& old_ranks,
                         const std::set<int>& new_ranks) {
  DifferingElements next{part, {old_ranks.begin(), old_ranks.end()}, {}};
  if (old_ranks != new_ranks) next.new_ranks.assign(new_ranks.begin(), new_ranks.end());
  if (!difference.where.empty()) {
    DifferingElements& last = difference.where.back();
    if (last.elements.end == part.begin && last.ranks == next.ranks && last.new_ranks == next.new_ranks) {
      last.elements.end = part.end;
      return;
    }
  }
  constexpr std::size_t most = 64;
  if (difference.where.size() < most)
    difference.where.push_back(std::move(next));
  else
    difference.more += part.size();
}

void ReadComparison::undecided(const std::string& name, const std::string& elements, const std::string& why) {
  if (!undecided_.insert({name, why}).second) return;
  result_.undecided.push_back({name, elements, why});
}

void ReadComparison::other_readers(const std::string& name, const std::vector<int>& before,
                                   const std::vector<int>& after) {
  if (before == after) return;
  std::vector<int> others;
  std::set_symmetric_difference(before.begin(), before.end(), after.begin(), after.end(), std::back_inserter(others));
  other_readers_[name].insert(others.begin(), others.end());
}

void ReadComparison::finish() {
  for (const auto& [name, ranks] : other_readers_) result_.ownership.emplace_back(name, static_cast<int>(ranks.size()));
}

}  // namespace lockstep::live
