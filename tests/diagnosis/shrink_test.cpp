// SPDX-License-Identifier: Apache-2.0
#include "src/diagnosis/shrink.h"

#include "src/diagnosis/neighbours.h"
#include "tests/catch.h"
#include "tests/diagnosis/small.h"

using namespace lockstep;
using namespace lockstep::test;
using diagnosis::FileSizes;

namespace {

std::shared_ptr<const Scenario> scenario_at(const std::string& layout, const std::string& parameters,
                                            const std::string& steps, const std::string& batch) {
  std::string text = scenario_text(
      layout, parameters,
      R"([ { "name": "micro_batches", "op": "each", "steps": [ { "name": "backward", "op": "backward" } ] })" + steps +
          " ]");
  const std::string old = R"("batch": { "micro_batches": 1, "tokens": "even" })";
  text.replace(text.find(old), old.size(), "\"batch\": " + batch);
  return std::make_shared<const Scenario>(read_scenario(std::make_shared<const Source>(Source{"test.json", text})));
}

const std::string one_weight = R"([ { "name": "w", "shape": [16] } ])";
const std::string even = R"({ "micro_batches": 1, "tokens": "even" })";

CheckResult checked(const std::string& layout, const std::string& steps, const std::string& batch = even) {
  CheckOptions options;
  options.host = options.blame = options.divergences = false;
  return check_scenario(scenario_at(layout, one_weight, steps, batch), options);
}

std::string sum_and_scale(const std::string& by) {
  return R"(, { "name": "sum", "op": "all_reduce", "over": "dp" }, { "name": "s", "op": "scale", "by": ")" + by +
         "\" }";
}

std::vector<std::string> names_of(const std::vector<Parameter>& parameters) {
  std::vector<std::string> names;
  for (const Parameter& parameter : parameters) names.push_back(parameter.name);
  return names;
}

using Names = std::vector<std::string>;

}  // namespace

TEST_CASE("the smallest sizes are those at which the same goes wrong") {
  const auto smallest = [](const std::string& layout, const std::string& by, const std::string& batch = even) {
    const CheckResult result = checked(layout, sum_and_scale(by), batch);
    REQUIRE(result.verdict == Verdict::mismatch);
    return diagnosis::smallest_layout(result).sizes.to_string();
  };
  CHECK(smallest(R"({ "dp": 4 })", "1") == "dp 2");
  CHECK(smallest(R"({ "dp": 4, "cp": 4 })", "1") == "cp 2, dp 2");
  // As small as it is written.
  CHECK(smallest(R"({ "dp": 2 })", "1").empty());
  // At two it is right, at three it is not.
  CHECK(smallest(R"({ "dp": 4 })", "1/2") == "dp 3");
  CHECK(smallest(R"({ "dp": 3 })", "1/2").empty());
  CHECK(smallest(R"({ "dp": 5, "tp": 4 })", "1/2") == "tp 2, dp 3");
  CHECK(smallest(R"({ "dp": 5 })", "1 / min(dp, 3)").empty());
  const std::string four = R"({ "micro_batches": 4, "tokens": "even", "loss": "sum" })";
  CHECK(smallest(R"({ "dp": 2 })", "2", four) == "micro-batches 2");
  CHECK(smallest(R"({ "dp": 4 })", "2", four) == "dp 2, micro-batches 2");
  CHECK(smallest(R"({ "dp": 4 })", "3 / min(micro_batches, 4)", four) == "dp 2, micro-batches 2");
  CHECK(smallest(R"({ "dp": 4 })", "2 / min(micro_batches, 4)", four) == "dp 2");
  const std::string steps = R"({ "micro_batches": [4, 3], "steps": 2, "tokens": "even", "loss": "sum" })";
  CHECK(smallest(R"({ "dp": 2 })", "2", steps) == "micro-batches 2");
}

TEST_CASE("a file at other sizes has them in every optimizer step, and expects nothing") {
  const std::shared_ptr<const Scenario> file = scenario_at(
      R"({ "dp": 4, "tp": 2 })", one_weight, "", R"({ "micro_batches": [4, 3], "steps": 2, "tokens": "even" })");
  const std::shared_ptr<const Scenario> there = diagnosis::read_at(*file, {{{"dp", 3}, {"cp", 2}}, 2});
  REQUIRE(there != nullptr);
  CHECK(there->layout.dp == 3);
  CHECK(there->layout.cp == 2);
  CHECK(there->layout.tp == 2);
  CHECK(there->schedule->batch.micro_batch_counts == std::vector<int>{2, 2});
  CHECK(diagnosis::most_micro_batches(*file) == 4);
  CHECK(diagnosis::read_at(*file, {})->schedule->batch.micro_batch_counts == std::vector<int>{4, 3});
  CHECK(diagnosis::read_at(*file, {{{"dp", 3}}, 0})->schedule->batch.micro_batch_counts == std::vector<int>{4, 3});
  CHECK(diagnosis::read_at(*file, {{{"dp", 0}}, 0}) == nullptr);
  const auto expecting = std::make_shared<const Source>(
      Source{"test.json", two_ranks(mean_step, R"(, "expect": { "verdict": "match" })")});
  const Scenario written = read_scenario(expecting);
  REQUIRE(written.expect);
  const Json changed = diagnosis::read_at(written, {{}, 3})->document;
  CHECK(changed.find("expect") == nullptr);
  CHECK(changed.find("batch")->find("micro_batches")->text() == "3");
  CHECK(changed.find("layout")->find("dp")->text() == "2");
}

