// SPDX-License-Identifier: Apache-2.0
//
// Sizes at which all names of an axis can differ go through the same; each smaller one is a case of its own. What a
// condition on sizes tells apart is found as it is met, and cut in two there.
#include "src/symbolic/parametric/each_case.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <iterator>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "src/base/budget.h"
#include "src/expression/node.h"
#include "src/symbolic/parametric/case_ranges.h"
#include "src/symbolic/parametric/case_splits.h"

namespace lockstep::parametric {

namespace {

/// Each is read, and goes through the schedule.
constexpr int most_cases = 5000;
/// A condition that holds what was read at a size would cut off one size after the other.
constexpr int most_cut_off = 12;
/// One on a sum of sizes cuts off a pair of them after the other. One at 64 is followed to its end, and sentences end.
constexpr int most_cuts_by_one = 200;

/// "its sizes fall into more than 5000 cases, each of which is looked at: 41 of dp times 41 of cp"
std::string too_many_cases(const std::vector<Axis>& axes, const std::vector<std::vector<CaseRange>>& ranges) {
  std::string factors;
  for (std::size_t i = 0; i < axes.size(); ++i) {
    if (ranges[i].size() > 1)
      factors += fmt::format("{}{} of {}", factors.empty() ? "" : " times ", ranges[i].size(), name_of(axes[i]));
  }
  return fmt::format("its sizes fall into more than {} cases, each of which would be looked at: {}", most_cases,
                     factors);
}

/// Why one of them refuses these sizes.
std::string why_refused(const OpenSizes& open, const Sizes& sizes) {
  for (const Layouts* layouts : open.of) {
    if (!layouts->read(sizes)) return layouts->refusal(sizes);
  }
  return "";
}

/// The text without its numbers: such conditions differ in what they compare with.
std::string without_values(const Expression::Node& condition) {
  std::string text = expression::shown(condition);
  std::erase_if(text, [](char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; });
  return text;
}

/// The cases of one combination of ranges, cut in smaller ones where that is found to be needed.
class CaseSearch {
 public:
  CaseSearch(const OpenSizes& open, std::vector<Case>& cases,
             const std::function<void(Case&, const std::vector<Sizes>&)>& enter)
      : open_(open), cases_(cases), enter_(enter) {}

  /// `waiting`: as many cases are still to come.
  void run(const CaseSizes& whole, int waiting) {
    whole_ = whole;
    cut_off_.clear();
    cuts_by_.clear();
    left_ = {whole};
    waiting_ = waiting;
    while (!left_.empty()) {
      const CaseSizes sizes = std::move(left_.back());
      left_.pop_back();
      look_at(sizes);
    }
  }

 private:
  void look_at(const CaseSizes& sizes) {
    const std::vector<Dimension> several = dimensions_of(sizes);
    const auto is_empty = [&](Dimension dimension) { return span_of(sizes, dimension)->least > largest_size; };
    if (std::any_of(several.begin(), several.end(), is_empty)) return;
    std::vector<Sizes> layouts = layouts_of(sizes);
    const auto refused = [&](const Sizes& some) { return !open_.allow(some); };
    if (std::all_of(layouts.begin(), layouts.end(), refused)) {
      if (is_refused(sizes)) return;
      for (Sizes& larger : larger_layouts(sizes, layouts.front())) layouts.push_back(std::move(larger));
    }
    Case one;
    static_cast<CaseSizes&>(one) = sizes;
    if (std::all_of(layouts.begin(), layouts.end(), refused)) {
      if (cut_by_rule(sizes)) return;
      return keep_with_limit(std::move(one),
                             "none of the sizes that were tried is allowed: " + why_refused(open_, layouts.front()));
    }
    std::vector<Sizes> allowed = layouts;
    std::erase_if(allowed, refused);
    for (Sizes& other : of_other_sizes(sizes, allowed)) {
      layouts.push_back(other);
      allowed.push_back(std::move(other));
    }
    std::string why_not;
    if (cut_where_coordinates_meet(sizes, allowed, why_not)) return;
    if (!why_not.empty()) return keep_with_limit(std::move(one), why_not);
    enter_(one, layouts);
    const auto cuts = [&](const auto& condition) { return cut(sizes, *condition); };
    if (std::any_of(one.depends_on.begin(), one.depends_on.end(), cuts)) return;
    cases_.push_back(std::move(one));
  }

