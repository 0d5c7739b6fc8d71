// SPDX-License-Identifier: Apache-2.0
#include "lockstep/diagnostic.h"
#include "lockstep/extraction_comparison.h"
#include "lockstep/scenario.h"
#include "src/base/at.h"
#include "tests/catch.h"

using namespace lockstep;

namespace {

using CodeVerdict = ExtractionComparison::Verdict;

std::shared_ptr<const Source> source(const char* name, const std::string& text) {
  return std::make_shared<const Source>(Source{name, text});
}

struct Code {
  std::string loss = "\"local_mean\"", mesh = R"({"axes": ["dp"], "sizes": [2]})", data_axes = R"(["dp"])";
  std::string name = "a", shape = "[4, 2]", piece = R"({"range": [0, 8]})", partial, placed;
  std::string factor = "1/2", tokens = "null";
  int micro_batches = 1;
};

/// Two ranks that all-reduce what a backward yields, or none of it with "0" as the factor.
std::string code(const Code& is) {
  return R"({"lockstep_extract": 1, "world": 2, "mesh": )" + is.mesh + R"(, "data_axes": )" + is.data_axes +
         R"(, "loss": )" + is.loss + R"(, "programs": [{"ranks": [[0, 2]], "played": [0], "events": [
    {"event": "parameter", "id": 0, "name": ")" +
         is.name + R"(", "shape": )" + is.shape + is.placed + R"(, "pieces": [)" + is.piece + R"(]},
    {"event": "contribution", "step": 0, "micro_batch": 0, "parameter": 0, "piece": 0, "source": 0)" +
         is.partial + R"(},
    {"event": "collective", "step": 0, "op": "all_reduce", "group": [0, 1], "elements": 8, "dtype": "float32",
      "reduce": "sum", "input": [[0, 8, [[")" +
         is.factor + R"(", 0, 0]]]], "output": {"source": 1, "elements": 8}, "call": "train.py:9 in hook"},
    {"event": "result", "step": 0, "parameter": 0, "piece": 0, "content": [[0, 8, [["1", 1, 0]]]]},
    {"event": "step", "step": 0, "micro_batches": )" +
         std::to_string(is.micro_batches) + R"(, "tokens": [)" + is.tokens + (is.micro_batches == 2 ? ", null" : "") +
         R"(]}, {"event": "end"}]}]})";
}

struct Expected {
  std::string layout = R"({"dp": 2})", parameter = R"({"name": "a", "shape": [4, 2]})", batch = R"("micro_batches": 1)";
  std::string by = "1 / (tokens * micro_batches)",
              steps = R"({"name": "mean", "op": "all_reduce", "over": "dp", "reduce": "avg"})";
};

std::shared_ptr<const Scenario> scenario(const Expected& is) {
  return std::make_shared<const Scenario>(read_scenario(
      source("expected.json", R"({"lockstep": 1, "layout": )" + is.layout + R"(, "model": {"parameters": [)" +
                                  is.parameter + R"(]}, "batch": {)" + is.batch + R"(}, "schedule": {"steps": [
    {"name": "zero", "op": "zero"},
    {"name": "each", "op": "each", "steps": [{"name": "backward", "op": "backward", "by": ")" +
                                  is.by + R"("}]}, )" + is.steps + "]}}")));
}

ExtractionComparison held_against(const Expected& expected, const Code& found, const ParameterNames& names = {}) {
  return compare_with_scenario(*scenario(expected), source("step.json", code(found)), names);
}

}  // namespace

TEST_CASE("code that does what a scenario says hands out the same gradients") {
  const ExtractionComparison result = held_against({}, {});
  CHECK(result.apart.empty());
  CHECK(result.verdict() == CodeVerdict::same);
  CHECK(result.elements == 16);
  CHECK(result.ownership.empty());
  REQUIRE(result.calls.size() == 2);  // the step, and the call
  CHECK(result.calls[0].call == "mean");
  CHECK(result.calls[1].call == "train.py in hook");
}

