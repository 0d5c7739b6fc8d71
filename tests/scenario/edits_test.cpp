// SPDX-License-Identifier: Apache-2.0
#include "tests/catch.h"
#include "tests/scenario/mistakes.h"

using namespace lockstep;

namespace {

/// The steps after an edit, one line for the top level and each `each`: "a b[c d] e".
std::string outline(const Json& steps) {
  std::string line;
  for (const Json& step : steps.items()) {
    const Json* name = step.find("name");
    line += (line.empty() ? "" : " ") + (name != nullptr ? name->text() : "wait:" + step.find("for")->text());
    if (const Json* when = step.find("when")) line += "{" + when->text() + "}";
    if (const Json* body = step.find("steps")) line += "[" + outline(*body) + "]";
  }
  return line;
}

Json steps_after(const std::string& edits, const std::string& inner = "", const std::string& step = "") {
  std::map<std::string, std::string> parts = {{"edit", edits}, {"batch", "{ \"micro_batches\": 3 }"}};
  if (!inner.empty()) parts["inner"] = inner;
  if (!step.empty()) parts["step"] = step;
  const Scenario scenario = read_scenario(std::make_shared<const Source>(Source{"test.json", scenario_with(parts)}));
  return *scenario.resolved.find("schedule")->find("steps");
}

std::string after(const std::string& edits, const std::string& inner = "", const std::string& step = "") {
  return outline(steps_after(edits, inner, step));
}

const std::string zero_inside = R"({ "name": "zero", "op": "zero", "when": "dp > 1 or pp > 1" })";

}  // namespace

TEST_CASE("drop leaves a step out, with the waits for it") {
  CHECK(after(R"({ "drop": "dp_all_reduce" })") == "micro_batches[backward]");
  CHECK(after(R"({ "drop": "zero" })", zero_inside) == "micro_batches[backward] dp_all_reduce");
  CHECK(after(R"({ "drop": "dp_all_reduce" })", "", R"({ "op": "wait", "for": "dp_all_reduce" })") ==
        "micro_batches[backward]");
  CHECK(after(R"({ "drop": "micro_batches" })") == "dp_all_reduce");
}

TEST_CASE("drop of an iteration leaves out that one alone") {
  CHECK(after(R"({ "drop": "backward[1]" })") == "micro_batches[backward{micro_batch != 1}] dp_all_reduce");
  CHECK(after(R"({ "drop": "backward[-2]" })") ==
        "micro_batches[backward{micro_batch != micro_batches - 2}] dp_all_reduce");
  CHECK(after(R"({ "drop": "zero[last]" })", zero_inside) ==
        "micro_batches[backward zero{micro_batch != last and (dp > 1 or pp > 1)}] dp_all_reduce");
  CHECK(after(R"({ "drop": "micro_batches[0]" })", zero_inside) ==
        "micro_batches[backward{micro_batch != 0} zero{micro_batch != 0 and (dp > 1 or pp > 1)}] dp_all_reduce");
}

TEST_CASE("duplicate runs a step again right behind it, under a name of its own") {
  CHECK(after(R"({ "duplicate": "dp_all_reduce" }, { "duplicate": "dp_all_reduce" })") ==
        "micro_batches[backward] dp_all_reduce dp_all_reduce.3 dp_all_reduce.2");
  CHECK(after(R"({ "duplicate": "backward[first]" })") ==
        "micro_batches[backward backward.2{micro_batch == 0}] dp_all_reduce");
  CHECK(after(R"({ "duplicate": "micro_batches" })", R"({ "op": "wait", "for": "backward" })") ==
        "micro_batches[backward wait:backward] micro_batches.2[backward.2 wait:backward.2] dp_all_reduce");
}

TEST_CASE("move puts a step elsewhere") {
  CHECK(after(R"({ "move": "dp_all_reduce", "before": "micro_batches" })") == "dp_all_reduce micro_batches[backward]");
  CHECK(after(R"({ "move": "zero", "after": "dp_all_reduce" })", zero_inside) ==
        "micro_batches[backward] dp_all_reduce zero{dp > 1 or pp > 1}");
  CHECK(after(R"({ "move": "dp_all_reduce", "before": "backward" })") == "micro_batches[dp_all_reduce backward]");
}

TEST_CASE("a place in one iteration is that of the unrolled each") {
  CHECK(after(R"({ "move": "dp_all_reduce", "after": "backward[0]" })") ==
        "micro_batches[backward dp_all_reduce{micro_batch == 0}]");
  CHECK(after(R"({ "move": "dp_all_reduce", "before": "backward[-1]" })") ==
        "micro_batches[dp_all_reduce{micro_batch == last} backward]");
  CHECK(after(R"({ "move": "dp_all_reduce", "after": "micro_batches[1]" })", zero_inside) ==
        "micro_batches[backward zero{dp > 1 or pp > 1} dp_all_reduce{micro_batch == 1}]");
  CHECK(after(R"({ "move": "dp_all_reduce", "before": "micro_batches[last]" })") ==
        "micro_batches[dp_all_reduce{micro_batch == last} backward]");
  // It was the one that there is not: behind the last.
  CHECK(after(R"({ "move": "dp_all_reduce", "after": "backward[-0]" })") ==
        "micro_batches[backward dp_all_reduce{micro_batch == 0}]");
}