  void keep_with_limit(Case one, const std::string& why) {
    one.limit = Proof::Limit{parametric::describe(one), "", why};
    cases_.push_back(std::move(one));
  }

  bool is_full(std::size_t more) const {
    return cases_.size() + left_.size() + static_cast<std::size_t>(waiting_) + more > most_cases;
  }

  /// Looks at the parts next, those of smaller sizes first; false where there are none, or they are too many.
  bool cut_into(std::vector<CaseSizes> parts) {
    if (parts.empty() || is_full(parts.size())) return false;
    left_.insert(left_.end(), std::make_move_iterator(parts.rbegin()), std::make_move_iterator(parts.rend()));
    return true;
  }

  bool cut(const CaseSizes& sizes, const Expression::Node& condition) {
    const auto truth_at = [&](const CaseSizes& part) -> std::optional<bool> {
      const auto [axes, micro_batches] = parametric::ranges_of(part);
      std::optional<bool> truth;
      for (const Layouts* layouts : open_.of) {
        const std::optional<bool> here = layouts->truth(condition, axes, micro_batches);
        if (!here || (truth && *truth != *here)) return std::nullopt;
        truth = here;
      }
      return truth;
    };
    if (truth_at(sizes)) return false;
    std::vector<CaseSizes> parts = split(sizes, condition, truth_at);
    if (parts.empty()) return false;
    const auto ends = [](const CaseSizes& some) {
      return some.exact.size() + some.most.size() + (some.exact_micro_batches || some.most_micro_batches ? 1 : 0);
    };
    const std::string text = without_values(condition);
    if (ends(parts.front()) > ends(sizes) && ++cut_off_[text] > most_cut_off) return false;
    if (++cuts_by_[text] > most_cuts_by_one) return false;
    return cut_into(std::move(parts));
  }

  /// Of sizes that rules refuse in part those that are left may be allowed.
  bool cut_by_rule(const CaseSizes& sizes) {
    for (const Layouts* layouts : open_.of) {
      for (const RefusingRule& rule : layouts->refusing()) {
        if (cut(sizes, rule.condition.tree())) return true;
      }
    }
    return false;
  }

  bool is_cut(const CaseSizes& sizes, Axis axis) const {
    const auto whole = span_of(whole_, axis), span = span_of(sizes, axis);
    return whole && span && (whole->least != span->least || whole->most != span->most);
  }

  /// Whether two sizes of an axis are to be seen: which coordinates move with it, and which stay, is not known where it
  /// was cut, or where some are singled out and one size alone is allowed beside these of the other axes.
  bool needs_two(const CaseSizes& sizes, Axis axis, const Sizes& allowed) const {
    return is_cut(sizes, axis) || std::any_of(open_.of.begin(), open_.of.end(), [&](const Layouts* layouts) {
             return singles_out(*layouts, axis, allowed);
           });
  }

  /// Layouts with another size of an axis of which two are needed, where those that are allowed have one alone: its
  /// second size may be refused beside those of other axes.
  std::vector<Sizes> of_other_sizes(const CaseSizes& sizes, const std::vector<Sizes>& allowed) {
    constexpr int tried = 4;
    std::vector<Sizes> found;
    for (const auto& [axis, least] : sizes.least) {
      const int only = allowed.front().axes.at(axis);
      const bool several = std::any_of(allowed.begin(), allowed.end(),
                                       [&, of = axis](const Sizes& some) { return some.axes.at(of) != only; });
      if (several || !needs_two(sizes, axis, allowed.front())) continue;
      const Span span = *span_of(sizes, axis);
      std::vector<int> others = read_at(axis, span);
      for (int size = span.least; size < span.least + tried; ++size) others.push_back(size);
      for (const int size : others) {
        Sizes other = allowed.front();
        other.axes[axis] = size;
        other = with_allowed_count(sizes, other);
        if (size == only || !sizes.holds(other) || !open_.allow(other)) continue;
        found.push_back(other);
        break;
      }
    }
    return found;
  }

