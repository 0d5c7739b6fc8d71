// SPDX-License-Identifier: Apache-2.0
#include "src/symbolic/formula_items.h"

#include <algorithm>
#include <set>

#include "src/base/at.h"

namespace lockstep::formula {
namespace {

using Coefficients = std::map<Slot, Rational>;

/// Finds the names for the terms of one rank at one element in one optimizer step.
class Collector {
 public:
  Collector(Names& names, int rank, const Frame& frame, int step, const Coefficients& coefficients,
            std::vector<Item>& items)
      : names_(names), rank_(rank), frame_(frame), coefficients_(coefficients), items_(items) {
    is_own_step_ = names.own_step() == step;
    slots_ = names.slots(frame, step, rank);
  }

  void run() {
    std::set<int> sites;
    for (const Slot& slot : slots_) sites.insert(site(slot));
    if (frame_.foreign || !cover(slots_, -1)) {
      for (const int one : sites) {
        std::vector<Slot> through;
        std::copy_if(slots_.begin(), slots_.end(), std::back_inserter(through),
                     [&](const Slot& s) { return site(s) == one; });
        const int named = frame_.foreign || sites.size() > 1 ? one : -1;
        if (named >= 0 && cover(through, named)) continue;
        for (const Slot& slot : through) add(slot.micro_batch, use(slot), named, coefficient(slot));
      }
    }
    // What no device would have: a name in full.
    for (const auto& [slot, value] : coefficients_) {
      if (std::binary_search(slots_.begin(), slots_.end(), slot)) continue;
      const bool clear = !frame_.foreign && names_.sites_with(frame_, use(slot)) == 1;
      add(slot.micro_batch, use(slot), clear ? -1 : site(slot), value);
    }
  }

 private:
  int site(const Slot& slot) const { return names_.site_use(frame_, slot.site_use).parameter; }
  const std::string& use(const Slot& slot) const { return names_.site_use(frame_, slot.site_use).use; }
  Rational coefficient(const Slot& slot) const {
    const auto found = coefficients_.find(slot);
    return found == coefficients_.end() ? Rational(0) : found->second;
  }

  void add(int micro_batch, const std::string& named_use, int named_site, const Rational& value) {
    if (value.is_zero()) return;
    Item item;
    item.rank = rank_;
    item.micro_batch = micro_batch;
    item.use = named_use;
    item.site = named_site;
    item.frame = frame_;
    item.coefficient = value;
    items_.push_back(item);
  }

  /// The coefficient of each part of `slots`, by `key`; nothing where a part has several.
  template <typename Key>
  auto parts(const std::vector<Slot>& slots, Key key) const {
    std::optional<std::map<decltype(key(slots.front())), Rational>> result;
    result.emplace();
    for (const Slot& slot : slots) {
      const Rational value = coefficient(slot);
      const auto [found, added] = result->emplace(key(slot), value);
      if (!added && found->second != value) return decltype(result)();
    }
    return result;
  }

  /// Names `slots` as a whole, by micro-batch or by use; false where that is not possible.
  bool cover(const std::vector<Slot>& slots, int named_site) {
    if (is_own_step_) {
      if (const auto whole = parts(slots, [](const Slot&) { return 0; })) {
        for (const auto& [key, value] : *whole) add(-1, "", named_site, value);
        return true;
      }
    }
    if (const auto by_micro_batch = parts(slots, [](const Slot& slot) { return slot.micro_batch; })) {
      for (const auto& [micro_batch, value] : *by_micro_batch) add(micro_batch, "", named_site, value);
      return true;
    }
    if (is_own_step_) {
      if (const auto by_use = parts(slots, [this](const Slot& slot) { return use(slot); })) {
        for (const auto& [one, value] : *by_use) add(-1, one, named_site, value);
        return true;
      }
    }
    return false;
  }

