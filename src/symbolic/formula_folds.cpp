// SPDX-License-Identifier: Apache-2.0
//
// Ranks with one coefficient as sums over axes: "sum(g, dp)" for g0 + g1 + … .
#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <set>

#include "src/base/budget.h"
#include "src/symbolic/formula_items.h"

namespace lockstep::formula {
namespace {

/// Up to so many ranks are listed, or few where the whole formula has many names.
constexpr std::size_t listed_at_most = 8, listed_of_many = 2, many_names = 12;
/// A sum of ranks may have one too many for so many that it stands for.
constexpr std::size_t members_by_exception = 4;

constexpr std::size_t digit_count = std::size(digits);
/// With so many coefficients a formula is long in any case.
constexpr int most_tries = 16;

using Coordinates = std::array<int, digit_count>;
using DigitSet = std::array<bool, digit_count>;

/// A rank that contributes under a name.
struct Source {
  int rank = 0;
  Coordinates coordinates{};
};

/// All ranks that agree on every axis but those that a sum runs over, and have the name.
struct Coset {
  std::vector<int> members;     ///< with the coefficient
  std::vector<int> exceptions;  ///< without it
  bool is_sum() const {
    return members.size() > listed_of_many && exceptions.size() <= members.size() / members_by_exception;
  }
  std::size_t names() const { return is_sum() ? 1 + exceptions.size() : members.size(); }
};

struct Fold {
  DigitSet summed{};
  std::vector<Coset> cosets;
  std::size_t names = 0;
};

using CoefficientsByRank = std::map<int, Rational>;

/// Folds the items that differ in rank and coefficient alone.
class Folder {
 public:
  Folder(Names& names, const Item& name) : names_(names), mesh_(names.schedule().mesh), name_(name) {
    const int step = name.micro_batch >= 0 ? names.step_of(name.micro_batch) : names.own_step().value_or(0);
    const auto has_name = [&](const Slot& slot) {
      const SiteUse& through = names.site_use(name.frame, slot.site_use);
      return (name.micro_batch < 0 || slot.micro_batch == name.micro_batch) &&
             (name.use.empty() || through.use == name.use) && (name.site < 0 || through.parameter == name.site);
    };
    for (const auto& [rank, slots] : names.support(name.frame, step)) {
      if (!std::any_of(slots.begin(), slots.end(), has_name)) continue;
      Source& source = sources_.emplace_back();
      source.rank = rank;
      for (std::size_t i = 0; i < digit_count; ++i) source.coordinates[i] = mesh_.coordinate(rank, digits[i]);
    }
    std::sort(sources_.begin(), sources_.end(), [](const Source& a, const Source& b) { return a.rank < b.rank; });
  }

  /// Takes out of `rest` what becomes sums of more than `least` ranks, the largest first; returns them.
  std::vector<Item> sums_of(CoefficientsByRank& rest, std::size_t least) {
    std::vector<Item> sums;
    std::set<Rational> listed;
    for (int tries = 0; tries < most_tries && rest.size() > least; ++tries) {
      std::map<Rational, std::vector<int>> clusters;
      for (const auto& [rank, coefficient] : rest) clusters[coefficient].push_back(rank);
      const Rational* value = nullptr;
      for (const auto& [coefficient, ranks] : clusters) {
        if (ranks.size() <= least || listed.contains(coefficient)) continue;
        if (value == nullptr || ranks.size() > clusters.at(*value).size()) value = &coefficient;
      }
      if (value == nullptr) break;
      const std::vector<int>& cluster = clusters.at(*value);
      const Fold fold = best_fold(cluster);
      if (fold.names >= cluster.size()) {
        listed.insert(*value);
        continue;
      }
      for (const Coset& coset : fold.cosets) {
        if (!coset.is_sum()) continue;
        for (const int rank : coset.members) rest.erase(rank);
        for (const int rank : coset.exceptions) {
          Rational& own = rest[rank];
          own = own - *value;
          if (own.is_zero()) rest.erase(rank);
        }
        sums.push_back(sum_of(coset, fold.summed, *value));
      }
    }
    return sums;
  }