  /// Where coordinates that are singled out are one at some sizes, or do not exist there, each of these is a case. So
  /// is each of a few of which one alone is allowed: of two it is seen which coordinates move with the size.
  bool cut_where_coordinates_meet(const CaseSizes& sizes, const std::vector<Sizes>& allowed, std::string& why_not) {
    for (const auto& [axis, least] : sizes.least) {
      const Span span = *span_of(sizes, axis);
      SingledOut known;
      std::set<int> seen;
      for (std::size_t i = 0; i < allowed.size(); ++i) {
        seen.insert(allowed[i].axes.at(axis));
        if (i == 0 || allowed[i] == allowed[i - 1]) continue;
        for (const Layouts* layouts : open_.of) known.add(singled_out(*layouts, axis, allowed[i - 1], allowed[i]));
      }
      std::optional<int> first_alike;
      if (known.least() > span.least) first_alike = known.least();
      if (seen.size() < 2 && needs_two(sizes, axis, allowed.front())) {
        first_alike = span.most ? std::optional(*span.most + 1) : std::nullopt;
        if (!span.most || *span.most - span.least >= most_exact) {
          why_not = fmt::format(
              "one size of {} alone was found that is allowed, and it is not known which coordinates "
              "move with the size",
              name_of(axis));
          return false;
        }
      }
      if (!first_alike) continue;
      if (*first_alike - span.least > most_exact) {
        why_not = too_many_singled_out(known, axis);
        return false;
      }
      const int end = std::min(*first_alike - 1, span.most.value_or(*first_alike));
      std::vector<CaseSizes> parts = single_sizes_of(sizes, axis, {span.least, end});
      if (!span.most || *span.most > end) parts.push_back(with_span(sizes, axis, {end + 1, span.most}));
      if (cut_into(std::move(parts))) return true;
      why_not = fmt::format("its sizes fall into more than {} cases", most_cases);
      return false;
    }
    return false;
  }

  /// Whether one of the scenarios itself refuses all sizes of a case.
  bool is_refused(const CaseSizes& sizes) const {
    const auto [axes, micro_batches] = parametric::ranges_of(sizes);
    return std::any_of(open_.of.begin(), open_.of.end(),
                       [&, &of_axes = axes, &counts = micro_batches](const Layouts* layouts) {
                         return layouts->refuses_all(of_axes, counts);
                       });
  }

  /// Two sizes of a dimension at which a case is read, and with more stages than these more kinds of layers come to lie
  /// in the middle.
  std::vector<int> read_at(Dimension dimension, const Span& span) {
    const auto [found, is_new] = read_at_.try_emplace({dimension, span.least, span.most});
    std::vector<int>& sizes = found->second;
    if (!is_new) return sizes;
    if (dimension) {
      sizes = allowed_in(open_, *dimension, span);
    } else {
      sizes = open_.of.front()->allowed_micro_batches();
      std::erase_if(sizes, [&](int count) { return count < span.least || (span.most && count > *span.most); });
    }
    // Beside other sizes than those of base they may be allowed.
    for (int size = span.least; sizes.size() < 2 && size <= span.most.value_or(size); ++size) {
      if (std::find(sizes.begin(), sizes.end(), size) == sizes.end()) sizes.push_back(size);
    }
    return sizes;
  }

  std::vector<Sizes> layouts_of(const CaseSizes& sizes) {
    Sizes first = open_.base;
    for (const auto& [axis, size] : sizes.exact) first.axes[axis] = size;
    if (sizes.exact_micro_batches) first.micro_batches = sizes.exact_micro_batches;
    Sizes second = first;
    std::optional<int> most_stages;
    for (const Dimension dimension : dimensions_of(sizes)) {
      const std::vector<int> some = read_at(dimension, *span_of(sizes, dimension));
      if (dimension) {
        first.axes[*dimension] = some[0];
        second.axes[*dimension] = some[1];
        if (*dimension == Axis::pp) most_stages = some.back();
      } else {
        first.micro_batches = some.front();
        second.micro_batches = some.back();
      }
    }
    std::vector<Sizes> layouts = {first, second};
    if (most_stages) {
      layouts.push_back(first);
      layouts.back().axes[Axis::pp] = *most_stages;
    }
    for (Sizes& some : layouts) some = with_allowed_count(sizes, some);
    // What holds at the sizes of the files is what their user looks at first.
    for (const Layouts* of : open_.of) {
      if (sizes.holds(of->own())) layouts.push_back(of->own());
    }
    return layouts;
  }

