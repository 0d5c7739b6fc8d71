// SPDX-License-Identifier: Apache-2.0
#include "src/symbolic/parametric/by_value.h"

#include <random>

#include "tests/catch.h"

using namespace lockstep::parametric;

TEST_CASE("points in boxes, and boxes at points, are those that one by one are found") {
  std::mt19937 random(7);
  const auto below = [&](int end) { return static_cast<int>(random() % static_cast<unsigned>(end)); };
  constexpr std::size_t count = 70;  // more than a word has bits
  std::vector<Point> points;
  std::vector<Box> boxes;
  for (std::size_t i = 0; i < count; ++i) {
    points.push_back({1 + below(6), 1 + below(4)});
    Box& box = boxes.emplace_back(2);
    for (Bound& bound : box) {
      if (below(3) == 0) bound.exact = 1 + below(6);
      bound.least = 1 + below(4);
      if (below(3) == 0) bound.most = bound.least + below(3);
      if (below(4) == 0) bound.but = {1 + below(6)};
    }
  }
  const PointsByValue by_value(points);
  const BoxesByValue of_point(boxes);
  for (std::size_t i = 0; i < count; ++i) {
    const Bits inside = by_value.in(boxes[i]), around = of_point.at(points[i]);
    for (std::size_t j = 0; j < count; ++j) {
      CHECK(inside.contains(j) == holds(boxes[i], points[j]));
      CHECK(around.contains(j) == holds(boxes[j], points[i]));
    }
  }
}

TEST_CASE("a set of numbers holds what was put in and not taken out") {
  Bits all(70, true), some(70);
  CHECK(some.empty());
  some.insert(3);
  some.insert(69);
  CHECK(all.shared(some) == 2);
  all.remove(some);
  CHECK_FALSE(all.meets(some));
  CHECK(all.shared(Bits(70, true)) == 68);
  some.add(all);
  CHECK(some.shared(Bits(70, true)) == 70);
  some.keep(all);
  CHECK(some.find([](std::size_t number) { return number > 2; }) == 4);
  CHECK(some.find([](std::size_t number) { return number > 68; }) >= 70);
}
