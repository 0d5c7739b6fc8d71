// SPDX-License-Identifier: Apache-2.0
#include "src/numeric/replay.h"

#include "src/numeric/component.h"
#include "tests/catch.h"
#include "tests/schedule/builder.h"

using namespace lockstep;
using namespace lockstep::test;
using namespace lockstep::numeric;

TEST_CASE("findings of parts add up to those of the whole, in every kind of number") {
  const Schedule built =
      schedule_of(dp(2), {parameter("w", {1000})}, {backwards(), collective(Op::reduce_scatter, "rs", Axis::dp)}, 1, 2);
  const Timeline timeline = walk(built);
  const Components components = find_components(built, timeline);
  const Planner planner(built, timeline, components);
  const Plan plan = planner.plan(components.list.at(0));
  for (const Arithmetic arithmetic : {Arithmetic::float32, Arithmetic::float64, Arithmetic::prime61}) {
    ReplayOptions options;
    options.arithmetic = arithmetic;
    options.bits = 5;
    options.hashed.assign(plan.pieces.size(), 1);
    const Findings whole = replay(built.model, plan, options, {{0, 1000}}, 64);
    CHECK(replay(built.model, plan, options, {{0, 300}, {300, 999}}, 64).reference != whole.reference);
    const Findings parts = replay(built.model, plan, options, {{0, 300}, {300, 999}, {999, 1000}}, 64);
    CHECK(parts.reference == whole.reference);
    REQUIRE(parts.checks.size() == whole.checks.size());
    for (std::size_t i = 0; i < whole.checks.size(); ++i) {
      CHECK(parts.checks[i].right == whole.checks[i].right);
      CHECK(parts.checks[i].got == whole.checks[i].got);
      CHECK(parts.checks[i].expected == whole.checks[i].expected);
    }
  }
}

TEST_CASE("what is wrong in one part is wrong in the whole") {
  Step twice = when(step(Op::scale, "twice"), "rank.dp == 0");
  twice.by = Expression::parse("2");
  twice.on_owned = true;
  const Schedule built = schedule_of(
      dp(2), {parameter("w", {1000})},
      {backwards(), collective(Op::own, "own", Axis::dp), twice, collective(Op::all_reduce, "all_reduce", Axis::dp)});
  const Timeline timeline = walk(built);
  const Components components = find_components(built, timeline);
  const Planner planner(built, timeline, components);
  const Plan plan = planner.plan(components.list.at(0));
  ReplayOptions options;
  options.arithmetic = Arithmetic::float32;
  options.bits = 5;
  options.hashed.assign(plan.pieces.size(), 1);
  const auto is_right = [&](const Intervals& elements) {
    const Findings findings = replay(built.model, plan, options, elements, 64);
    REQUIRE_FALSE(findings.checks.empty());
    return findings.checks.front().right;
  };
  CHECK(is_right({{500, 600}, {700, 1000}}));
  CHECK_FALSE(is_right({{0, 100}}));
  CHECK_FALSE(is_right({{0, 100}, {600, 700}}));
  CHECK_FALSE(is_right({{499, 500}, {600, 700}, {800, 900}}));
}

TEST_CASE("what a step does to owned elements alone it does in every block, wherever that begins") {
  Step half = step(Op::scale, "half"), twice = step(Op::scale, "twice");
  half.by = Expression::parse("1/2");
  twice.by = Expression::parse("2");
  twice.on_owned = true;
  Schedule built = schedule_of(
      dp(2), {parameter("w", {1000})},
      {backwards(), collective(Op::all_reduce, "sum", Axis::dp), half, collective(Op::own, "own", Axis::dp), twice});
  built.batch.loss_of_use["main"].kind = Loss::Kind::sum;
  const Timeline timeline = walk(built);
  const Components components = find_components(built, timeline);
  const Planner planner(built, timeline, components);
  for (const Arithmetic arithmetic : {Arithmetic::float32, Arithmetic::prime61}) {
    Plan plan = planner.plan(components.list.at(0));
    Choice choice = choose_arithmetic(Dtype::float32, find_need(plan));
    REQUIRE(choice.arithmetic == Arithmetic::float32);
    choice.arithmetic = arithmetic;
    REQUIRE(bind(plan, choice));
    ReplayOptions options;
    options.arithmetic = arithmetic;
    options.bits = choice.bits;
    options.hashed.assign(plan.pieces.size(), 1);
    for (const Intervals& elements : {Intervals{{0, 1000}}, Intervals{{64, 128}}, Intervals{{130, 140}, {470, 530}},
                                      Intervals{{499, 501}}, Intervals{{900, 1000}}}) {
      const Findings findings = replay(built.model, plan, options, elements, 64);
      REQUIRE(findings.checks.size() == 2);
      for (const Findings::Check& check : findings.checks) CHECK((check.right && check.got == check.expected));
    }
  }
}

TEST_CASE("nothing is found where no element is replayed") {
  const Schedule built = schedule_of(dp(2), {parameter("w", {10})}, {backwards()});
  const Timeline timeline = walk(built);
  const Components components = find_components(built, timeline);
  const Planner planner(built, timeline, components);
  const Plan plan = planner.plan(components.list.at(0));
  const Findings findings = replay(built.model, plan, {}, {{4, 4}}, 64);
  REQUIRE_FALSE(findings.checks.empty());
  for (const Findings::Check& check : findings.checks) CHECK((check.right && check.got == check.expected));
}
