// SPDX-License-Identifier: Apache-2.0
#include "lockstep/report.h"
#include "src/report/geometry_classes.h"
#include "src/report/placements.h"
#include "tests/catch.h"
#include "tests/diagnosis/small.h"

using namespace lockstep;
using namespace lockstep::test;

namespace {

Scenario read(const std::string& text) {
  return read_scenario(std::make_shared<const Source>(Source{"case.json", text}));
}

Json ranks(const std::vector<std::vector<int>>& groups) {
  std::vector<Json> lists;
  for (const std::vector<int>& group : groups) {
    std::vector<Json> list;
    for (const int rank : group) list.push_back(Json::number(std::to_string(rank)));
    lists.push_back(Json::array(list));
  }
  return Json::array(lists);
}

}  // namespace

TEST_CASE("the geometry of a reduce-scatter gives each member's slice of each parameter") {
  const Scenario scenario = read(megatron_844());
  const Timeline timeline = walk(*scenario.schedule);
  const std::vector<report::GeometryClass> classes = report::geometry_classes(*scenario.schedule, timeline);
  REQUIRE(classes.size() == 2);
  CHECK(classes[0].groups == std::vector<std::vector<int>>{{0, 1}});
  REQUIRE(classes[0].buckets.size() == 1);
  CHECK(classes[0].buckets[0].end == 220);
  REQUIRE(classes[0].parameters.size() == 2);
  // Reverse model order: the layer lies first.
  CHECK(classes[0].parameters[0].parameter == 1);
  CHECK(classes[0].parameters[1].position == 70);
  CHECK(classes[0].parameters[1].slices == std::vector<Interval>{{0, 40}, {40, 150}});
  CHECK(classes[1].groups == std::vector<std::vector<int>>{{2, 3}});
}

TEST_CASE("groups that are cut alike are one class") {
  const Scenario scenario = read(lockstep::test::scenario_text(
      R"({ "tp": 2, "dp": 2 })", R"([ { "name": "weight", "shape": [8] } ])",
      R"([ { "name": "micro_batches", "op": "each", "steps": [ { "name": "backward", "op": "backward" } ] },
           { "name": "scatter", "op": "reduce_scatter", "over": "dp", "reduce": "avg" } ])"));
  const std::vector<report::GeometryClass> classes =
      report::geometry_classes(*scenario.schedule, walk(*scenario.schedule));
  REQUIRE(classes.size() == 1);
  CHECK(classes[0].groups == std::vector<std::vector<int>>{{0, 2}, {1, 3}});
}

TEST_CASE("a reduce-scatter of every micro-batch is shown once") {
  std::string text = lockstep::test::scenario_text(R"({ "dp": 2 })", R"([ { "name": "weight", "shape": [8] } ])",
                                                   R"([ { "name": "micro_batches", "op": "each", "steps": [
                                                     { "name": "backward", "op": "backward" },
                                                     { "name": "scatter", "op": "reduce_scatter", "over": "dp" } ] } ])");
  const std::string one = R"("micro_batches": 1,)";
  text.replace(text.find(one), one.size(), R"("micro_batches": 3,)");
  const Scenario scenario = read(text);
  const std::vector<report::GeometryClass> classes =
      report::geometry_classes(*scenario.schedule, walk(*scenario.schedule));
  REQUIRE(classes.size() == 1);
  CHECK(classes[0].groups == std::vector<std::vector<int>>{{0, 1}});
}

TEST_CASE("placements are written as in DTensor, on axes larger than 1") {
  Layout layout;
  layout.tp = 2;
  layout.dp = layout.dp_shard = 2;
  const Mesh mesh(layout);
  Parameter parameter;
  parameter.shape = {8, 8};
  using List = std::vector<std::pair<std::string, std::string>>;
  CHECK(report::placements(mesh, parameter) == List{{"dp", "R"}, {"tp", "R"}});
  parameter.partial = {Axis::tp};
  CHECK(report::placements(mesh, parameter) == List{{"dp", "R"}, {"tp", "P"}});
  parameter.partial.clear();
  parameter.shard = {{Axis::tp, 1, false}};
  CHECK(report::placements(mesh, parameter) == List{{"dp", "R"}, {"tp", "S(1)"}});
}

TEST_CASE("show as JSON holds layout, groups, geometry, parameters and steps") {
  std::string text;
  show_json(read(megatron_844()), [&](std::string_view part) { text += part; });
  Diagnostics diagnostics;
  const Json json = parse_json(std::make_shared<const Source>(Source{"show", text}), diagnostics);
  REQUIRE(diagnostics.empty());
  for (const char* key : {"layout", "groups", "geometry", "parameters", "steps"}) {
    INFO(key);
    CHECK(json.find(key) != nullptr);
  }
  CHECK(json.find("groups")->find("axes")->find("pp")->same_as(ranks({{0, 2}, {1, 3}})));
  CHECK(json.find("groups")->find("steps")->find("embedding_all_reduce")->same_as(ranks({{0, 2}, {1, 3}})));
  CHECK(json.find("steps")->items().size() == 4);
}

TEST_CASE("show as text lists groups, parameters and steps") {
  std::string text;
  show_text(read(megatron_844()), false, [&](std::string_view part) { text += part; });
  for (const char* part : {"process groups\n  dp            [0, 1] [2, 3]\n", "layers.*.weight (2)   pp 0-1   [70]\n",
                           "embedding_all_reduce   all_reduce over {pp: [0, 1]}; params [tied:embedding]\n"}) {
    INFO(text);
    CHECK(text.find(part) != std::string::npos);
  }
}