TEST_CASE("code that divides otherwise is told with both formulas, the steps and the calls") {
  Code quarter;
  quarter.factor = "1/4";
  const ExtractionComparison result = held_against({}, quarter);
  CHECK(result.verdict() == CodeVerdict::other);
  REQUIRE(result.gradients.size() == 1);
  const GradientDifference& one = result.gradients.front();
  CHECK(one.parameter == "a");
  CHECK(one.before == "(g0+g1)/2");
  CHECK(one.after == "(g0+g1)/4");
  CHECK(one.before_by == std::vector<std::string>{"backward", "mean"});
  CHECK(one.after_by == std::vector<std::string>{"all_reduce at train.py:9 in hook"});
  CHECK(one.where.front().elements == Interval{0, 8});
}

TEST_CASE("by what backward multiplies counts where the code's loss is known") {
  Expected twice;
  twice.by = "2 / (tokens * micro_batches)";
  const ExtractionComparison result = held_against(twice, {});
  CHECK(result.verdict() == CodeVerdict::other);
  CHECK(result.notes.size() == 1);  // that formulas are of plain gradients

  Code unknown;
  unknown.loss = "null";
  for (const Expected& expected : {twice, Expected{}}) {  // whatever it multiplies by
    const ExtractionComparison not_known = held_against(expected, unknown);
    CHECK(not_known.verdict() == CodeVerdict::undecided);
    REQUIRE(not_known.undecided.size() == 1);
    CHECK(not_known.undecided.front().why.find("--loss") != std::string::npos);
  }
  Code sum;
  sum.loss = "\"sum\"";
  CHECK(held_against(twice, sum).verdict() == CodeVerdict::undecided);
  Expected as_it_is;
  as_it_is.by = "1";
  CHECK(held_against(as_it_is, sum).verdict() == CodeVerdict::same);
}

TEST_CASE("a scenario that shards is held against code that does not, by the elements") {
  Expected sharded;
  sharded.steps =
      R"({"name": "shards", "op": "reduce_scatter", "over": "dp", "reduce": "avg", "geometry": {"kind": "rows"}})";
  const ExtractionComparison result = held_against(sharded, {});
  CHECK(result.verdict() == CodeVerdict::same);
  CHECK(result.ownership == std::vector<std::pair<std::string, int>>{{"a", 2}});
}

TEST_CASE("a parameter of one alone, or with another shape, is said") {
  Code renamed;
  renamed.name = "b";
  const ExtractionComparison apart = held_against({}, renamed);
  CHECK(apart.verdict() == CodeVerdict::other);
  CHECK(apart.only_before == std::vector<std::string>{"a"});
  CHECK(apart.only_after == std::vector<std::string>{"b"});
  CHECK(held_against({}, renamed, {{"a", "b"}}).verdict() == CodeVerdict::same);
  renamed.name = "block.7.b";
  Expected layers;
  layers.parameter = R"({"name": "layer.7.a", "shape": [4, 2]})";
  CHECK(held_against(layers, renamed, {{"layer.*.a", "block.*.b"}}).verdict() == CodeVerdict::same);
  CHECK_THROWS_AS(held_against({}, renamed, {{"c", "b"}}), InputError);

  Code transposed;
  transposed.shape = "[2, 4]";
  const ExtractionComparison shapes = held_against({}, transposed);
  CHECK(shapes.verdict() == CodeVerdict::undecided);
  REQUIRE_FALSE(shapes.undecided.empty());
  CHECK(shapes.undecided.front().why == "it has another shape in the scenario");
}

TEST_CASE("other ranks, axes and micro-batches are not compared") {
  Expected four;
  four.layout = R"({"dp": 4})";
  REQUIRE(held_against(four, {}).apart.size() == 1);
  CHECK(held_against(four, {}).apart.front() == "The scenario is of 4 ranks, the code ran as 2 ranks.");
  Expected tensor_parallel;
  tensor_parallel.layout = R"({"tp": 2})";
  tensor_parallel.steps = R"({"name": "sum", "op": "all_reduce", "over": "tp"})";
  REQUIRE_FALSE(held_against(tensor_parallel, {}).apart.empty());  // the code's ranks have other data
  Code two;
  two.micro_batches = 2;
  REQUIRE(held_against({}, two).apart.size() == 1);
  CHECK(held_against({}, two).apart.front() == "Rank 0 runs 2 micro-batches in optimizer step 0, the scenario has 1.");
  Code named;
  named.mesh = R"({"axes": ["data"], "sizes": [2]})";
  named.data_axes = R"(["data"])";
  const ExtractionComparison same = held_against({}, named);
  CHECK(same.verdict() == CodeVerdict::same);
  REQUIRE(same.notes.size() == 1);
  CHECK(same.notes.front() == "The code's axis data is dp of the scenario.");
}

