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

TEST_CASE("elements that a rank owns in both are told once where others come to own them as well") {
  const std::string half = R"({ "name": "mean", "op": "reduce", "over": "dp", "reduce": "avg", "root": 0 })",
                    sum = R"({ "name": "sum", "op": "all_reduce", "over": "dp" })";
  const ScheduleComparison found =
      compare_texts(with_steps(local_backward + "," + half), with_steps(local_backward + "," + sum));
  REQUIRE(found.gradients.size() == 1);
  const std::vector<DifferingElements>& where = found.gradients.front().where;
  REQUIRE(where.size() == 1);
  CHECK(where[0].elements == Interval{0, 8});
  CHECK(where[0].ranks == std::vector<int>{0});
  CHECK(where[0].new_ranks == std::vector<int>{0, 1});
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
  const std::string squares = R"({ "dp": 2, "tp": 2 })";
  const std::string other_order = R"({ "dp": 2, "tp": 2, "order": "dp-tp-cp-sp-ep-pp" })";
  const std::string one = R"([ { "name": "w", "shape": [8] } ])";
  const ScheduleComparison turned = compare_texts(with_steps(steps, one, squares), with_steps(steps, one, other_order));
  REQUIRE(turned.apart.size() == 1);
  CHECK(turned.apart.front().starts_with("A rank has other coordinates in the one than in the other: "));
  // Axes of one rank may stand anywhere.
  const std::string moved_pp = R"({ "dp": 2, "tp": 2, "order": "pp-tp-cp-sp-ep-dp" })";
  CHECK(compare_texts(with_steps(steps, one, squares), with_steps(steps, one, moved_pp)).same());
  const std::string old_batch = R"("micro_batches": 1)", new_batch = R"("micro_batches": 2)";
  std::string two = with_steps(steps);
  two.replace(two.find(old_batch), old_batch.size(), new_batch);
  CHECK(reason(two) == "Their numbers of micro-batches differ, and with them the gradients that there are.");
  CHECK(reason(
            with_steps(steps, R"([ { "name": "w", "shape": [8], "frozen": true }, { "name": "v", "shape": [8] } ])")) ==
        "Parameter \"w\" has another shape, place or use in the new one.");
  const std::string cut = R"([ { "name": "w", "shape": [8], "shard": { "tp": 0 } } ])";
  CHECK(compare_texts(with_steps(steps, one, squares), with_steps(steps, cut, squares)).apart.front() ==
        "Parameter \"w\" has another shape, place or use in the new one.");
  const std::string stages = R"({ "dp": 2, "pp": 2 })";
  const std::string first = R"([ { "name": "w", "shape": [8] }, { "name": "v", "shape": [8], "stage": 1 } ])";
  const std::string second = R"([ { "name": "w", "shape": [8], "stage": 1 }, { "name": "v", "shape": [8] } ])";
  CHECK(compare_texts(with_steps(steps, first, stages), with_steps(steps, second, stages)).apart ==
        std::vector<std::string>{"Ranks hold other parameters in the new one than in the old one."});
  CHECK(compare_texts(with_steps(steps, first, stages), with_steps(steps, first, stages)).same());
}