TEST_CASE("beside another size of a part, dp is what the file says") {
  const auto parts = scenario_at(R"({ "dp": 4, "dp_shard": 2 })", one_weight, "", "{}");
  CHECK(diagnosis::read_at(*parts, {{{"dp_shard", 1}}, 0})->layout.dp_replicate == 4);
  const auto alone = scenario_at(R"({ "dp_shard": 2, "dp_replicate": 2 })", one_weight, "", "{}");
  CHECK(diagnosis::read_at(*alone, {{{"dp_shard", 1}}, 0})->layout.dp == 2);
}

TEST_CASE("a list of tokens is read for its own micro-batches alone") {
  const auto listed = [](const std::string& batch) {
    return scenario_at(R"({ "dp": 1, "pp": 2 })", one_weight, "", "{ " + batch + " }");
  };
  // For each of two optimizer steps: with two micro-batches it would be that of one step, used again.
  for (const char* tokens : {"[[[[1]]], [[[3]]]]", R"({ "main": "even", "main_again": [[[[1]]], [[[3]]]] })"}) {
    const auto text = std::string(R"("steps": 2, "micro_batches": 1, "loss": { "weight": "1 / tokens)") +
                      (tokens[0] == '{' ? ".main_again\" }" : "\" }") + R"(, "tokens": )" + tokens;
    INFO(text);
    const auto file = listed(text);
    CHECK(diagnosis::read_at(*file, {{}, 2}) == nullptr);
    CHECK(diagnosis::read_at(*file, {{}, 3}) == nullptr);
    REQUIRE(diagnosis::read_at(*file, {{{"pp", 3}}, 1}) != nullptr);
    CHECK(diagnosis::read_at(*file, {{{"pp", 3}}, 0})->layout.pp == 3);
  }
  // Of one step with two micro-batches, and of steps with three and one.
  CHECK(diagnosis::read_at(*listed(R"("steps": 2, "micro_batches": 2, "tokens": [[[[1]]], [[[3]]]])"), {{}, 1}) ==
        nullptr);
  const auto unequal = listed(R"("steps": 2, "micro_batches": [3, 1], "tokens": [[[[1]]], [[[3]]], [[[5]]], [[[7]]]])");
  CHECK(diagnosis::read_at(*unequal, {{}, 2}) == nullptr);
  CHECK(diagnosis::read_at(*unequal, {{{"pp", 1}}, 0}) != nullptr);
  CHECK(diagnosis::read_at(*listed(R"("steps": 2, "micro_batches": [3, 1], "tokens": "even")"), {{}, 2}) != nullptr);
}

TEST_CASE("around the smallest sizes each axis in play and the micro-batches are at one to four, and three") {
  const auto around = [](const std::string& layout, const FileSizes& smallest, const std::string& batch) {
    Names list;
    for (const auto& [of, sizes] : diagnosis::sizes_around(*scenario_at(layout, one_weight, "", batch), smallest))
      list.push_back(of + ": " + sizes.to_string());
    return list;
  };
  CHECK(around(R"({ "dp": 8, "tp": 1 })", {{{"dp", 2}}, 0}, even) == Names{"dp: dp 1", "dp: dp 3", "dp: dp 4",
                                                                           "micro_batches: dp 2, micro-batches 2",
                                                                           "micro_batches: dp 2, micro-batches 3"});
  CHECK(around(R"({ "dp": 3, "tp": 4 })", {{{"tp", 2}}, 2}, R"({ "micro_batches": 8, "tokens": "even" })") ==
        Names{"dp: tp 2, dp 1, micro-batches 2", "dp: tp 2, dp 2, micro-batches 2", "dp: tp 2, dp 4, micro-batches 2",
              "tp: tp 1, micro-batches 2", "tp: tp 3, micro-batches 2", "tp: tp 4, micro-batches 2",
              "micro_batches: tp 2, micro-batches 1", "micro_batches: tp 2, micro-batches 3"});
  CHECK(around(R"({ "dp": 1 })", {}, R"({ "micro_batches": 3, "tokens": "even" })") ==
        Names{"micro_batches: micro-batches 1", "micro_batches: micro-batches 2"});
}

