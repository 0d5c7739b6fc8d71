// SPDX-License-Identifier: Apache-2.0
#include "src/scenario/key_table.h"

#include <fstream>
#include <set>
#include <sstream>

#include "lockstep/operation.h"
#include "lockstep/scenario.h"
#include "tests/catch.h"

using namespace lockstep;

namespace {

std::string text_of(const std::string& file) {
  std::ifstream stream(LOCKSTEP_SOURCE_DIR "/" + file);
  std::ostringstream text;
  text << stream.rdbuf();
  return text.str();
}

Json parse_file(const std::string& file) {
  Diagnostics diagnostics;
  const Json value =
      parse_json(std::make_shared<const Source>(Source{file, text_of("tests/scenario/files/" + file)}), diagnostics);
  REQUIRE(diagnostics.empty());
  return value;
}

using Keys = std::set<std::pair<scenario::Object, std::string>>;

/// Notes the keys of an object, and of the objects that its members are.
void collect(scenario::Object kind, const Json& value, Keys& keys) {
  if (value.find("if") != nullptr) {
    kind = scenario::Object::conditional;
  } else if (kind == scenario::Object::parameter && value.find("for") != nullptr) {
    kind = scenario::Object::parameter_loop;
  }
  static const std::map<std::string, scenario::Object> kinds = {
      {"layout", scenario::Object::layout},        {"model", scenario::Object::model},
      {"parameters", scenario::Object::parameter}, {"batch", scenario::Object::batch},
      {"schedule", scenario::Object::schedule},    {"steps", scenario::Object::step},
      {"geometry", scenario::Object::geometry},    {"edits", scenario::Object::edit},
      {"expect", scenario::Object::expect},        {"rules", scenario::Object::rule},
      {"shard", scenario::Object::uneven_shard}};
  for (const Json::Member& member : value.members()) {
    keys.emplace(kind, member.key);
    const auto found = kinds.find(member.key);
    if (found != kinds.end() && kind != scenario::Object::expect) {
      const bool of_model = kind == scenario::Object::model && member.key == "edits";
      const scenario::Object inner = of_model ? scenario::Object::model_edit : found->second;
      collect(inner, member.value, keys);
      for (const Json& item : member.value.items()) collect(inner, item, keys);
    }
    for (const Json::Member& inner : member.value.members()) {
      if (member.key == "options" && kind == scenario::Object::framework_file)
        collect(scenario::Object::option, inner.value, keys);
      if (member.key == "sizes") collect(scenario::Object::size, inner.value, keys);
      if (member.key == "shard") collect(scenario::Object::uneven_shard, inner.value, keys);
      if (member.key == "let") collect(scenario::Object::conditional, inner.value, keys);
    }
  }
}

}  // namespace

TEST_CASE("rows stand at the place of their number") {
  for (std::size_t i = 0; i < scenario::object_rows().size(); ++i)
    CHECK(static_cast<std::size_t>(scenario::object_rows()[i].object) == i);
  for (const scenario::TypeRow& row : scenario::type_rows()) CHECK(&scenario::type_row(row.type) == &row);
}

TEST_CASE("every key says in one sentence what it is for") {
  for (const scenario::ObjectRow& object : scenario::object_rows()) {
    for (const scenario::ObjectKey& key : object.keys) {
      INFO(object.name << "." << key.name);
      REQUIRE(!key.help.empty());
      CHECK(key.help.back() == '.');
      CHECK((key.type == scenario::Type::one_of) == !key.allowed.empty());
    }
  }
}

TEST_CASE("the ops of the table are those of the operation table, and their keys have rows") {
  const scenario::ObjectRow& step = scenario::object_row(scenario::Object::step);
  CHECK(scenario::split_words(scenario::find_key(step, "op")->allowed) == scenario::variants_of(step));
  for (const Operation& row : operations()) {
    for (const std::string& key : scenario::split_words(row.keys)) {
      INFO(row.name << " " << key);
      REQUIRE(scenario::find_key(step, key) != nullptr);
      CHECK(scenario::has_key(step, *scenario::find_key(step, key), row.name));
    }
  }
}

TEST_CASE("every key stands in a test file that is read without mistakes") {
  Keys keys;
  collect(scenario::Object::scenario, parse_file("all_keys.jsonc"), keys);
  collect(scenario::Object::scenario, parse_file("all_keys_of_files.jsonc"), keys);
  collect(scenario::Object::framework_file, parse_file("ours.framework.jsonc"), keys);
  collect(scenario::Object::model_file, parse_file("ours.model.jsonc"), keys);
  collect(scenario::Object::model_file, parse_file("base.model.jsonc"), keys);
  for (const scenario::ObjectRow& object : scenario::object_rows()) {
    for (const scenario::ObjectKey& key : object.keys) {
      INFO(object.name << "." << key.name);
      CHECK(keys.count({object.object, std::string(key.name)}) == 1);
    }
  }
}

TEST_CASE("the schema has every key with its description") {
  const Json schema = scenario_schema();
  const Json& definitions = *schema.find("$defs");
  const auto check_keys = [](const scenario::ObjectRow& object, const Json& part, const std::string& variant) {
    for (const scenario::ObjectKey& key : object.keys) {
      INFO(object.name << "." << key.name << " " << variant);
      const Json* property = part.find("properties")->find(key.name);
      CHECK((property != nullptr) == scenario::has_key(object, key, variant));
      if (property != nullptr) CHECK(property->find("description") != nullptr);
    }
    CHECK(part.find("additionalProperties") != nullptr);
  };
  check_keys(scenario::object_row(scenario::Object::scenario), schema, "");
  check_keys(scenario::object_row(scenario::Object::layout), *definitions.find("layout_object"), "");
  check_keys(scenario::object_row(scenario::Object::parameter), *definitions.find("parameter_object"), "");
  for (const scenario::Object kind : {scenario::Object::step, scenario::Object::geometry}) {
    const scenario::ObjectRow& object = scenario::object_row(kind);
    const std::vector<std::string> variants = scenario::variants_of(object);
    const std::vector<Json>& parts = definitions.find(std::string(object.name) + "_object")->find("oneOf")->items();
    REQUIRE(parts.size() == variants.size());
    for (std::size_t i = 0; i < parts.size(); ++i) check_keys(object, parts[i], variants[i]);
  }
}

TEST_CASE("the kept schema and key tables are what the program prints") {
  CHECK((text_of("schema/scenario.schema.json") == write_json(scenario_schema())));
  CHECK((text_of("docs/scenario-keys.md") == scenario_key_tables()));
}