  Names& names_;
  int rank_;
  const Frame& frame_;
  bool is_own_step_ = false;
  std::vector<Slot> slots_;
  const Coefficients& coefficients_;
  std::vector<Item>& items_;
};

Item leftover(const Names& names, const Term& term) {
  Item item;
  item.rank = term.rank;
  item.leftover = term.leftover;
  item.coefficient = term.coefficient;
  item.frame = {term.foreign, term.logical, term.piece, term.offset};
  if (term.foreign) item.site = names.model().logicals()[at(term.logical)].parameters.front();
  return item;
}

auto order(const Item& item) {
  return std::tuple(!item.leftover.empty(), item.frame.foreign, item.rank, item.micro_batch, std::string_view(item.use),
                    std::string_view(item.leftover), item.site, item.frame);
}

bool less(const Item& a, const Item& b) { return order(a) < order(b); }

/// Adds up items of one name.
void merge(std::vector<Item>& items) {
  std::sort(items.begin(), items.end(), less);
  std::vector<Item> merged;
  for (Item& item : items) {
    if (!merged.empty() && merged.back().axes.empty() && item.axes.empty() && order(merged.back()) == order(item)) {
      merged.back().coefficient += item.coefficient;
    } else {
      merged.push_back(std::move(item));
    }
  }
  std::erase_if(merged, [](const Item& item) { return item.coefficient.is_zero(); });
  items = std::move(merged);
}

constexpr std::size_t listed_at_most = 8;
constexpr std::size_t exceptions_at_most = 2;

/// A sum over axes that stands for a cluster of ranks, but for a few.
struct Fold {
  std::vector<Axis> axes;
  std::vector<int> exceptions;  ///< ranks that the sum has too many
};

/// The axes along which a cluster of ranks differs, if it is all that the support has along them,
/// or nearly all.
std::optional<Fold> whole_axes(Names& names, const std::vector<Item>& cluster) {
  const Mesh& mesh = names.schedule().mesh;
  const Item& first = cluster.front();
  std::vector<Axis> varying, fixed;
  for (const Axis axis : digits) {
    const bool varies = std::any_of(cluster.begin(), cluster.end(), [&](const Item& item) {
      return mesh.coordinate(item.rank, axis) != mesh.coordinate(first.rank, axis);
    });
    (varies ? varying : fixed).push_back(axis);
  }
  const int step = first.micro_batch >= 0 ? names.step_of(first.micro_batch) : names.own_step().value_or(0);
  Fold fold;
  std::size_t found = 0;
  const auto fits = [&](const Slot& slot) {
    const SiteUse& through = names.site_use(first.frame, slot.site_use);
    return (first.micro_batch < 0 || slot.micro_batch == first.micro_batch) &&
           (first.use.empty() || through.use == first.use) && (first.site < 0 || through.parameter == first.site);
  };
  for (const auto& [rank, slots] : names.support(first.frame, step)) {
    const auto same = [&, source = rank](Axis axis) {
      return mesh.coordinate(source, axis) == mesh.coordinate(first.rank, axis);
    };
    if (!std::all_of(fixed.begin(), fixed.end(), same) || std::none_of(slots.begin(), slots.end(), fits)) continue;
    const auto in_cluster = std::lower_bound(cluster.begin(), cluster.end(), rank,
                                             [](const Item& item, int source) { return item.rank < source; });
    if (in_cluster == cluster.end() || in_cluster->rank != rank) {
      fold.exceptions.push_back(rank);
      if (fold.exceptions.size() > exceptions_at_most) return std::nullopt;
    } else {
      ++found;
    }
  }
  if (found != cluster.size()) return std::nullopt;
  // Both parts of dp, or the only one that is more than 1, are dp.
  const auto part = [&](Axis axis) {
    return std::find(varying.begin(), varying.end(), axis) != varying.end() || mesh.size(axis) == 1;
  };
  const bool whole_dp = part(Axis::dp_shard) && part(Axis::dp_replicate);
  for (const Axis axis : varying) {
    const bool is_part = axis == Axis::dp_shard || axis == Axis::dp_replicate;
    const Axis named = is_part && whole_dp ? Axis::dp : axis;
    if (fold.axes.empty() || fold.axes.back() != named) fold.axes.push_back(named);
  }
  return fold;
}

}  // namespace

std::vector<Item> collect_items(Names& names, const std::vector<Term>& terms) {
  std::vector<Item> items;
  std::map<std::tuple<Frame, int, int>, Coefficients> by_rank_and_step;
  for (const Term& term : terms) {
    if (term.coefficient.is_zero()) continue;
    if (!term.leftover.empty()) {
      items.push_back(leftover(names, term));
      continue;
    }
    const Frame frame = term.foreign ? Frame{true, term.logical, term.piece, term.offset} : names.own();
    by_rank_and_step[{frame, term.rank, names.step_of(term.micro_batch)}][{term.micro_batch, term.site_use}] +=
        term.coefficient;
  }
  for (const auto& [key, coefficients] : by_rank_and_step) {
    const auto& [frame, rank, step] = key;
    Collector(names, rank, frame, step, coefficients, items).run();
  }
  std::sort(items.begin(), items.end(), less);
  return items;
}

std::vector<Item> fold_ranks(Names& names, std::vector<Item> items) {
  const Mesh& mesh = names.schedule().mesh;
  // The coefficient last: comparing long ones is dear, and few items share the rest.
  using Key = std::tuple<int, std::string, int, Frame, Rational>;
  std::map<Key, std::vector<Item>> clusters;
  std::vector<Item> result;
  for (Item& item : items) {
    if (item.leftover.empty()) {
      const Key key(item.micro_batch, item.use, item.site, item.frame, item.coefficient);
      clusters[key].push_back(std::move(item));
    } else {
      result.push_back(std::move(item));
    }
  }
  for (auto& [key, cluster] : clusters) {
    const std::optional<Fold> fold = cluster.size() > listed_at_most ? whole_axes(names, cluster) : std::nullopt;
    if (!fold) {
      result.insert(result.end(), cluster.begin(), cluster.end());
      continue;
    }
    Item folded = cluster.front();
    for (const int exception : fold->exceptions) {
      Item too_many = cluster.front();
      too_many.rank = exception;
      too_many.coefficient = -too_many.coefficient;
      folded.rank = std::min(folded.rank, exception);
      result.push_back(too_many);
    }
    const std::vector<Axis>& axes = folded.axes = fold->axes;
    const auto summed = [&](Axis axis) {
      const bool is_part = axis == Axis::dp_shard || axis == Axis::dp_replicate;
      return std::find(axes.begin(), axes.end(), axis) != axes.end() ||
             (is_part && std::find(axes.begin(), axes.end(), Axis::dp) != axes.end());
    };
    folded.base_named = std::any_of(std::begin(digits), std::end(digits), [&](Axis axis) {
      return !summed(axis) && mesh.coordinate(names.rank(), axis) != mesh.coordinate(folded.rank, axis);
    });
    result.push_back(folded);
  }
  merge(result);
  return result;
}

}  // namespace lockstep::formula