TEST_CASE("ranks that yield one gradient are not taken for ranks that yield shares of it") {
  Code shares;
  shares.mesh = R"({"axes": ["tp"], "sizes": [2]})";
  shares.data_axes = "[]";
  shares.factor = "1";
  shares.partial = R"(, "partial": ["tp"])";
  Expected partial;
  partial.layout = R"({"tp": 2})";
  partial.parameter = R"({"name": "a", "shape": [4, 2], "partial": ["tp"]})";
  partial.steps = R"({"name": "sum", "op": "all_reduce", "over": "tp"})";
  CHECK(held_against(partial, shares).verdict() == CodeVerdict::same);

  Code replicas = shares;
  replicas.partial.clear();
  replicas.placed = R"(, "placed": ["tp"])";
  const ExtractionComparison other = held_against(partial, replicas);
  CHECK(other.gradients.empty());  // the same sum of both
  REQUIRE(other.placements.size() == 1);
  CHECK(other.placements.front() ==
        "Ranks along tp yield one gradient of a in the code, and shares of it in the scenario.");
  CHECK(other.verdict() == CodeVerdict::other);

  Expected whole = partial;
  whole.parameter = R"({"name": "a", "shape": [4, 2]})";
  const ExtractionComparison twice = held_against(whole, replicas);  // one gradient, which both count twice
  CHECK(twice.placements.empty());
  CHECK(twice.verdict() == CodeVerdict::same);
  whole.steps = R"({"name": "mean", "op": "all_reduce", "over": "tp", "reduce": "avg"})";
  CHECK(held_against(whole, replicas).gradients.size() == 1);
}