TEST_CASE("insert adds a step") {
  CHECK(after(R"({ "insert": { "name": "x", "op": "zero" }, "before": "micro_batches" })") ==
        "x micro_batches[backward] dp_all_reduce");
  CHECK(after(R"({ "insert": { "name": "x", "op": "zero", "when": "pp == 2" }, "after": "backward[0]" })") ==
        "micro_batches[backward x{micro_batch == 0 and (pp == 2)}] dp_all_reduce");
}

TEST_CASE("set replaces keys, null removes them, and a geometry is merged key by key") {
  const std::string scatter =
      R"({ "name": "x", "op": "reduce_scatter", "over": "dp", "reduce": "avg", "geometry": { "kind": "bucket", "size": 5, "separate": ["w"] } })";
  Json x =
      steps_after(
          R"({ "set": "x", "reduce": null, "over": ["dp", "cp"], "geometry": { "separate": [], "size": null, "align_bucket": 2 } })",
          "", scatter)
          .items()[2];
  CHECK(x.find("reduce") == nullptr);
  CHECK(x.find("over")->items().size() == 2);
  CHECK(x.find("geometry")->find("kind")->text() == "bucket");
  CHECK(x.find("geometry")->find("size") == nullptr);
  CHECK(x.find("geometry")->find("separate")->items().empty());
  CHECK(x.find("geometry")->find("align_bucket")->text() == "2");
  x = steps_after(R"({ "set": "x", "geometry": { "kind": "flat" } })", "", scatter).items()[2];
  CHECK(x.find("geometry")->members().size() == 1);
  x = steps_after(R"({ "set": "x", "geometry": null })", "", scatter).items()[2];
  CHECK(x.find("geometry") == nullptr);
}

TEST_CASE("edits see what those before them did") {
  CHECK(
      after(
          R"({ "insert": { "name": "x", "op": "zero" }, "after": "dp_all_reduce" }, { "move": "x", "before": "dp_all_reduce" }, { "drop": "dp_all_reduce" })") ==
      "micro_batches[backward] x");
}

TEST_CASE("an edit of parameters changes all that its selectors choose") {
  const auto parameters_after = [](const std::string& edit) {
    const std::string text = scenario_with({{"edit", edit}});
    return read_scenario(std::make_shared<const Source>(Source{"test.json", text})).schedule->model.parameters();
  };
  CHECK(parameters_after(R"({ "parameter": "*", "dtype": "float64" })")[1].dtype == Dtype::float64);
  CHECK(parameters_after(R"({ "parameter": "tag:norm", "tags": null, "frozen": true })")[0].frozen);
  CHECK_FALSE(parameters_after(R"({ "parameter": "tag:norm", "tags": null, "frozen": true })")[1].frozen);
  CHECK(parameters_after(R"({ "parameter": "tag:norm", "tags": null, "frozen": true })")[0].tags.empty());
  CHECK(parameters_after(R"({ "parameter": "numel<10", "shape": [12] })")[1].shape == std::vector<std::int64_t>{12});
  CHECK(parameters_after(R"({ "parameter": "v", "stage": null })")[1].stage == 0);
}

TEST_CASE("an edit of parameters chooses among those that edits before it left") {
  const auto parameters_after = [](const std::string& edit) {
    const std::string text = scenario_with({{"edit", edit}});
    return read_scenario(std::make_shared<const Source>(Source{"test.json", text})).schedule->model.parameters();
  };
  const auto renamed = parameters_after(
      R"({ "parameter": "v", "name": "u" }, { "parameter": "u", "dtype": "float64" }, { "parameter": "u", "name": "v" }, { "parameter": "v", "frozen": true })");
  CHECK(renamed[1].name == "v");
  CHECK(renamed[1].dtype == Dtype::float64);
  CHECK(renamed[1].frozen);
  const auto grown = parameters_after(
      R"({ "parameter": "*", "shape": [12] }, { "parameter": "numel>=12", "tags": ["large"] }, { "parameter": "tag:large", "dtype": "bfloat16" })");
  CHECK(grown[0].dtype == Dtype::bfloat16);
  CHECK(grown[1].dtype == Dtype::bfloat16);
  CHECK_THROWS_AS(parameters_after(R"({ "parameter": "v", "name": "u" }, { "parameter": "v", "frozen": true })"),
                  InputError);
}
