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
        name_in_parts(through, named);
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

  /// Names `slots`, which are of one site, by whatever takes the fewest names: each by itself; whole micro-batches or
  /// whole uses, and the others by themselves; or all at once, and then what that has too much or too little.
  void name_in_parts(const std::vector<Slot>& slots, int named_site) {
    std::map<Rational, int> count;
    for (const Slot& slot : slots) ++count[coefficient(slot)];
    const auto most =
        std::max_element(count.begin(), count.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
    std::vector<Part> best;
    for (const Rational& all : {Rational(0), is_own_step_ ? most->first : Rational(0)}) {
      for (const Group group : {Group::none, Group::micro_batches, Group::uses}) {
        if (group == Group::uses && !is_own_step_) continue;
        std::vector<Part> parts = parts_beside(all, group, slots);
        if (best.empty() || parts.size() < best.size()) best = std::move(parts);
      }
    }
    for (const Part& part : best) add(part.micro_batch, part.use, named_site, part.coefficient);
  }

  enum class Group { none, micro_batches, uses };
  struct Part {
    int micro_batch = -1;
    std::string use;
    Rational coefficient;
  };

  /// The names that are needed beside one for all `slots`, which has the coefficient `all`, and that one.
  std::vector<Part> parts_beside(const Rational& all, Group group, const std::vector<Slot>& slots) const {
    std::map<std::pair<int, std::string>, std::vector<Slot>> groups;  // by micro-batch and use, -1 and "" for all
    for (const Slot& slot : slots)
      groups[{group == Group::uses ? -1 : slot.micro_batch, group == Group::micro_batches ? "" : use(slot)}].push_back(
          slot);
    std::vector<Part> parts;
    if (!all.is_zero()) parts.push_back({-1, "", all});
    const auto add_part = [&](int micro_batch, const std::string& named_use, const Rational& value) {
      if (value != all) parts.push_back({micro_batch, named_use, value - all});
    };
    for (const auto& [name, members] : groups) {
      const Rational first = coefficient(members.front());
      if (std::all_of(members.begin(), members.end(), [&](const Slot& slot) { return coefficient(slot) == first; })) {
        add_part(name.first, name.second, first);
        continue;
      }
      for (const Slot& slot : members) add_part(slot.micro_batch, use(slot), coefficient(slot));
    }
    return parts;
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
                    std::string_view(item.leftover), item.site, item.frame, item.axes.empty());
}

}  // namespace

void sort_items(std::vector<Item>& items) {
  std::sort(items.begin(), items.end(), [](const Item& a, const Item& b) { return order(a) < order(b); });
}

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
  sort_items(items);
  return items;
}

}  // namespace lockstep::formula
