// SPDX-License-Identifier: Apache-2.0
#include "src/numeric/host_tasks.h"

#include "src/numeric/windows.h"
#include "tests/catch.h"
#include "tests/schedule/builder.h"

using namespace lockstep;
using namespace lockstep::test;
using namespace lockstep::numeric;

namespace {

constexpr std::int64_t numel = 1'000'000;

/// One parameter whose slices meet in the middle, and the elements that are replayed of a sample or of everything.
struct Replayed {
  Intervals elements;
  Intervals again;  ///< those that are replayed a second time, modulo a prime

  explicit Replayed(bool sampled, std::int64_t count = numel) {
    const Schedule built = schedule_of(dp(2), {parameter("w", {count})},
                                       {backwards(), collective(Op::reduce_scatter, "scatter", Axis::dp)});
    const Timeline timeline = walk(built);
    const Components components = find_components(built, timeline);
    const Planner planner(built, timeline, components);
    const Plan plan = planner.plan(components.list.at(0));
    std::vector<Prepared> prepared(1);
    prepared[0].cuts = find_cuts(plan);
    prepared[0].choice.arithmetic = Arithmetic::float64;
    prepared[0].cost_per_element = plan.cost_per_element;
    Sample sample;
    sample.sampled = sampled;
    sample.chosen = {1};
    sample.cost = sampled ? 1e15 : static_cast<double>(count) * plan.cost_per_element;
    for (const Task& task : make_tasks(components, prepared, sample, 0)) {
      Intervals& of = task.in_field ? again : elements;
      of = unite(of, task.elements);
    }
  }
};

}  // namespace

TEST_CASE("what is no sample is replayed whole") { CHECK(Replayed(false).elements == Intervals{{0, numel}}); }

TEST_CASE("a sample has the elements around every cut, and a block at a random place at least") {
  const Replayed replayed(true);
  CHECK(size(replayed.elements) < numel / 10);
  Intervals windows;
  for (const std::int64_t cut : {std::int64_t{0}, numel / 2, numel}) {
    const Intervals window = intersect(Intervals{{cut - 16, cut + 16}}, Interval{0, numel});
    CHECK(intersect(replayed.elements, window) == window);
    windows = unite(windows, intersect(Intervals{{cut - 10'000, cut + 10'000}}, Interval{0, numel}));
  }
  CHECK_FALSE(subtract(replayed.elements, windows).empty());
}

TEST_CASE("a small parameter is replayed modulo a prime as well, of a large one the elements around its cuts") {
  const Replayed small(false, 100);
  CHECK(small.elements == Intervals{{0, 100}});
  CHECK(small.again == Intervals{{0, 100}});
  const Replayed large(false);
  CHECK(size(large.again) < 100);
  for (const Interval& around : Intervals{{0, 2}, {numel / 2 - 2, numel / 2 + 2}, {numel - 2, numel}}) {
    CHECK(intersect(large.again, around) == Intervals{around});
  }
}
