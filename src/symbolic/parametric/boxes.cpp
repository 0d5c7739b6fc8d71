// SPDX-License-Identifier: Apache-2.0
#include "src/symbolic/parametric/boxes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <utility>

#include "src/base/counted.h"
#include "src/symbolic/parametric/by_value.h"

namespace lockstep::parametric {

namespace {

/// More exceptions are no shorter than the sizes one by one.
constexpr std::size_t most_exceptions = 2;

/// The box with one dimension as wide as it can be: from the least size on that does, without exceptions if possible;
/// what has an end keeps one where it must.
void widen(const WrongPoints& points, const PointsByValue& known, const Bits& wrong, Box& box, std::size_t dimension) {
  const std::vector<int>& values = points.values[dimension];
  const Bound narrow = box[dimension];
  const int least = narrow.exact ? *narrow.exact : narrow.least;
  Box wide = box;
  wide[dimension] = Bound{std::nullopt, values.front(), {}};
  const auto is_wide = [&](int value) { return !points.wide.empty() && points.wide[dimension].count(value) > 0; };
  std::set<int> right;  // sizes at which something in the box is right, or open
  Bits right_points = known.in(wide);
  right_points.remove(wrong);
  for (const auto& [value, of_value] : known.values(dimension)) {
    if (right_points.meets(of_value)) right.insert(value);
  }
  for (const std::size_t exceptions : {std::size_t{0}, most_exceptions}) {
    for (const int from : values) {
      if (from > least) break;
      const std::set<int> but(right.lower_bound(from), right.end());
      if (but.size() > exceptions || but.count(from) > 0 || but.count(values.back()) > 0) continue;
      if (std::any_of(but.begin(), but.end(), is_wide)) continue;
      box[dimension] = Bound{std::nullopt, from, but};
      return;
    }
  }
  if (!narrow.most) return;
  const auto end = right.upper_bound(*narrow.most);
  const auto from =
      std::find_if(values.begin(), values.end(), [&](int value) { return right.lower_bound(value) == end; });
  if (from != values.end() && *from <= least)
    box[dimension] = Bound{std::nullopt, *from, {}, end == right.end() ? *narrow.most : *end - 1};
}

}  // namespace

std::string range_text(const std::string& name, int least, const std::optional<int>& most) {
  if (!most) return fmt::format("{} ≥ {}", name, least);
  return *most == least ? fmt::format("{} = {}", name, least) : fmt::format("{} ≤ {} ≤ {}", least, name, *most);
}

bool holds(const Box& box, const Point& point) {
  for (std::size_t i = 0; i < box.size(); ++i) {
    if (!box[i].holds(point[i])) return false;
  }
  return true;
}

bool WrongPoints::all_wrong(const Box& box) const {
  return std::all_of(known.begin(), known.end(),
                     [&](const Point& point) { return !holds(box, point) || wrong.count(point) != 0; });
}

std::vector<Box> cover(const WrongPoints& points, const std::vector<Box>& boxes) {
  struct Candidate {
    Box box;
    Bits inside;  ///< of points.known
  };
  std::vector<Candidate> candidates;
  std::set<Box> known;
  std::vector<Point> all = points.known;
  all.insert(all.end(), points.open.begin(), points.open.end());
  const PointsByValue by_value(all);
  Bits left(all.size()), wrong(all.size());
  for (std::size_t i = 0; i < points.known.size(); ++i) {
    if (points.wrong.count(points.known[i]) != 0) wrong.insert(i);
  }
  for (Box box : boxes) {
    // The last dimensions first: that something is wrong with any number of micro-batches is said by silence.
    for (std::size_t i = box.size(); i-- > 0;) widen(points, by_value, wrong, box, i);
    if (!known.insert(box).second) continue;  // thousands of cases come to be a few boxes
    Bits inside = by_value.in(box);
    left.add(inside);
    candidates.push_back({std::move(box), std::move(inside)});
  }
  std::vector<Box> chosen;
  for (;;) {
    const Candidate* best = nullptr;
    std::size_t most = 0;
    for (const Candidate& each : candidates) {
      const std::size_t count = each.inside.shared(left);
      if (count > most) best = &each;
      most = std::max(most, count);
    }
    if (best == nullptr) return chosen;
    chosen.push_back(best->box);
    left.remove(best->inside);
  }
}

std::string describe(const Box& box, const std::vector<std::string>& names, const WrongPoints& points) {
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < box.size(); ++i) {
    const Bound& bound = box[i];
    if (bound.exact) parts.push_back(fmt::format("{} = {}", names[i], *bound.exact));
    if (!bound.exact && (bound.most || bound.least > points.values[i].front()))
      parts.push_back(range_text(names[i], bound.least, bound.most));
    for (const int value : bound.but) parts.push_back(fmt::format("{} ≠ {}", names[i], value));
  }
  return parts.empty() ? "every size" : listed_words(std::move(parts));
}

}  // namespace lockstep::parametric
