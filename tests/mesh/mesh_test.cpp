// SPDX-License-Identifier: Apache-2.0
#include "lockstep/mesh.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "lockstep/diagnostic.h"
#include "lockstep/json.h"
#include "tests/catch.h"

using namespace lockstep;

namespace {

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);) parts.push_back(part);
  return parts;
}

std::vector<Axis> order(const std::string& text) {
  std::vector<Axis> axes;
  for (const std::string& name : split(text, '-')) axes.push_back(axis_named(name).value());
  return axes;
}

Layout layout_from(const Json& json) {
  Layout layout;
  const auto set = [&](const char* key, int& target) {
    if (const Json* value = json.find(key)) target = std::stoi(value->text());
  };
  set("tp", layout.tp);
  set("cp", layout.cp);
  set("dp", layout.dp);
  set("pp", layout.pp);
  set("ep", layout.ep);
  set("etp", layout.etp);
  layout.dp_shard = layout.dp;
  if (const Json* value = json.find("order")) layout.order = order(value->text());
  return layout;
}

/// "tp dp" or "pp=first,last".
Over over_from(const std::string& text, const Mesh& mesh) {
  Over over;
  for (const std::string& part : split(text, ' ')) {
    const std::vector<std::string> sides = split(part, '=');
    Over::Pick pick{axis_named(sides[0]).value(), std::nullopt};
    if (sides.size() == 2) {
      pick.coordinates.emplace();
      for (const std::string& end : split(sides[1], ',')) {
        pick.coordinates->push_back(end == "first" ? 0 : mesh.size(pick.axis) - 1);
      }
    }
    over.picks.push_back(pick);
  }
  return over;
}

std::string to_text(const Groups& groups) {
  std::string text;
  for (const std::vector<int>& members : groups.members) {
    if (!text.empty()) text += '|';
    for (std::size_t i = 0; i < members.size(); ++i) text += (i ? " " : "") + std::to_string(members[i]);
  }
  return text;
}

}  // namespace

TEST_CASE("groups are those that Megatron-core builds") {
  const std::filesystem::path file = std::filesystem::path(LOCKSTEP_SOURCE_DIR) / "tests/mesh/megatron_groups.json";
  std::ifstream stream(file);
  std::ostringstream text;
  text << stream.rdbuf();
  Diagnostics diagnostics;
  const Json cases = parse_json(std::make_shared<Source>(Source{file.string(), text.str()}), diagnostics);
  REQUIRE(diagnostics.empty());
  CHECK(cases.items().size() == 5);
  for (const Json& entry : cases.items()) {
    const Mesh mesh(layout_from(*entry.find("layout")));
    INFO(write_json(*entry.find("layout")));
    for (const Json::Member& expected : entry.find("groups")->members()) {
      INFO(expected.key);
      std::vector<std::string> groups = split(expected.value.text(), '|');
      std::sort(groups.begin(), groups.end(),
                [](const std::string& a, const std::string& b) { return std::stoi(a) < std::stoi(b); });
      std::string sorted;
      for (const std::string& group : groups) sorted += (sorted.empty() ? "" : "|") + group;
      CHECK(to_text(mesh.groups(over_from(expected.key, mesh))) == sorted);
    }
  }
}

TEST_CASE("the leftmost axis of the order varies fastest") {
  Layout layout;
  layout.tp = 2, layout.dp = 3, layout.dp_shard = 3, layout.pp = 2;
  layout.order = order("dp-pp-tp");
  const Mesh mesh(layout);
  CHECK(mesh.world() == 12);
  CHECK(mesh.coordinate(1, Axis::dp) == 1);
  CHECK(mesh.coordinate(3, Axis::pp) == 1);
  CHECK(mesh.coordinate(6, Axis::tp) == 1);
  CHECK(mesh.size(Axis::edp) == 6);
}

TEST_CASE("dp_shard is the fast part of dp") {
  Layout layout;
  layout.tp = 2, layout.dp = 4, layout.dp_shard = 2, layout.dp_replicate = 2;
  const Mesh mesh(layout);
  CHECK(to_text(mesh.groups({{{Axis::dp_shard, std::nullopt}}})) == "0 2|1 3|4 6|5 7");
  CHECK(to_text(mesh.groups({{{Axis::dp_replicate, std::nullopt}}})) == "0 4|1 5|2 6|3 7");
  CHECK(to_text(mesh.groups({{{Axis::dp, std::nullopt}}})) == "0 2 4 6|1 3 5 7");
  CHECK(to_text(mesh.groups({{{Axis::dp, std::vector<int>{0, 3}}}})) == "0 6|1 7");
}

TEST_CASE("dp_replicate cuts edp too, where it can") {
  Layout layout;
  layout.tp = 2, layout.dp = 4, layout.dp_shard = 2, layout.dp_replicate = 2, layout.ep = 2;
  const Mesh mesh(layout);
  CHECK(mesh.size(Axis::edp_shard) == 2);
  CHECK(to_text(mesh.groups({{{Axis::edp_shard, std::nullopt}}})) == "0 2|1 3|4 6|5 7");
  CHECK(to_text(mesh.groups({{{Axis::edp_replicate, std::nullopt}}})) == "0 4|1 5|2 6|3 7");
  CHECK(to_text(mesh.groups({{{Axis::edp, std::nullopt}}})) == "0 2 4 6|1 3 5 7");
  CHECK(layout.splits_edp());
  layout.ep = 8;
  CHECK_FALSE(layout.splits_edp());
  CHECK(Mesh(layout).size(Axis::edp_replicate) == 1);
}

TEST_CASE("ranks that a pick leaves out are in no group") {
  Layout layout;
  layout.pp = 3, layout.dp = 2, layout.dp_shard = 2;
  const Groups groups = Mesh(layout).groups({{{Axis::pp, std::vector<int>{0, 2}}}});
  CHECK(to_text(groups) == "0 4|1 5");
  CHECK(groups.group_of == std::vector<int>{0, 1, -1, -1, 0, 1});
  CHECK(to_text(Mesh(layout).groups({})) == "0|1|2|3|4|5");
}

TEST_CASE("meshes whose pipeline groups differ are told apart") {
  Layout layout;
  layout.tp = 2, layout.dp = 2, layout.dp_shard = 2, layout.pp = 2, layout.etp = 1;
  CHECK(Mesh(layout).pipeline_groups_agree());
  layout.order = order("tp-pp-dp");
  const Mesh mesh(layout);
  CHECK_FALSE(mesh.pipeline_groups_agree());
  CHECK(mesh.coordinate(2, Axis::pp) == 1);
  // The expert mesh is etp 1, pp 2, edp 4: its own pp has stride 1.
  CHECK(to_text(mesh.groups({{{Axis::edp, std::nullopt}}})) == "0 2 4 6|1 3 5 7");
  layout.etp = 2;
  CHECK(Mesh(layout).pipeline_groups_agree());
}

TEST_CASE("axes of both meshes make no group") {
  const Mesh mesh{Layout{}};
  CHECK_THROWS_AS(mesh.groups({{{Axis::ep, std::nullopt}, {Axis::dp, std::nullopt}}}), InternalError);
}

TEST_CASE("axis names go both ways") {
  for (const std::string& name : axis_names()) CHECK(name_of(axis_named(name).value()) == name);
  CHECK_FALSE(axis_named("dq"));
}
