// SPDX-License-Identifier: Apache-2.0
#include "src/numeric/component.h"

#include "src/numeric/plan.h"
#include "src/numeric/windows.h"
#include "tests/catch.h"
#include "tests/schedule/builder.h"

using namespace lockstep;
using namespace lockstep::test;

namespace {

Step moves(Op op, const std::string& from, const std::string& to) {
  Step result = step(op, from + " to " + to);
  result.from = from;
  result.buffer = to;
  return result;
}

}  // namespace

TEST_CASE("buffers are in one component exactly where events link them") {
  Layout layout = dp(2);
  layout.pp = 2;
  Parameter a = parameter("a", {8}), b = parameter("b", {8});
  b.stage = 1;
  const Schedule built = schedule_of(
      layout, {a, b}, {backwards(), collective(Op::all_reduce, "ar", Axis::dp), moves(Op::copy, "grad", "main")});
  const Timeline timeline = walk(built);
  const numeric::Components components = numeric::find_components(built, timeline);
  REQUIRE(components.list.size() == 2);
  CHECK(components.names == std::vector<std::string>{"grad", "main"});
  for (const numeric::Component& component : components.list) {
    CHECK(component.nodes.size() == 4);  // two ranks, two buffers each
    CHECK(component.uses.size() == 5);   // two backwards, one all_reduce, two copies
    CHECK(component.aligned);
    CHECK(component.numel == 8);
  }
  CHECK(components.list[0].family != components.list[1].family);
}

TEST_CASE("components that hold one logical parameter are one family, linked or not") {
  Layout layout = dp(2);
  layout.tp = 2;
  Parameter sharded = parameter("s", {8});
  sharded.shard = {{Axis::tp, 0, false}};
  const Schedule built =
      schedule_of(layout, {sharded, parameter("w", {3})}, {backwards(), collective(Op::all_reduce, "ar", Axis::dp)});
  const Timeline timeline = walk(built);
  const numeric::Components components = numeric::find_components(built, timeline);
  REQUIRE(components.list.size() == 3);
  std::vector<int> families;
  for (const numeric::Component& component : components.list) families.push_back(component.family);
  CHECK(families == std::vector<int>{0, 1, 0});
}

TEST_CASE("copies of one piece share a reference, and so a component, unless members act on different elements") {
  const Schedule apart = schedule_of(dp(3), {parameter("v", {8}), parameter("w", {8})}, {backwards()});
  const numeric::Components together = numeric::find_components(apart, walk(apart));
  REQUIRE(together.list.size() == 2);
  for (std::size_t i = 0; i < 2; ++i) {
    const numeric::Component& component = together.list[i];
    REQUIRE(component.nodes.size() == 3);
    REQUIRE(component.uses.size() == 3);
    for (std::size_t rank = 0; rank < 3; ++rank) {
      CHECK(component.nodes[rank].rank == static_cast<int>(rank));
      CHECK(component.nodes[rank].buffer == static_cast<int>(i));
      CHECK((rank == 0 || component.uses[rank - 1].event < component.uses[rank].event));
    }
  }
  Layout layout = dp(4);
  layout.dp_shard = layout.dp_replicate = 2;
  Step crooked = collective(Op::all_reduce, "ar", Axis::dp_shard);
  crooked.on_owned = true;
  const Schedule built = schedule_of(layout, {parameter("w", {8})},
                                     {backwards(), collective(Op::reduce_scatter, "rs", Axis::dp_shard), crooked});
  CHECK(numeric::find_components(built, walk(built)).list.size() == 2);
}

TEST_CASE("buffers that no optimizer reads and nobody mixes in are left out") {
  Step aside = step(Op::leftover, "aside");
  aside.buffer = "scratch";
  aside.what = "noise";
  const Schedule built = schedule_of(dp(1), {parameter("w", {8})}, {backwards(), aside});
  const Timeline timeline = walk(built);
  const numeric::Components components = numeric::find_components(built, timeline);
  REQUIRE(components.list.size() == 1);
  CHECK(components.list[0].nodes.size() == 1);
}