  Sizes with_allowed_count(const CaseSizes& sizes, const Sizes& some) const {
    if (!sizes.least_micro_batches) return some;
    return open_.with_allowed_micro_batches(some, [&](const Sizes& other) { return sizes.holds(other); });
  }

  /// Larger sizes of a case, where the first ones are refused: a coordinate, or a rule, may ask for them.
  std::vector<Sizes> larger_layouts(const CaseSizes& sizes, const Sizes& first) const {
    std::vector<Sizes> found;
    for (const int size : {4, 6, 8, 12, 16}) {
      Sizes some = first;
      for (const auto& [axis, least] : sizes.least) {
        const Span span = *span_of(sizes, axis);
        some.axes[axis] = std::min(std::max(least, size), span.most.value_or(std::max(least, size)));
      }
      some = with_allowed_count(sizes, some);
      if (open_.allow(some)) found.push_back(some);
      if (found.size() == 2 || sizes.least.empty()) break;
    }
    return found;
  }

  const OpenSizes& open_;
  std::vector<Case>& cases_;
  const std::function<void(Case&, const std::vector<Sizes>&)>& enter_;
  CaseSizes whole_;
  int waiting_ = 0;
  std::vector<CaseSizes> left_;                   // the last one is next
  std::map<std::string, int> cut_off_, cuts_by_;  // by condition without its numbers
  std::map<std::tuple<Dimension, int, std::optional<int>>, std::vector<int>> read_at_;
};

}  // namespace

bool OpenSizes::allow(const Sizes& sizes) const {
  return std::all_of(of.begin(), of.end(), [&](const Layouts* layouts) { return layouts->read(sizes) != nullptr; });
}

Sizes OpenSizes::with(Axis axis, int size) const {
  Sizes sizes = base;
  sizes.axes[axis] = size;
  return with_allowed_micro_batches(sizes, [](const Sizes&) { return true; });
}

Sizes OpenSizes::with_allowed_micro_batches(const Sizes& sizes, const std::function<bool(const Sizes&)>& takes) const {
  if (!micro_batches) return sizes;
  std::vector<int> counts;
  for (const Layouts* layouts : of)
    counts.insert(counts.end(), layouts->allowed_micro_batches().begin(), layouts->allowed_micro_batches().end());
  return with_allowed_count(sizes, counts, [&](const Sizes& some) { return takes(some) && allow(some); });
}

void for_each_case(const OpenSizes& open, std::vector<Case>& cases,
                   const std::function<void(Case&, const std::vector<Sizes>&)>& enter) {
  std::vector<std::vector<CaseRange>> ranges;
  ranges.reserve(open.axes.size());
  for (const Axis axis : open.axes) ranges.push_back(ranges_of(open, axis));
  if (std::any_of(ranges.begin(), ranges.end(), [](const auto& list) { return list.empty(); })) return;
  std::vector<Span> counts = {{1, 1}};
  if (open.micro_batches) counts.push_back({2});
  double count_of_cases = static_cast<double>(counts.size());
  for (const auto& list : ranges) count_of_cases *= static_cast<double>(list.size());
  if (count_of_cases > most_cases) throw OverBudget(too_many_cases(open.axes, ranges));
  int waiting = static_cast<int>(count_of_cases);
  CaseSearch search(open, cases, enter);
  std::vector<std::size_t> at(ranges.size(), 0);
  for (;;) {
    for (const Span& count : counts) {
      CaseSizes sizes;
      std::string limit;
      for (std::size_t i = 0; i < ranges.size(); ++i) {
        const CaseRange& range = ranges[i][at[i]];
        sizes = with_span(std::move(sizes), open.axes[i], range.span);
        if (!range.limit.empty()) limit = range.limit;
      }
      if (open.micro_batches) sizes = with_span(std::move(sizes), std::nullopt, count);
      --waiting;
      if (limit.empty()) {
        search.run(sizes, waiting);
      } else {
        static_cast<CaseSizes&>(cases.emplace_back()) = sizes;
        cases.back().limit = Proof::Limit{parametric::describe(sizes), "", limit};
      }
    }
    std::size_t digit = 0;
    while (digit < at.size() && ++at[digit] == ranges[digit].size()) at[digit++] = 0;
    if (digit == at.size()) break;
  }
}

}  // namespace lockstep::parametric