TEST_CASE("boxes of a parameter are compared by its row-major indices") {
  Expected columns;
  columns.layout = R"({"tp": 2})";
  columns.parameter = R"({"name": "a", "shape": [4, 2], "shard": {"tp": 1}})";
  columns.steps = R"({"name": "same", "op": "scale", "by": "1"})";
  const auto box = [](int rank) {
    const std::string from = std::to_string(rank), to = std::to_string(rank + 1);
    return R"({"ranks": [[)" + from + ", " + to + R"(]], "played": [)" + from + R"(], "events": [
    {"event": "parameter", "id": 0, "name": "a", "shape": [4, 2], "placed": ["tp"], "pieces": [{"box": [[0, 4], [)" +
           from + ", " + to + R"(]]}]},
    {"event": "contribution", "step": 0, "micro_batch": 0, "parameter": 0, "piece": 0, "source": 0},
    {"event": "result", "step": 0, "parameter": 0, "piece": 0, "content": [[0, 4, [["1", 0, 0]]]]},
    {"event": "step", "step": 0, "micro_batches": 1, "tokens": [null]}, {"event": "end"}]})";
  };
  const std::string text =
      R"({"lockstep_extract": 1, "world": 2, "mesh": {"axes": ["tp"], "sizes": [2]}, "data_axes": [],
      "loss": "local_mean", "programs": [)" +
      box(0) + ", " + box(1) + "]}";
  const ExtractionComparison result = compare_with_scenario(*scenario(columns), source("step.json", text));
  CHECK(result.verdict() == CodeVerdict::same);
  CHECK(result.elements == 8);
  CHECK(result.ownership.empty());

  columns.parameter = R"({"name": "a", "shape": [4, 2], "shard": {"tp": 0}})";  // rows: others hold what it holds
  const ExtractionComparison rows = compare_with_scenario(*scenario(columns), source("step.json", text));
  CHECK(rows.gradients.empty());  // they may be the same gradients, which other ranks yield
  CHECK(rows.verdict() == CodeVerdict::undecided);
}

namespace {

/// Two ranks that average what backward yields of each parameter by itself.
std::string averaged(const std::vector<std::string>& parameters, const std::vector<int>& handed_to = {}) {
  std::string declared, yielded, called, read;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const std::string number = std::to_string(i);
    const std::string result = std::to_string(parameters.size() + i);
    const std::string from = std::to_string(parameters.size() + (handed_to.empty() ? i : at(handed_to[i])));
    declared += R"({"event": "parameter", "id": )" + number + ", " + parameters[i] +
                R"(, "shape": [4, 2], "pieces": [{"range": [0, 8]}]}, )";
    yielded += R"({"event": "contribution", "step": 0, "micro_batch": 0, "parameter": )" + number +
               R"(, "piece": 0, "source": )" + number + "}, ";
    called += R"({"event": "collective", "step": 0, "op": "all_reduce", "group": [0, 1], "elements": 8,
      "dtype": "float32", "reduce": "sum", "input": [[0, 8, [["1/2", )" +
              number + R"(, 0]]]], "output": {"source": )" + result + R"(, "elements": 8}, "call": "train.py:9"}, )";
    read += R"({"event": "result", "step": 0, "parameter": )" + number + R"(, "piece": 0, "content": [[0, 8, [["1", )" +
            from + R"(, 0]]]]}, )";
  }
  return R"({"lockstep_extract": 1, "world": 2, "mesh": {"axes": ["dp"], "sizes": [2]}, "data_axes": ["dp"],
    "loss": "local_mean", "programs": [{"ranks": [[0, 2]], "played": [0], "events": [)" +
         declared + yielded + called + read +
         R"({"event": "step", "step": 0, "micro_batches": 1, "tokens": [null]}, {"event": "end"}]}]})";
}

ExtractionComparison held_against_averages(const std::string& parameters, const std::vector<std::string>& code,
                                           const std::vector<int>& handed_to = {}) {
  Expected expected;
  expected.parameter = parameters;
  return compare_with_scenario(*scenario(expected), source("step.json", averaged(code, handed_to)));
}

constexpr const char* emb_and_head =
    R"({"name": "emb", "shape": [4, 2], "tied": "e"}, {"name": "head", "shape": [4, 2], "tied": "e"})";
constexpr const char* copies =
    R"({"name": "emb", "shape": [4, 2], "tied": "e"}, {"name": "head", "shape": [4, 2], "tied": "e", "copy": "h"})";

}  // namespace

TEST_CASE("code that trains what a scenario freezes differs from it") {
  const ExtractionComparison result =
      held_against_averages(R"({"name": "a", "shape": [4, 2]}, {"name": "b", "shape": [4, 2], "frozen": true})",
                            {R"("name": "a")", R"("name": "b")"});
  CHECK(result.verdict() == CodeVerdict::other);
  REQUIRE(result.gradients.size() == 1);
  CHECK(result.gradients.front().parameter == "b");
  CHECK(result.gradients.front().before == "nothing: no optimizer gets it");
  CHECK(result.gradients.front().after == "b.0/2 + b.1/2");
}

TEST_CASE("a tie that one of the two has alone is a difference") {
  const std::vector<std::string> tied = {R"("name": "emb", "aliases": ["head"])"},
                                 untied = {R"("name": "emb")", R"("name": "head")"};
  CHECK(held_against_averages(emb_and_head, tied).verdict() == CodeVerdict::same);
  CHECK(held_against_averages(copies, untied).verdict() == CodeVerdict::same);  // each has its own use's gradients

  const ExtractionComparison lost = held_against_averages(emb_and_head, untied);
  CHECK(lost.verdict() == CodeVerdict::other);
  CHECK(lost.ties == std::vector<std::string>{"emb and head are one tensor in the scenario, and 2 in the code."});
  const ExtractionComparison found = held_against_averages(copies, tied);
  CHECK(found.verdict() == CodeVerdict::other);
  CHECK(found.ties == std::vector<std::string>{"emb and head are one tensor in the code, and 2 in the scenario."});
  const ExtractionComparison never =
      held_against_averages(R"({"name": "emb", "shape": [4, 2]}, {"name": "head", "shape": [4, 2]})", tied);
  CHECK(never.ties == found.ties);
  CHECK(never.only_before.empty());
}

TEST_CASE("each copy of a tie that is lost is compared") {
  const ExtractionComparison swapped = held_against_averages(copies, {R"("name": "emb")", R"("name": "head")"}, {1, 0});
  CHECK(swapped.verdict() == CodeVerdict::other);
  REQUIRE(swapped.gradients.size() == 2);
  CHECK(swapped.gradients[0].parameter == "emb");
  CHECK(swapped.gradients[1].parameter == "head");
}

TEST_CASE("gradients of another parameter are written with the factors that the code has") {
  const std::string both = R"({"name": "a", "shape": [4, 2]}, {"name": "b", "shape": [4, 2]})";
  const ExtractionComparison swapped = held_against_averages(both, {R"("name": "a")", R"("name": "b")"}, {1, 0});
  REQUIRE(swapped.gradients.size() == 2);
  CHECK(swapped.gradients[0].before == "(g0+g1)/2");
  CHECK(swapped.gradients[0].after == "(b.0+b.1)/2");

  Expected twice;  // formulas are of summed losses then, of rank 0's 3 tokens and rank 1's 5
  twice.parameter = both;
  twice.by = "2 / (tokens * micro_batches)";
  twice.batch = R"("micro_batches": 1, "tokens": [[[[3]], [[5]]]])";
  const ExtractionComparison plain = compare_with_scenario(
      *scenario(twice), source("step.json", averaged({R"("name": "a")", R"("name": "c")"}, {1, 0})));
  REQUIRE(plain.gradients.size() == 1);
  CHECK(plain.gradients[0].before == "g0/3 + g1/5");
  CHECK(plain.gradients[0].after == "c.0/6 + c.1/10");
}

TEST_CASE("what a scenario cuts and code has whole on each rank is not compared by halves") {
  Code whole;
  whole.mesh = R"({"axes": ["tp"], "sizes": [2]})";
  whole.data_axes = "[]";
  whole.factor = "1/2";
  whole.placed = R"(, "placed": ["tp"])";
  Expected cut;
  cut.layout = R"({"tp": 2})";
  cut.parameter = R"({"name": "a", "shape": [4, 2], "shard": {"tp": 0}})";
  cut.steps = R"({"name": "same", "op": "scale", "by": "1"})";
  const ExtractionComparison result = held_against(cut, whole);
  CHECK(result.gradients.empty());
  CHECK(result.verdict() == CodeVerdict::undecided);
}

TEST_CASE("no call is named for what no optimizer of the code gets") {
  Code half;
  std::string text = code(half);
  const std::string all = R"("content": [[0, 8, [["1", 1, 0]]]]})",
                    first = R"("elements": 4, "content": [[0, 4, [["1", 1, 0]]]]})";
  text.replace(text.find(all), all.size(), first);
  const ExtractionComparison result = compare_with_scenario(*scenario({}), source("step.json", text));
  REQUIRE(result.gradients.size() == 1);
  CHECK(result.gradients.front().after == "nothing: no optimizer gets it");
  CHECK(result.gradients.front().after_by.empty());
}

TEST_CASE("code of which it is known that an optimizer gets something wrong is not called the same") {
  for (const char* wrong : {"", R"(, "parameters": [0], "wrong": true)", R"(, "wrong": true)"}) {
    std::string text = code({});
    const std::string end = R"({"event": "end"})";
    if (*wrong != '\0')
      text.replace(text.find(end), end.size(),
                   R"({"event": "gap", "step": 0, "why": "it is doubled")" + std::string(wrong) + "}, " + end);
    const auto found = source("step.json", text);
    const CodeVerdict verdict = *wrong == '\0' ? CodeVerdict::same : CodeVerdict::undecided;
    CHECK(compare_with_scenario(*scenario({}), found).verdict() == verdict);
    CHECK(compare_extractions(source("old.json", code({})), found).verdict() == verdict);
  }
}
