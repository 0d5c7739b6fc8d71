// SPDX-License-Identifier: Apache-2.0
#include "src/symbolic/parametric/boxes.h"

#include <functional>

#include "tests/catch.h"

using namespace lockstep::parametric;

namespace {

/// Two dimensions of sizes 1 to 5, wrong where the function says so.
WrongPoints grid(const std::function<bool(int x, int y)>& is_wrong) {
  WrongPoints points{{{1, 2, 3, 4, 5}, {1, 2, 3, 4, 5}}, {}, {}};
  for (const int x : points.values[0]) {
    for (const int y : points.values[1]) {
      points.known.push_back({x, y});
      if (is_wrong(x, y)) points.wrong.insert({x, y});
    }
  }
  return points;
}

/// The cover of all wrong points, each of which is given as a box.
std::string covered(const WrongPoints& points) {
  std::vector<Box> boxes;
  for (const Point& point : points.wrong) boxes.push_back({Bound{point[0], 1, {}}, Bound{point[1], 1, {}}});
  std::string text;
  for (const Box& box : cover(points, boxes)) {
    CHECK(points.all_wrong(box));
    text += (text.empty() ? "" : "; ") + describe(box, {"x", "y"}, points);
  }
  return text;
}

}  // namespace

TEST_CASE("boxes are as wide as what is right lets them") {
  CHECK(covered(grid([](int, int) { return true; })) == "every size");
  CHECK(covered(grid([](int x, int) { return x >= 3; })) == "x ≥ 3");
  CHECK(covered(grid([](int x, int y) { return x == 2 && y != 4; })) == "x = 2 and y ≠ 4");
  CHECK(covered(grid([](int x, int y) { return x >= 2 && x != 4 && y >= 2; })) == "x ≥ 2, x ≠ 4 and y ≥ 2");
}

TEST_CASE("a box that others hold is left out") {
  CHECK(covered(grid([](int x, int y) { return x >= 2 || y >= 2; })) == "y ≥ 2; x ≥ 2");
  CHECK(covered(grid([](int x, int y) { return (x >= 2 && y >= 2) || x == 1; })) == "y ≥ 2; x = 1");
}

TEST_CASE("the last size stands for all larger ones and is no exception") {
  CHECK(covered(grid([](int x, int y) { return x <= 4 && y == 1; })) ==
        "x = 1 and y = 1; x = 2 and y = 1; x = 3 and y = 1; x = 4 and y = 1");
}
