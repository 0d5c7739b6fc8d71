// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comparison.h"

#include "tests/catch.h"
#include "tests/diagnosis/small.h"

using namespace lockstep;
using namespace lockstep::test;

namespace {

std::shared_ptr<const Scenario> read(const std::string& text) {
  return std::make_shared<const Scenario>(read_scenario(std::make_shared<const Source>(Source{"test.json", text})));
}

ScheduleComparison compare_texts(const std::string& before, const std::string& after) {
  return compare(read(before), read(after));
}

const std::string local_backward =
    R"({ "name": "micro_batches", "op": "each", "steps": [ { "name": "backward", "op": "backward" } ] })";
const std::string average = R"({ "name": "mean", "op": "all_reduce", "over": "dp", "reduce": "avg" })";
const std::string scatter = R"({ "name": "scatter", "op": "reduce_scatter", "over": "dp", "reduce": "avg" })";

std::string with_steps(const std::string& steps, const std::string& parameters = R"([ { "name": "w", "shape": [8] } ])",
                       const std::string& layout = R"({ "dp": 2 })") {
  return scenario_text(layout, parameters, "[" + steps + "]");
}

}  // namespace

TEST_CASE("a sum and a halving are an average, and the same gradient") {
  const std::string sum = R"({ "name": "sum", "op": "all_reduce", "over": "dp", "reduce": "sum" })";
  const std::string half = R"({ "name": "half", "op": "scale", "by": "1/2" })";
  const ScheduleComparison found =
      compare_texts(with_steps(local_backward + "," + average), with_steps(local_backward + "," + sum + "," + half));
  CHECK(found.same_gradients());
  CHECK(found.elements == 16);
  CHECK(found.ownership.empty());
}

TEST_CASE("a factor in the backward pass is the same as one behind it") {
  const std::string halved =
      R"({ "name": "micro_batches", "op": "each", "steps": [ { "name": "backward", "op": "backward", "by": "1/2" } ] })";
  const std::string sum = R"({ "name": "sum", "op": "all_reduce", "over": "dp", "reduce": "sum" })";
  CHECK(compare_texts(with_steps(local_backward + "," + average), with_steps(halved + "," + sum)).same_gradients());
  // And where they differ, formulas are of the gradients before those factors, or they would look alike.
  const ScheduleComparison found =
      compare_texts(with_steps(local_backward + "," + sum), with_steps(halved + "," + sum));
  REQUIRE(found.gradients.size() == 1);
  CHECK(found.plain);
  CHECK(found.gradients.front().before == "g0 + g1");
  CHECK(found.gradients.front().after == "(g0+g1)/2");
}

TEST_CASE("two wrong schedules can be equally wrong") {
  CHECK(compare_texts(with_steps(local_backward), with_steps(local_backward)).same_gradients());
}

TEST_CASE("a missing collective is told with both formulas, on the ranks that it concerns") {
  const ScheduleComparison found =
      compare_texts(with_steps(local_backward + "," + average), with_steps(local_backward));
  REQUIRE(found.gradients.size() == 2);
  CHECK(found.gradients[0].where.front().ranks == std::vector<int>{0});
  CHECK(found.gradients[0].before == "(g0+g1)/2");
  CHECK(found.gradients[0].after == "g0");
  CHECK(found.gradients[1].where.front().ranks == std::vector<int>{1});
  CHECK_FALSE(found.plain);
}

TEST_CASE("sharded optimizers get the same elements from others") {
  const ScheduleComparison found =
      compare_texts(with_steps(local_backward + "," + average), with_steps(local_backward + "," + scatter));
  CHECK(found.same_gradients());
  CHECK(found.elements == 8);
  REQUIRE(found.ownership.size() == 1);
  CHECK(found.ownership.front().ranks == 2);
  CHECK(found.ownership.front().before == Intervals{{0, 8}});
  CHECK(found.ownership.front().after == Intervals{{0, 4}});
}

TEST_CASE("a wrong value is found where the owner changed as well") {
  // dp 1 owns the second half after the old schedule; after the new one dp 0 owns all, and nobody else anything.
  const std::string sum = R"({ "name": "sum", "op": "reduce", "over": "dp", "reduce": "sum", "root": 0 })";
  const ScheduleComparison found =
      compare_texts(with_steps(local_backward + "," + scatter), with_steps(local_backward + "," + sum));
  REQUIRE(found.gradients.size() == 1);
  const std::vector<DifferingElements>& where = found.gradients.front().where;
  REQUIRE(where.size() == 2);
  CHECK(where[0].elements == Interval{0, 4});
  CHECK(where[0].ranks == std::vector<int>{0});
  CHECK(where[0].new_ranks.empty());
  CHECK(where[1].elements == Interval{4, 8});
  CHECK(where[1].ranks == std::vector<int>{1});
  CHECK(where[1].new_ranks == std::vector<int>{0});
  CHECK(found.gradients.front().before == "(g0+g1)/2");
  CHECK(found.gradients.front().after == "g0 + g1");
}