TEST_CASE("an edit is tried at the sizes around, where it can be applied, and the first that is wrong is named") {
  const CheckResult result = checked(R"({ "dp": 4 })", sum_and_scale("1"));
  diagnosis::Neighbours neighbours(*result.scenario, {{{"dp", 2}}, 0});
  const auto tried = [&](const Edit& edit) {
    diagnosis::FoundRepair repair;
    diagnosis::Candidate candidate;
    candidate.edit = edit;
    repair.edits = {candidate};
    neighbours.try_on(repair);
    const diagnosis::FoundRepair once = repair;
    neighbours.try_on(repair);
    CHECK(repair.sizes == once.sizes);
    return once;
  };
  const auto by = [](const std::string& text) {
    Step values;
    values.by = Expression::parse(text);
    values.keys = {"by"};
    return Edit::set("s", values);
  };
  // dp 1, 3 and 4, and two and three micro-batches, for which nothing divides.
  const diagnosis::FoundRepair right = tried(by("1 / (dp * micro_batches)"));
  CHECK(right.sizes == 5);
  CHECK(right.everywhere());
  CHECK(right.wrong_at.empty());
  const diagnosis::FoundRepair half = tried(by("1 / (2 * micro_batches)"));
  CHECK(half.sizes == 5);
  CHECK(half.right_sizes == 2);
  CHECK(half.wrong_at == "dp 1");
  CHECK_FALSE(half.everywhere());
  const diagnosis::FoundRepair late = tried(by("1 / min(dp * micro_batches, 3)"));
  CHECK(late.right_sizes == 2);
  CHECK(late.wrong_at == "dp 4");
  CHECK(tried(Edit::drop("nothing")).sizes == 0);
}

TEST_CASE("parameters of one class are placed, tagged, tied and selected alike") {
  const auto classes = [](const std::string& parameters, const std::string& params = "") {
    return names_of(diagnosis::one_of_each_class(
        *scenario_at(R"({ "dp": 2, "tp": 2 })", "[" + parameters + "]",
                     R"(, { "name": "mean", "op": "all_reduce", "over": "dp")" + params + " }", even)
             ->schedule));
  };
  const std::string four = R"({ "name": "l.0.w", "shape": [4] }, { "name": "l.1.w", "shape": [8] },
                              { "name": "l.2.w", "shape": [4], "tags": ["t"] }, { "name": "l.3.w", "shape": [4], "partial": ["tp"] })";
  CHECK(classes(four) == Names{"l.0.w", "l.2.w", "l.3.w"});
  CHECK(classes(four, R"(, "params": ["l.1.w"])") == Names{"l.0.w", "l.1.w", "l.2.w", "l.3.w"});
  CHECK(classes(four, R"(, "params": ["!l.1.w", "l.*"])") == Names{"l.0.w", "l.1.w", "l.2.w", "l.3.w"});
  CHECK(classes(four, R"(, "params": ["numel<8"])") == Names{"l.0.w", "l.1.w", "l.2.w", "l.3.w"});
  CHECK(classes(four, R"(, "params": ["l.*"])") == Names{"l.0.w", "l.2.w", "l.3.w"});
  CHECK(classes(R"({ "name": "a", "shape": [4] }, { "name": "b", "shape": [4] })") == Names{"a", "b"});
  // Tied ones stay together, though they are alike.
  CHECK(classes(R"({ "name": "e.0", "shape": [4], "tied": "e" }, { "name": "e.1", "shape": [4], "tied": "e" },
                   { "name": "l.0", "shape": [4] }, { "name": "l.1", "shape": [4] })") == Names{"e.0", "e.1", "l.0"});
}

TEST_CASE("a few that are wrong are placed in different ways, with what is tied to them and the uses that there are") {
  const auto few = [](const std::string& parameters, const std::set<std::string>& wrong) {
    return names_of(
        diagnosis::few_of(scenario_at(R"({ "dp": 2, "tp": 2, "cp": 2, "pp": 2 })", "[" + parameters + "]", "", even)
                              ->schedule->model.parameters(),
                          wrong));
  };
  const std::string list = R"({ "name": "a", "shape": [4] }, { "name": "b", "shape": [4], "tags": ["t"] },
    { "name": "c", "shape": [4], "partial": ["tp"] }, { "name": "d", "shape": [4], "partial": ["cp"] },
    { "name": "e", "shape": [4], "shard": { "tp": 0 } }, { "name": "f", "shape": [4], "stage": 1 })";
  CHECK(few(list, {"a", "b", "c"}) == Names{"a", "c"});
  CHECK(few(list, {"b", "f"}) == Names{"b", "f"});
  CHECK(few(list, {"a", "b", "c", "d", "e", "f"}) == Names{"a", "c", "d", "e"});  // four
  CHECK(few(R"({ "name": "in", "shape": [4], "tied": "t" }, { "name": "w", "shape": [4] },
               { "name": "out", "shape": [4], "stage": 1, "tied": "t" })",
            {"out"}) == Names{"out", "in"});
  const std::string uses =
      R"({ "name": "w", "shape": [4], "uses": ["main"] }, { "name": "v", "shape": [4], "uses": ["main"] },
    { "name": "head", "shape": [4], "uses": ["main", "aux"] })";
  CHECK(few(uses, {"w"}) == Names{"w", "head"});
  CHECK(few(uses, {"head"}) == Names{"head"});
}
