// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <set>

#include "src/base/at.h"
#include "src/base/counted.h"
#include "src/symbolic/parametric/by_value.h"
#include "src/symbolic/parametric/cases.h"
#include "src/symbolic/parametric/statement_conditions.h"

namespace lockstep::parametric {

namespace {

/// All points above one of the minimal ones are wrong, as far as the grid shows them; `but` are exceptions, "" for
/// none.
/// `alone`: nothing else is said to be wrong, so that it may be said what is right.
std::optional<std::string> upward(const Grid& grid, const std::vector<Point>& known, const std::set<Point>& wrong,
                                  const std::string& but, bool alone) {
  const std::string& wrong_word = grid.words.wrong;
  const auto above = [](const Point& a, const Point& b) {
    for (std::size_t i = 0; i < a.size(); ++i) {
      if (a[i] < b[i]) return false;
    }
    return true;
  };
  std::vector<Point> minimal;
  for (const Point& point : wrong) {  // what lies below another one comes before it
    const bool least =
        std::none_of(minimal.begin(), minimal.end(), [&](const Point& other) { return above(point, other); });
    if (least) minimal.push_back(point);
  }
  for (const Point& point : known) {
    const bool covered =
        std::any_of(minimal.begin(), minimal.end(), [&](const Point& least) { return above(point, least); });
    if (covered != (wrong.count(point) != 0)) return std::nullopt;
  }
  // What was not followed may be right.
  for (const Point& point : grid.open) {
    if (std::any_of(minimal.begin(), minimal.end(), [&](const Point& least) { return above(point, least); }))
      return std::nullopt;
  }
  // What every known point has is not said.
  Point lowest = known.front();
  for (const Point& point : known) {
    for (std::size_t i = 0; i < point.size(); ++i) lowest[i] = std::min(lowest[i], point[i]);
  }
  std::vector<std::string> ways, ones;
  bool single = true;
  for (const Point& least : minimal) {
    std::vector<std::string> bounds;
    for (std::size_t i = 0; i < least.size(); ++i) {
      if (least[i] == lowest[i]) continue;
      bounds.push_back(fmt::format("{} ≥ {}", grid.name(i), least[i]));
      if (least[i] == lowest[i] + 1) ones.push_back(fmt::format("{} = {}", grid.name(i), lowest[i]));
    }
    single = single && bounds.size() == 1 && ones.size() == ways.size() + 1;
    if (bounds.empty()) return wrong_word + " for every size" + (but.empty() ? "" : " but " + but);
    ways.push_back(listed_words(bounds));
  }
  if (!but.empty()) {
    return ways.size() == 1 ? fmt::format("{} for every {} but {}", wrong_word, ways.front(), but)
                            : fmt::format("{} as soon as {}, but not at {}", wrong_word, fmt::join(ways, ", or "), but);
  }
  if (single && alone) return grid.words.right + " only at " + listed_words(ones);
  return fmt::format("{} as soon as {}", wrong_word, fmt::join(ways, ", or "));
}

/// Leaves out sizes in the middle of the longest lists while there are too many points to look at all. The largest of
/// each stands for all beyond it, and stays. Whether there were any.
bool thin_out(std::vector<std::vector<int>>& values) {
  constexpr double most_points = 100'000;
  const auto points = [&] {
    double product = 1;
    for (const std::vector<int>& list : values) product *= static_cast<double>(list.size());
    return product;
  };
  const bool is_thinned = points() > most_points;
  while (points() > most_points) {
    auto longest = std::max_element(values.begin(), values.end(),
                                    [](const auto& a, const auto& b) { return a.size() < b.size(); });
    longest->erase(longest->begin() + static_cast<std::ptrdiff_t>(longest->size() / 2));
  }
  return is_thinned;
}

/// Sizes that stand for others: a case has more of them before the next size of the grid.
void find_wide(Grid& grid, const std::vector<Case>& cases) {
  for (std::size_t i = 0; i < grid.dimensions(); ++i) {
    const std::vector<int>& values = grid.values[i];
    std::set<int>& wide = grid.wide.emplace_back();
    for (const Case& one : cases) {
      const bool is_axis = i < grid.axes.size();
      const auto least = is_axis ? one.least.find(grid.axes[i]) : one.least.end();
      if (is_axis ? least == one.least.end() : !one.least_micro_batches) continue;
      const auto most = is_axis ? one.most.find(grid.axes[i]) : one.most.end();
      const int first = is_axis ? least->second : *one.least_micro_batches;
      const std::optional<int> last = !is_axis                 ? one.most_micro_batches
                                      : most == one.most.end() ? std::nullopt
                                                               : std::optional(most->second);
      for (const int value : values) {
        const bool has_next = value >= first && value < last.value_or(std::numeric_limits<int>::max());
        if (has_next && !std::binary_search(values.begin(), values.end(), value + 1)) wide.insert(value);
      }
    }
  }
}

/// All that a case holds lies in it.
Box box_of_case(const CaseSizes& one, const Grid& grid) {
  Box box(grid.dimensions());
  for (std::size_t i = 0; i < grid.axes.size(); ++i) {
    const Axis axis = grid.axes[i];
    if (const auto exact = one.exact.find(axis); exact != one.exact.end()) box[i].exact = exact->second;
    if (const auto least = one.least.find(axis); least != one.least.end()) box[i].least = least->second;
    if (const auto most = one.most.find(axis); most != one.most.end()) box[i].most = most->second;
  }
  if (grid.micro_batches)
    box.back() = {one.exact_micro_batches, one.least_micro_batches.value_or(1), {}, one.most_micro_batches};
  return box;
}

/// A grid with all sizes that matter to one of the reasons.
Grid grid_of(const std::vector<Case>& cases, const std::vector<Reason>& reasons, const std::vector<Axis>& axes,
             bool micro_batches) {
  Grid grid{axes, micro_batches, {}, {}, {}, {}, {}, false};
  std::vector<std::vector<int>> roots(grid.dimensions());  // where values depend on this size alone
  std::vector<Sizes> zeros;                                // of each reason, at the least sizes at which it is one
  for (const Reason& reason : reasons) {
    for (const Sizes& zero : zeros_of(reason)) {
      Sizes sizes = zero;
      if (zero.axes.empty()) roots.back().push_back(*zero.micro_batches);
      if (zero.axes.size() == 1 && !zero.micro_batches) {
        const auto [axis, root] = *zero.axes.begin();
        roots[at(std::find(axes.begin(), axes.end(), axis) - axes.begin())].push_back(root);
      }
      sizes.axes.insert(reason.of->exact.begin(), reason.of->exact.end());
      sizes.axes.insert(reason.least.begin(), reason.least.end());
      if (micro_batches && !sizes.micro_batches)
        sizes.micro_batches = reason.of->exact_micro_batches.value_or(reason.of->least_micro_batches.value_or(1));
      zeros.push_back(std::move(sizes));
    }
  }
  for (std::size_t i = 0; i < grid.dimensions(); ++i) {
    std::set<int> values = {1, 2, 3};
    const bool is_axis = i < axes.size();
    // Each case of one size may be right, also where nothing is wrong beside it.
    for (const Case& one : cases) {
      if (is_axis && one.exact.contains(axes[i])) values.insert(one.exact.at(axes[i]));
      if (is_axis && one.least.contains(axes[i])) values.insert(one.least.at(axes[i]));
      if (is_axis && one.most.contains(axes[i])) values.insert(one.most.at(axes[i]) + 1);
      for (const auto& bound : {one.exact_micro_batches, one.least_micro_batches}) {
        if (!is_axis && bound) values.insert(*bound);
      }
      if (!is_axis && one.most_micro_batches) values.insert(*one.most_micro_batches + 1);
    }
    for (const Reason& reason : reasons) {
      const auto bound = is_axis ? reason.least.find(axes[i]) : reason.least.end();
      if (bound != reason.least.end()) values.insert({bound->second, bound->second + 1});
      const auto exact = is_axis ? reason.of->exact.find(axes[i]) : reason.of->exact.end();
      // With its neighbours, which may be right.
      if (exact != reason.of->exact.end())
        values.insert({std::max(exact->second - 1, 1), exact->second, exact->second + 1});
    }
    for (const int root : roots[i]) {
      values.insert(root);
      if (root < std::numeric_limits<int>::max()) values.insert(root + 1);
    }
    grid.values.emplace_back(values.begin(), values.end());
  }
  grid.is_thinned = thin_out(grid.values);
  find_wide(grid, cases);
  std::vector<Point> points = grid.points();
  for (const Sizes& zero : zeros) {
    const Point point = grid.point(zero);
    if (std::find(points.begin(), points.end(), point) == points.end()) points.push_back(point);
  }
  std::vector<const Case*> followed, limited;
  std::vector<Box> boxes, limited_boxes;
  for (const Case& one : cases) {
    (one.limit ? limited : followed).push_back(&one);
    (one.limit ? limited_boxes : boxes).push_back(box_of_case(one, grid));
  }
  const BoxesByValue near(boxes), near_limited(limited_boxes);
  for (const Point& point : points) {
    const Sizes sizes = grid.sizes(point);
    const auto is_in = [&](const BoxesByValue& some, const std::vector<const Case*>& of) {
      return some.at(point).find([&](std::size_t i) { return of[i]->holds(sizes); }) < of.size();
    };
    if (is_in(near, followed))
      grid.known.push_back(point);
    else if (is_in(near_limited, limited))
      grid.open.push_back(point);
  }
  return grid;
}

/// Where one of the reasons applies, and where it would but for its value.
struct Places {
  std::set<Point> wrong, boxes;
};

Places places_of(const Grid& grid, const std::vector<Reason>& reasons) {
  Places places;
  std::vector<Box> boxes;
  boxes.reserve(reasons.size());
  for (const Reason& reason : reasons) boxes.push_back(box_of_case(*reason.of, grid));
  const BoxesByValue near(std::move(boxes));
  for (const Point& point : grid.known) {
    const Sizes sizes = grid.sizes(point);
    near.at(point).find([&](std::size_t i) {
      const Reason& reason = reasons[i];
      bool in_box = reason.of->holds(sizes);
      for (const auto& [axis, least] : reason.least) in_box = in_box && sizes.axes.at(axis) >= least;
      if (!in_box) return false;
      places.boxes.insert(point);
      if (!applies(reason, sizes)) return false;
      places.wrong.insert(point);
      return true;
    });
  }
  return places;
}

std::string text_of(const Grid& grid, const std::vector<Reason>& reasons, const Places& found, bool alone) {
  const std::set<Point>&wrong = found.wrong, &boxes = found.boxes;
  const std::vector<Point>& known = grid.known;
  // They are wrong at sizes that the grid does not have.
  if (wrong.empty()) return grid.words.wrong + " at some sizes";
  if (needs_conditions(reasons)) return statement_by_conditions(reasons, grid);
  const auto text = upward(grid, known, wrong, "", alone);
  if (text) return *text;
  // All but single sizes of an axis.
  std::vector<std::string> but;
  std::set<Point> with = wrong;
  for (std::size_t i = 0; i < grid.dimensions(); ++i) {
    for (const int value : grid.values[i]) {
      std::vector<Point> there;
      for (const Point& point : boxes) {
        if (point[i] == value) there.push_back(point);
      }
      const bool right =
          !there.empty() && !grid.wide[i].contains(value) &&
          std::none_of(there.begin(), there.end(), [&](const Point& point) { return wrong.count(point) != 0; });
      if (!right) continue;
      but.push_back(fmt::format("{} = {}", grid.name(i), value));
      with.insert(there.begin(), there.end());
    }
  }
  if (!but.empty() && with == boxes) {
    if (const auto all = upward(grid, known, with, fmt::format("{}", fmt::join(but, " or ")), alone)) return *all;
  }
  return statement_by_conditions(reasons, grid);
}

}  // namespace

std::string describe(const CaseSizes& one) {
  std::vector<std::string> parts;
  parts.reserve(one.exact.size() + one.least.size() + 2);
  for (const auto& [axis, size] : one.exact) parts.push_back(fmt::format("{} = {}", name_of(axis), size));
  for (const auto& [axis, size] : one.least) {
    const auto most = one.most.find(axis);
    parts.push_back(range_text(std::string(name_of(axis)), size,
                               most == one.most.end() ? std::nullopt : std::optional(most->second)));
  }
  if (one.exact_micro_batches) parts.push_back(fmt::format("micro_batches = {}", *one.exact_micro_batches));
  if (one.least_micro_batches)
    parts.push_back(range_text("micro_batches", *one.least_micro_batches, one.most_micro_batches));
  return listed_words(parts);
}

std::string statement_of(const std::vector<Case>& cases, const std::vector<Reason>& reasons,
                         const std::vector<Axis>& axes, bool micro_batches, const StatementWords& words) {
  std::vector<Reason> certain, by_cut;
  for (const Reason& reason : reasons) (reason.by_cut ? by_cut : certain).push_back(reason);
  Grid grid = grid_of(cases, reasons, axes, micro_batches);
  grid.words = words;
  const std::string where_cut = fmt::format(", wherever {} an element these owners", words.cuts);
  // At sizes that were left out of the grid others may be wrong than the sentence names, if it leaves any.
  const auto with_others = [&](const std::string& text) {
    return text + (grid.is_thinned && !text.ends_with("for every size") ? ", and perhaps at others" : "");
  };
  const Places of_certain = places_of(grid, certain), of_cut = places_of(grid, by_cut);
  if (certain.empty()) return with_others(text_of(grid, by_cut, of_cut, !grid.is_thinned) + where_cut);
  const std::set<Point>&wrong = of_certain.wrong, &more = of_cut.wrong;
  if (std::includes(wrong.begin(), wrong.end(), more.begin(), more.end()))
    return with_others(text_of(grid, certain, of_certain, !grid.is_thinned));
  return with_others(text_of(grid, certain, of_certain, false) + "; also " + text_of(grid, by_cut, of_cut, false) +
                     where_cut);
}

}  // namespace lockstep::parametric