TEST_CASE("what is too large to be checked is too large to be compared") {
  const std::string twice = R"({ "name": "one", "op": "each", "steps": [ { "name": "b", "op": "backward" },
    { "name": "sum", "op": "all_reduce", "over": "dp" } ] })";
  const std::string large = R"({ "lockstep": 1, "name": "large", "layout": { "dp": 65536 }, "model": { "parameters":
    [ { "name": "w", "shape": [8] } ] }, "batch": { "micro_batches": 64 }, "schedule": { "steps": [)" +
                            twice + "] } }";
  const auto scenario_of = read(large);
  try {
    compare(scenario_of, scenario_of);
    FAIL("it was compared");
  } catch (const InputError& error) {
    REQUIRE(error.diagnostics().size() == 1);
    CHECK(error.diagnostics().front().message.find("this scenario is too large to be checked: 65536 ranks") == 0);
  }
}

TEST_CASE("schedules over other ranks, batches or parameters are apart") {
  const std::string steps = local_backward + "," + average;
  const auto reason = [&](const std::string& after) {
    const ScheduleComparison found = compare_texts(with_steps(steps), after);
    REQUIRE_FALSE(found.apart.empty());
    CHECK_FALSE(found.same_gradients());
    return found.apart.front();
  };
  CHECK(reason(with_steps(steps, R"([ { "name": "w", "shape": [8] } ])", R"({ "dp": 4 })")) ==
        "No rank of the one stands for a rank of the other: the old layout is dp 2 in order tp-cp-sp-ep-dp-pp, the new "
        "one dp 4 in order tp-cp-sp-ep-dp-pp.");
  CHECK(reason(with_steps(steps, R"([ { "name": "v", "shape": [8] } ])")) == "Only the old one has parameter \"w\".");
  CHECK(reason(with_steps(steps, R"([ { "name": "w", "shape": [4] } ])")) ==
        "Parameter \"w\" has another shape, place or use in the new one.");
  CHECK(reason(with_steps(steps, R"([ { "name": "w", "shape": [8] }, { "name": "v", "shape": [8] } ])")) ==
        "Only the new one has parameter \"v\".");
}

TEST_CASE("a schedule that deadlocks is not the same as any") {
  const std::string crossed = R"({ "name": "half", "op": "all_reduce", "over": "dp", "only": { "dp": [0] } })";
  const ScheduleComparison found =
      compare_texts(with_steps(local_backward + "," + average), with_steps(local_backward + "," + crossed));
  CHECK_FALSE(found.complete);
  CHECK(found.step == -1);
  CHECK_FALSE(found.same_gradients());
}

TEST_CASE("parameters in another order are the same parameters") {
  const std::string steps = local_backward + "," + average;
  CHECK(compare_texts(with_steps(steps, R"([ { "name": "a", "shape": [8] }, { "name": "b", "shape": [6] } ])"),
                      with_steps(steps, R"([ { "name": "b", "shape": [6] }, { "name": "a", "shape": [8] } ])"))
            .same_gradients());
}

TEST_CASE("steps that came, went and moved") {
  const auto scale = [](const std::string& name) {
    return R"({ "name": ")" + name + R"(", "op": "all_reduce", "over": "dp", "reduce": "avg" })";
  };
  const std::string begin = local_backward + ",";
  const ScheduleComparison found =
      compare_texts(with_steps(begin + scale("a") + "," + scale("b") + "," + scale("c") + "," + scale("gone")),
                    with_steps(begin + scale("b") + "," + scale("c") + "," + scale("a") + "," + scale("come")));
  std::string words;
  for (const StepDifference& each : step_differences(found)) {
    words += each.before == nullptr ? "+" : each.after == nullptr ? "-" : each.moved ? "~" : " ";
    words += (each.after != nullptr ? each.after : each.before)->step->name;
    if (!each.changed()) words += ".";
  }
  CHECK(words == " b. c.~a+come-gone");
}

TEST_CASE("factors of norms are the same where these count the same, whatever they are called") {
  const std::string clip = R"({ "name": "clip", "op": "clip" })";
  const auto norm = [](const std::string& keys) { return R"({ "name": "norm", "op": "norm")" + keys + " },"; };
  const std::string before = local_backward + "," + average + ",";
  const auto same = [&](const std::string& a, const std::string& b) {
    return compare_texts(with_steps(a), with_steps(b)).same_gradients();
  };
  const std::string alone = before + norm("") + clip;
  const std::string twice = before + norm(R"(, "over": "dp")") + clip;
  const std::string first = before + norm(R"(, "over": "dp", "count": "rank.dp == 0")") + clip;
  const std::string none = before + clip;
  CHECK(same(alone, first));
  CHECK(same(twice, twice));
  CHECK(same(none, before + norm(R"(, "count": "false")") + clip));
  // All of these are clip0 where they stand alone.
  CHECK_FALSE(same(twice, none));
  CHECK_FALSE(same(alone, twice));
  const std::string mean = before + norm(R"(, "over": "dp", "combine": "mean_of_norms")") + clip;
  CHECK(same(mean, mean));
  CHECK_FALSE(same(mean, twice));
}