TEST_CASE("members that act on different elements are not aligned") {
  const auto aligned = [](const std::string& first, const std::string& second) {
    Layout layout = dp(4);
    layout.dp_shard = layout.dp_replicate = 2;
    const auto axis = [](const std::string& name) { return *axis_named(name); };
    Step reduce = collective(Op::all_reduce, "ar", axis(second));
    reduce.on_owned = true;
    const Schedule built = schedule_of(layout, {parameter("w", {8})},
                                       {backwards(), collective(Op::reduce_scatter, "rs", axis(first)), reduce});
    const Timeline timeline = walk(built);
    return numeric::find_components(built, timeline).list.at(0).aligned;
  };
  CHECK(aligned("dp_shard", "dp_replicate"));
  CHECK_FALSE(aligned("dp_shard", "dp_shard"));
}

TEST_CASE("every boundary of a slice is a cut") {
  const Schedule built =
      schedule_of(dp(4), {parameter("w", {10})}, {backwards(), collective(Op::reduce_scatter, "rs", Axis::dp)});
  const Timeline timeline = walk(built);
  const numeric::Components components = numeric::find_components(built, timeline);
  const numeric::Planner planner(built, timeline, components);
  const std::vector<std::int64_t> cuts = numeric::find_cuts(planner.plan(components.list.at(0)));
  CHECK(cuts == std::vector<std::int64_t>{0, 3, 6, 9, 10});
  CHECK(numeric::around(cuts, 1, 10) == Intervals{{0, 1}, {2, 4}, {5, 7}, {8, 10}});
  CHECK(numeric::around(cuts, 2, 10) == Intervals{{0, 10}});
  const std::vector<std::int64_t> thin = numeric::thin_out(cuts, 3, 7);
  CHECK(thin.front() == 0);
  CHECK(thin.back() == 10);
  CHECK(thin.size() <= 3);
}

TEST_CASE("boundaries of slices are cuts, also where the optimizers get all of it, and boundaries of what is owned") {
  const auto cuts = [](const std::vector<Step>& steps) {
    const Schedule built = schedule_of(dp(2), {parameter("w", {10})}, steps);
    const Timeline timeline = walk(built);
    const numeric::Components components = numeric::find_components(built, timeline);
    const numeric::Planner planner(built, timeline, components);
    return numeric::find_cuts(planner.plan(components.list.at(0)));
  };
  using Cuts = std::vector<std::int64_t>;
  Step twice = step(Op::scale, "twice");
  twice.by = Expression::parse("2");
  twice.on_owned = true;
  const Step own = collective(Op::own, "own", Axis::dp), gather = collective(Op::all_gather, "gather", Axis::dp);
  CHECK(cuts({backwards(), collective(Op::all_reduce, "sum", Axis::dp)}) == Cuts{0, 10});
  CHECK(cuts({backwards(), collective(Op::reduce_scatter, "scatter", Axis::dp), gather}) == Cuts{0, 5, 10});
  CHECK(cuts({backwards(), own, twice}) == Cuts{0, 5, 10});
}

TEST_CASE("random blocks are whole blocks, the last cut short at the end, and another seed draws others") {
  const Intervals blocks = numeric::random_blocks(1000, 64, 20, 3);
  REQUIRE_FALSE(blocks.empty());
  for (const Interval& block : blocks) CHECK((block.begin % 64 == 0 && (block.end % 64 == 0 || block.end == 1000)));
  CHECK(numeric::random_blocks(1000, 64, 20, 3) == blocks);
  CHECK(numeric::random_blocks(1'000'000, 64, 20, 3) != numeric::random_blocks(1'000'000, 64, 20, 4));
  CHECK(size(numeric::random_blocks(1'000'000'000, 64, 20, 3)) == 20 * 64);
  CHECK(numeric::random_blocks(10, 64, 5, 1) == Intervals{{0, 10}});
  CHECK(numeric::random_blocks(0, 64, 5, 1).empty());
}
