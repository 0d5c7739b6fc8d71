// SPDX-License-Identifier: Apache-2.0
#include "src/live/candidates.h"

#include <algorithm>
#include <map>

#include "src/live/expected.h"

namespace lockstep::live {

namespace {

Group::Share share(std::size_t column, const Rational& weight) { return {column, weight, to_double(weight)}; }

void sort_by_groups(std::vector<Candidate>& candidates) {
  std::erase_if(candidates, [](const Candidate& candidate) { return candidate.design.empty(); });
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const Candidate& a, const Candidate& b) { return a.design.size() < b.design.size(); });
}

/// Columns with one key in a group.
template <class Key>
Design grouped(const std::vector<const Column*>& columns, bool expected, Key key) {
  std::map<int, Group> groups;
  for (std::size_t i = 0; i < columns.size(); ++i) {
    const Rational weight = expected ? *columns[i]->expected : Rational(columns[i]->different);
    if (!weight.is_zero()) groups[key(*columns[i])].shares.push_back(share(i, weight));
  }
  Design design;
  for (auto& [unused, group] : groups) design.push_back(std::move(group));
  return design;
}

Design each(const std::vector<const Column*>& columns, std::size_t begin, std::size_t end) {
  Design design;
  for (std::size_t i = begin; i < end; ++i) {
    const std::optional<Rational>& expected = columns[i]->expected;
    design.push_back({{share(i, expected && !expected->is_zero() ? *expected : Rational(1))}});
  }
  return design;
}

}  // namespace

std::vector<Candidate> own_candidates(const std::vector<const Column*>& columns) {
  if (columns.empty()) return {};
  const bool known =
      std::all_of(columns.begin(), columns.end(), [](const Column* column) { return column->expected.has_value(); });
  // Two sets of weights that are in proportion are one.
  const Column& first = *columns.front();
  const bool proportional =
      known && std::all_of(columns.begin(), columns.end(), [&](const Column* one) {
        return *one->expected * Rational(first.different) == *first.expected * Rational(one->different);
      });
  std::vector<Candidate> result;
  for (const bool expected : {true, false}) {
    if (expected ? !known : proportional) continue;
    result.push_back({grouped(columns, expected, [](const Column&) { return 0; }), true, expected});
    result.push_back({grouped(columns, expected, [](const Column& one) { return one.rank; }), false, expected});
    result.push_back({grouped(columns, expected, [](const Column& one) { return one.micro_batch; }), false, expected});
  }
  result.push_back({each(columns, 0, columns.size()), false, known, true});
  sort_by_groups(result);
  return result;
}

std::vector<Candidate> candidates_with_earlier(const std::vector<Candidate>& own,
                                               const std::vector<const Column*>& columns,
                                               const std::vector<std::size_t>& first) {
  std::vector<Design> before(3);
  for (std::size_t step = 0; step < first.size(); ++step) {
    const std::size_t begin = first[step], end = step + 1 < first.size() ? first[step + 1] : columns.size();
    Group whole;
    std::map<int, Group> ranks;
    for (std::size_t i = begin; i < end; ++i) {
      whole.shares.push_back(share(i, Rational(columns[i]->different)));
      ranks[columns[i]->rank].shares.push_back(whole.shares.back());
    }
    before[0].push_back(std::move(whole));
    for (auto& [rank, group] : ranks) before[1].push_back(std::move(group));
    for (Group& group : each(columns, begin, end)) before[2].push_back(std::move(group));
  }
  std::vector<Candidate> result;
  std::vector<Candidate> now = own;
  if (now.empty()) now.push_back({{}, false, false, true});
  for (const Candidate& one : now) {
    for (std::size_t kind = 0; kind < before.size(); ++kind) {
      Candidate both = one;
      both.uniform = false;
      both.each = one.each && kind == 2;
      both.design.insert(both.design.end(), before[kind].begin(), before[kind].end());
      result.push_back(std::move(both));
    }
  }
  sort_by_groups(result);
  return result;
}

}  // namespace lockstep::live