TEST_CASE("norms that count otherwise are told by parameter, with one rank for all") {
  const auto norms = [](const std::string& before, const std::string& after) {
    const auto text = [](const std::string& norm) {
      return with_steps(local_backward + "," + average + norm,
                        R"([ { "name": "w", "shape": [8] }, { "name": "v", "shape": [6] } ])");
    };
    std::string words;
    for (const NormDifference& each : compare_texts(text(before), text(after)).norms)
      words += each.parameter + " " + std::to_string(each.rank) + ": " + each.before + "; " + each.after + ". ";
    return words;
  };
  const std::string right = R"(, { "name": "n", "op": "norm" })",
                    twice = R"(, { "name": "n", "op": "norm", "over": "dp" })";
  CHECK(norms(right, right).empty());
  CHECK(norms(twice, twice).empty());
  CHECK(norms("", "").empty());
  CHECK(norms("", right) == " 0: no norm; a norm. ");
  CHECK(norms(right, "") == " 0: a norm; no norm. ");
  CHECK(norms(right, twice) == "v 0: once; 6 of 6 elements 2 times. w 0: once; 8 of 8 elements 2 times. ");
  CHECK(norms(twice, right) == "v 0: 6 of 6 elements 2 times; once. w 0: 8 of 8 elements 2 times; once. ");
  const std::string of_w =
      R"(, { "name": "n", "op": "norm", "params": ["w"], "over": "dp" }, { "name": "m", "op": "norm", "params": ["v"] })";
  CHECK(norms(right, of_w) == "w 0: once; 8 of 8 elements 2 times. ");
  CHECK(norms(twice, of_w) == "v 0: 6 of 6 elements 2 times; once. ");
}

TEST_CASE("a schedule that deadlocks is not the same as any") {
  const std::string crossed = R"({ "name": "half", "op": "all_reduce", "over": "dp", "only": { "dp": [0] } })";
  const ScheduleComparison found =
      compare_texts(with_steps(local_backward + "," + average), with_steps(local_backward + "," + crossed));
  CHECK_FALSE(found.complete);
  CHECK(found.step == -1);
  CHECK_FALSE(found.same_gradients());
  // Nor is anything said of norms that were not taken to the end.
  const std::string norm = R"(, { "name": "n", "op": "norm" })";
  CHECK(compare_texts(with_steps(local_backward + "," + average + norm),
                      with_steps(local_backward + "," + crossed + norm))
            .norms.empty());
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

TEST_CASE("what went stands where it was, and what moved does not count for the place") {
  const auto names = [](const std::vector<std::string>& steps) {
    std::string text = local_backward;
    for (const std::string& name : steps)
      text += R"(, { "name": ")" + name + R"(", "op": "all_reduce", "over": "dp", "reduce": "avg" })";
    return with_steps(text);
  };
  const auto words = [&](const std::vector<std::string>& before, const std::vector<std::string>& after) {
    const ScheduleComparison found = compare_texts(names(before), names(after));
    std::string text;
    for (const StepDifference& each : step_differences(found)) {
      text += each.before == nullptr ? "+" : each.after == nullptr ? "-" : each.moved ? "~" : " ";
      text += (each.after != nullptr ? each.after : each.before)->step->name;
    }
    return text;
  };
  CHECK(words({"a", "gone", "b"}, {"a", "b"}) == " a-gone b");
  CHECK(words({"gone", "a", "b"}, {"come", "a", "b"}) == "+come-gone a b");
  CHECK(words({"a", "b", "gone", "c", "d"}, {"d", "a", "b", "c"}) == "~d a b-gone c");
  CHECK(words({"a", "b", "c", "d"}, {"b", "c", "d", "a"}) == " b c d~a");
  CHECK(words({"a", "b", "c", "d", "e"}, {"e", "b", "a", "d", "c"}) == "~e~b a~d c");
  CHECK(words({"a"}, {"b"}) == "+b-a");
}

TEST_CASE("what each of many norms counts is looked at once") {
  // Each rank has norms of its own, of which each counts what was clipped by all those before it.
  std::string steps =
      local_backward + R"(, { "name": "norm", "op": "norm" }, { "name": "clip", "op": "clip" }, )" + average;
  for (const std::string number : {"2", "3", "4"})
    steps +=
        R"(, { "name": "norm)" + number + R"(", "op": "norm" }, { "name": "clip)" + number + R"(", "op": "clip" })";
  const std::string text = with_steps(steps, R"([ { "name": "w", "shape": [8] } ])", R"({ "dp": 32 })");
  CHECK(compare_texts(text, text).same_gradients());
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
