// SPDX-License-Identifier: Apache-2.0
// Edits as values: what a file lists is read into them with its places, and what is written of them reads back.
#include "lockstep/edit.h"

#include "lockstep/scenario.h"
#include "tests/catch.h"

using namespace lockstep;

namespace {

Scenario with_list(const Json& edits) {
  Diagnostics diagnostics;
  Json document = parse_json(std::make_shared<const Source>(Source{"edits.json", R"({
    "lockstep": 1, "layout": { "dp": 2 }, "batch": { "micro_batches": 3 },
    "model": { "parameters": [ { "name": "w", "shape": [4] }, { "name": "v", "shape": [4], "tags": ["norm"] } ] },
    "schedule": { "steps": [
      { "name": "zero", "op": "zero" },
      { "name": "each", "op": "each", "steps": [
        { "name": "backward", "op": "backward" }, { "name": "scale", "op": "scale", "by": 1 } ] },
      { "name": "mean", "op": "all_reduce", "over": "dp", "reduce": "avg" } ] } })"}),
                             diagnostics);
  Json schedule = *document.find("schedule");
  schedule.set("edits", edits);
  document.set("schedule", schedule);
  return read_scenario(document, "edits.json");
}

}  // namespace

TEST_CASE("edits of every action are written as a scenario lists them, and read back") {
  Step other = with_list(Json::array()).schedule->steps.back();
  other.name = "again";
  Step values;
  values.params = Selectors({"w"});
  values.geometry.own().kind = Geometry::Kind::bucket;
  values.geometry.own().separate = Selectors({"v"});
  values.op = Op::reduce_scatter;
  values.keys = {"params", "op", "geometry.kind", "geometry.separate"};
  Edit backward_first = Edit::duplicate("scale");
  backward_first.step.iteration = "-1";
  const std::vector<Edit> edits = {
      Edit::drop("zero"),
      Edit::drop("backward", "first"),
      Edit::duplicate("mean"),
      backward_first,
      Edit::move("mean", "each", false),
      Edit::insert(other, "mean.2", true),
      Edit::set("again", values, {"reduce"}),
      Edit::set_parameter("v", {{"tags", {}, Json()}}),
  };
  const Json written = to_json(edits);
  const Scenario read = with_list(written);
  REQUIRE(read.edits.size() == edits.size());
  CHECK(to_json(read.edits).same_as(written));
  for (std::size_t index = 0; index < edits.size(); ++index) {
    INFO(write_json(to_json(edits[index])));
    CHECK(read.edits[index].action == edits[index].action);
    CHECK(read.edits[index].step.to_string() == edits[index].step.to_string());
    CHECK(read.edits[index].beside.name == edits[index].beside.name);
    CHECK(read.edits[index].after == edits[index].after);
  }
  CHECK(read.edits[3].step.iteration == "-1");
  CHECK(read.edits[5].values == other);
  const Edit& set = read.edits[6];
  CHECK(set.values.params == values.params);
  CHECK(set.values.geometry->separate == values.geometry->separate);
  CHECK(set.removed == std::vector<std::string_view>{"reduce"});
  for (const char* key : {"reduce", "params", "op", "geometry"}) CHECK(set.changes(key));
  CHECK_FALSE(set.changes("over"));
  // What came of them.
  const std::vector<Step>& steps = read.schedule->steps;
  REQUIRE(steps.size() == 4);
  CHECK(steps[0].name == "mean");
  CHECK(steps[1].steps.size() == 3);
  CHECK(steps[3].name == "again");
  CHECK(steps[3].reduction == Reduction::sum);
  CHECK(steps[3].params.items() == std::vector<std::string>{"w"});
  CHECK(steps[3].geometry->kind == Geometry::Kind::bucket);
  CHECK(steps[3].op == Op::reduce_scatter);
  CHECK(read.schedule->model.parameters()[1].tags.empty());
}

TEST_CASE("an edit that is read knows where each of its parts was written") {
  const std::string text = R"({ "lockstep": 1, "model": { "parameters": [ { "name": "w", "shape": [4] } ] },
    "schedule": { "steps": [ { "name": "a", "op": "zero" }, { "name": "each", "op": "each", "steps": [ { "name": "b", "op": "backward" } ] } ],
      "edits": [ { "move": "a", "after": "b[0]" } ] } })";
  const Scenario read = read_scenario(std::make_shared<const Source>(Source{"places.json", text}));
  REQUIRE(read.edits.size() == 1);
  const Edit& edit = read.edits.front();
  const auto written = [&](const Place& place) { return text.substr(place.begin, place.end - place.begin); };
  CHECK(written(edit.place) == R"({ "move": "a", "after": "b[0]" })");
  CHECK(written(edit.step.place) == "\"a\"");
  CHECK(written(edit.beside.place) == "\"b[0]\"");
}