 private:
  /// The axes to sum over that leave the fewest names. Ranks without the name cannot be in it.
  Fold best_fold(const std::vector<int>& cluster) const {
    std::vector<const Source*> members;
    for (const Source& source : sources_) {
      if (std::binary_search(cluster.begin(), cluster.end(), source.rank)) members.push_back(&source);
    }
    Fold best;
    best.names = cluster.size();
    if (members.size() != cluster.size()) return best;
    std::vector<std::size_t> varying;
    for (std::size_t i = 0; i < digit_count; ++i) {
      const int first = members.front()->coordinates[i];
      if (std::any_of(members.begin(), members.end(), [&](const Source* s) { return s->coordinates[i] != first; }))
        varying.push_back(i);
    }
    // All axes in which they differ first: where that is one sum, nothing is shorter.
    for (unsigned set = (1U << varying.size()) - 1; set > 0 && best.names > 1; --set) {
      Fold fold;
      for (std::size_t i = 0; i < varying.size(); ++i) fold.summed[varying[i]] = (set >> i & 1U) != 0;
      fold.cosets = cosets_of(cluster, members, fold.summed);
      for (const Coset& coset : fold.cosets) fold.names += coset.names();
      if (fold.names < best.names) best = std::move(fold);
    }
    return best;
  }

  /// Those that have members.
  std::vector<Coset> cosets_of(const std::vector<int>& cluster, const std::vector<const Source*>& members,
                               const DigitSet& summed) const {
    Budget::spend(static_cast<std::int64_t>(sources_.size()));
    const auto fixed = [&](const Source& source) {
      Coordinates key = source.coordinates;
      for (std::size_t i = 0; i < digit_count; ++i) key[i] = summed[i] ? 0 : key[i];
      return key;
    };
    std::map<Coordinates, Coset> cosets;
    for (const Source* member : members) cosets[fixed(*member)].members.push_back(member->rank);
    for (const Source& source : sources_) {
      const auto found = cosets.find(fixed(source));
      if (found != cosets.end() && !std::binary_search(cluster.begin(), cluster.end(), source.rank))
        found->second.exceptions.push_back(source.rank);
    }
    std::vector<Coset> result;
    result.reserve(cosets.size());
    for (auto& [key, coset] : cosets) result.push_back(std::move(coset));
    return result;
  }

  Item sum_of(const Coset& coset, const DigitSet& summed, const Rational& coefficient) const {
    Item sum = name_;
    sum.coefficient = coefficient;
    sum.rank = coset.members.front();
    if (!coset.exceptions.empty()) sum.rank = std::min(sum.rank, coset.exceptions.front());
    // Both parts of dp, or the only one that is more than 1, are dp.
    bool whole_dp = true;
    for (std::size_t i = 0; i < digit_count; ++i) {
      const bool is_part = digits[i] == Axis::dp_shard || digits[i] == Axis::dp_replicate;
      whole_dp = whole_dp && (!is_part || summed[i] || mesh_.size(digits[i]) == 1);
      sum.base_named = sum.base_named || (!summed[i] && mesh_.coordinate(names_.rank(), digits[i]) !=
                                                            mesh_.coordinate(sum.rank, digits[i]));
    }
    for (std::size_t i = 0; i < digit_count; ++i) {
      if (!summed[i]) continue;
      const bool is_part = digits[i] == Axis::dp_shard || digits[i] == Axis::dp_replicate;
      const Axis named = is_part && whole_dp ? Axis::dp : digits[i];
      if (sum.axes.empty() || sum.axes.back() != named) sum.axes.push_back(named);
    }
    return sum;
  }

  Names& names_;
  const Mesh& mesh_;
  Item name_;
  std::vector<Source> sources_;
};

}  // namespace

std::vector<Item> fold_ranks(Names& names, std::vector<Item> items) {
  const std::size_t least = items.size() > many_names ? listed_of_many : listed_at_most;
  using Key = std::tuple<int, std::string, int, Frame>;
  std::map<Key, std::vector<Item>> names_of;
  std::vector<Item> result;
  for (Item& item : items) {
    if (!item.leftover.empty()) {
      result.push_back(std::move(item));
      continue;
    }
    const Key key(item.micro_batch, item.use, item.site, item.frame);
    names_of[key].push_back(std::move(item));
  }
  for (auto& [key, of_name] : names_of) {
    if (of_name.size() <= least) {
      result.insert(result.end(), of_name.begin(), of_name.end());
      continue;
    }
    CoefficientsByRank rest;
    for (const Item& item : of_name) rest[item.rank] += item.coefficient;
    const std::vector<Item> sums = Folder(names, of_name.front()).sums_of(rest, least);
    result.insert(result.end(), sums.begin(), sums.end());
    for (const auto& [rank, coefficient] : rest) {
      Item& item = result.emplace_back(of_name.front());
      item.rank = rank;
      item.coefficient = coefficient;
    }
  }
  sort_items(result);
  return result;
}

}  // namespace lockstep::formula
