// SPDX-License-Identifier: Apache-2.0
#include "src/schedule/selector_list.h"
#include "tests/catch.h"

using namespace lockstep;

namespace {

Parameter parameter() {
  Parameter parameter;
  parameter.name = "layers.11.norm.weight";
  parameter.tags = {"norm"};
  parameter.tied = "words";
  return parameter;
}

bool fits(const char* item) { return Selectors::fits(item, parameter(), 64); }
bool chooses(std::vector<std::string> items) { return Selectors(std::move(items)).chooses(parameter(), 64); }

}  // namespace

TEST_CASE("a glob fits whole names") {
  CHECK(fits("layers.11.norm.weight"));
  CHECK(fits("*"));
  CHECK(fits("layers.*.weight"));
  CHECK(fits("*.norm.*"));
  CHECK(fits("layers.?1.norm.weight"));
  CHECK(fits("layers.1[0-3].norm.weight"));
  CHECK(fits("layers.1[!02].norm.weight"));
  CHECK(fits("layers.1[1-3].norm.weight"));
  CHECK(fits("layers.1[0-1].norm.weight"));
  CHECK_FALSE(fits("layers.1[!0-1].norm.weight"));
  CHECK_FALSE(fits("norm"));
  CHECK_FALSE(fits("layers.1.norm.weight"));
  CHECK_FALSE(fits("layers.?.norm.weight"));
  CHECK_FALSE(fits("layers.1[2-9].norm.weight"));
  CHECK_FALSE(fits("layers.*.bias"));
}

TEST_CASE("tags, ties and sizes") {
  CHECK(fits("tag:norm"));
  CHECK(fits("tag:n*"));
  CHECK_FALSE(fits("tag:bias"));
  CHECK(fits("tied:words"));
  CHECK(fits("tied:*"));
  CHECK_FALSE(Selectors::fits("tied:*", Parameter{}, 64));
  CHECK(fits("numel>63"));
  CHECK(fits("numel >= 64"));
  CHECK(fits("numel==64"));
  CHECK(fits("numel<1e3"));
  CHECK_FALSE(fits("numel<64"));
  CHECK_FALSE(fits("numel<=63"));
}

TEST_CASE("axes of a placement") {
  Parameter parameter;
  parameter.shard = {{Axis::tp, 0}, {Axis::ep, 1}};
  parameter.partial = {Axis::cp};
  CHECK(Selectors::fits("shard:tp", parameter, 64));
  CHECK(Selectors::fits("shard:e*", parameter, 64));
  CHECK_FALSE(Selectors::fits("shard:cp", parameter, 64));
  CHECK(Selectors::fits("partial:cp", parameter, 64));
  CHECK_FALSE(Selectors::fits("partial:tp", parameter, 64));
  CHECK_FALSE(Selectors::fits("shard:*", Parameter{}, 64));
  CHECK(Selectors::check("shard:") == "a name must follow \"shard:\"");
}

TEST_CASE("a list is a union without its exclusions") {
  CHECK(chooses({}));
  CHECK(chooses({"nosuch", "tag:norm"}));
  CHECK_FALSE(chooses({"nosuch"}));
  CHECK_FALSE(chooses({"!tag:norm", "*"}));
  CHECK_FALSE(chooses({"*", "!tag:norm"}));
  CHECK(chooses({"!tag:bias"}));
  CHECK_FALSE(chooses({"!tag:bias", "!numel==64"}));
}

TEST_CASE("a buffer is chosen if one of its names is") {
  Parameter embedding, head;
  embedding.name = "embedding";
  head.name = "head";
  embedding.tied = head.tied = "words";
  embedding.shape = head.shape = {8};
  const Mesh mesh{Layout{}};
  Diagnostics diagnostics;
  const Model model(mesh, {embedding, head}, diagnostics);
  REQUIRE(diagnostics.empty());
  const LocalBuffer& buffer = model.local(0).buffers.at(0);
  CHECK(Selectors({"head"}).chooses(model, buffer));
  CHECK(Selectors({"*", "!head"}).chooses(model, buffer));
  CHECK_FALSE(Selectors({"!head", "!embedding"}).chooses(model, buffer));
  CHECK_FALSE(Selectors({"numel>8"}).chooses(model, buffer));
}

TEST_CASE("items that cannot be read are explained") {
  CHECK_FALSE(Selectors::check("layers.[0-9]*"));
  CHECK_FALSE(Selectors::check("!tag:norm"));
  CHECK(Selectors::check("") ==
        "a selector is a glob on names, tag:NAME, tied:NAME, shard:AXIS, partial:AXIS, numel>N or chunk==N, and not "
        "empty");
  CHECK(Selectors::check("!").has_value());
  CHECK(Selectors::check("tag:") == "a name must follow \"tag:\"");
  CHECK(Selectors::check("a[b") == "\"[\" in \"a[b\" has no \"]\"; write \"[[]\" for the character itself");
  CHECK(Selectors::check("numel=64") == "write \"==\" to compare, as in \"numel==64\"");
  CHECK(Selectors::check("numel>x") == "expected a whole number after \"numel>\", found \"x\"");
}

TEST_CASE("a glob of many stars takes no exponential time") {
  Parameter long_name;
  long_name.name = std::string(2000, 'a');
  std::string glob;
  for (int i = 0; i < 500; ++i) glob += "*a";
  CHECK_FALSE(Selectors::fits(glob + "b", long_name, 1));
}

TEST_CASE("a list that is read once tells names from globs") {
  const auto named = [](const char* name) {
    Parameter parameter;
    parameter.name = name;
    return parameter;
  };
  const schedule::SelectorList list({" a.weight ", "b.*", "!b.bias", "!c?"});
  CHECK(list.chooses(named("a.weight"), 1));
  CHECK(list.chooses(named("b.weight"), 1));
  CHECK_FALSE(list.chooses(named("b.bias"), 1));
  CHECK_FALSE(list.chooses(named("a"), 1));
  CHECK_FALSE(list.chooses(named("b"), 1));
  const schedule::SelectorList all_but({"!a", "!!b.weight", "!numel>4"});
  CHECK_FALSE(all_but.chooses(named("c"), 1));
  CHECK(all_but.chooses(named("b.weight"), 4));
  CHECK_FALSE(all_but.chooses(named("b.weight"), 5));
  CHECK(schedule::SelectorList({}).chooses(named("a"), 1));
  CHECK(schedule::SelectorList({"!a"}).chooses(named("b"), 1));
  CHECK(schedule::SelectorItem::read("!a.weight").is_plain_name());
  for (const char* item : {"a*", "a?", "a[b]", "tag:a", "numel>4"})
    CHECK_FALSE(schedule::SelectorItem::read(item).is_plain_name());
}
