// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "lockstep/operation.h"
#include "lockstep/scenario.h"
#include "src/scenario/key_table.h"

namespace lockstep {

namespace {

Json text(std::string_view value) { return Json::string(std::string(value)); }

/// JSON that the program itself wrote down.
Json literal(std::string_view json) {
  Diagnostics diagnostics;
  Json value = parse_json(std::make_shared<const Source>(Source{"schema", std::string(json)}), diagnostics);
  if (!diagnostics.empty()) throw InternalError(fmt::format("not JSON: {}", json));
  return value;
}

Json list_of_words(std::string_view list) {
  std::vector<Json> items;
  for (const std::string& word : scenario::split_words(list)) items.push_back(text(word));
  return Json::array(std::move(items));
}

Json reference(std::string_view name) { return Json::object({{"$ref", {}, text(fmt::format("#/$defs/{}", name))}}); }

/// Whether a type is an object of the key table, whose schema has its own place in $defs.
bool is_reference(const scenario::TypeRow& row) { return row.schema.rfind("{\"$ref\"", 0) == 0; }

/// Schema of a key's value with its description.
Json key_schema(const scenario::ObjectKey& key, bool or_null) {
  Json schema;
  if (key.type == scenario::Type::one_of) {
    schema = Json::object({{"enum", {}, list_of_words(key.allowed)}});
  } else {
    const scenario::TypeRow& row = scenario::type_row(key.type);
    schema = is_reference(row) ? literal(row.schema) : reference(row.name);
  }
  if (or_null) schema = Json::object({{"oneOf", {}, Json::array({schema, literal(R"({"type": "null"})")})}});
  std::string help(key.help);
  if (!key.fallback.empty()) help += fmt::format(" Default: {}.", key.fallback);
  schema.set("description", text(help));
  return schema;
}

/// Schema of one variant of an object; `or_null`: null removes a key (edits).
Json variant_schema(const scenario::ObjectRow& object, const std::string& variant) {
  std::vector<Json::Member> properties;
  std::vector<Json> required;
  for (const scenario::ObjectKey& key : object.keys) {
    if (!scenario::has_key(object, key, variant)) continue;
    Json schema = key_schema(key, false);
    if (key.name == "op" || (key.name == "kind" && !variant.empty())) {
      schema = Json::object({{"const", {}, text(variant)}, {"description", {}, text(key.help)}});
    }
    properties.push_back({std::string(key.name), {}, std::move(schema)});
    if (scenario::needs_key(key, variant)) required.push_back(text(key.name));
  }
  Json schema = Json::object({{"type", {}, text("object")}});
  if (!variant.empty()) schema.set("title", text(variant));
  const std::optional<Op> op = object.object == scenario::Object::step ? op_named(variant) : std::nullopt;
  schema.set("description", text(op ? operation(*op).help : object.help));
  schema.set("properties", Json::object(std::move(properties)));
  if (!required.empty()) schema.set("required", Json::array(std::move(required)));
  schema.set("additionalProperties", Json::boolean(false));
  return schema;
}

/// Adds the keys of a step or parameter to an edit that replaces them.
void add_changed_keys(Json& edit, const scenario::ObjectRow& object) {
  Json properties = *edit.find("properties");
  for (const scenario::ObjectKey& key : object.keys) properties.set(key.name, key_schema(key, true));
  // Merged key by key, so it may be a part of one.
  if (properties.find("geometry") != nullptr) {
    std::vector<Json::Member> parts;
    for (const scenario::ObjectKey& key : scenario::object_row(scenario::Object::geometry).keys)
      parts.push_back({std::string(key.name), {}, key_schema(key, true)});
    properties.set("geometry", Json::object({{"description", {}, text(scenario::find_key(object, "geometry")->help)},
                                             {"type", {}, literal(R"(["object", "null"])")},
                                             {"properties", {}, Json::object(std::move(parts))},
                                             {"additionalProperties", {}, Json::boolean(false)}}));
  }
  edit.set("properties", properties);
}

Json object_schema(const scenario::ObjectRow& object) {
  const std::vector<std::string> variants = scenario::variants_of(object);
  if (variants.size() == 1) {
    Json schema = variant_schema(object, "");
    if (object.object == scenario::Object::model) {
      // The sizes of a preset are further keys.
      schema.set("additionalProperties", literal(R"({"type": ["number", "boolean", "string", "null"]})"));
      schema.set("oneOf", literal(R"([{"required": ["preset"], "not": {"required": ["architecture"]}},
        {"required": ["parameters"], "additionalProperties": false,
         "properties": {"parameters": {}, "architecture": {}, "edits": {}}}])"));
    }
    if (object.object == scenario::Object::schedule) {
      schema.set(
          "oneOf",
          literal(R"([{"required": ["framework"]}, {"required": ["steps"], "not": {"required": ["options"]}}])"));
    }
    return schema;
  }
  std::vector<Json> list;
  for (const std::string& variant : variants) {
    Json schema = variant_schema(object, variant);
    if (variant == "set" && object.object == scenario::Object::edit)
      add_changed_keys(schema, scenario::object_row(scenario::Object::step));
    if (variant == "parameter" && object.object == scenario::Object::edit)
      add_changed_keys(schema, scenario::object_row(scenario::Object::parameter));
    if (variant == "move" || variant == "insert")
      schema.set("oneOf", literal(R"([{"required": ["before"]}, {"required": ["after"]}])"));
    list.push_back(std::move(schema));
  }
  return Json::object({{"description", {}, text(object.help)}, {"oneOf", {}, Json::array(std::move(list))}});
}

}  // namespace

Json scenario_schema() {
  Json schema = literal(R"({"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": "urn:lockstep:scenario:1",
                             "title": "lockstep scenario"})");
  const Json scenario = object_schema(scenario::object_row(scenario::Object::scenario));
  for (const Json::Member& member : scenario.members()) schema.set(member.key, member.value);
  std::vector<Json::Member> definitions;
  for (const scenario::TypeRow& row : scenario::type_rows()) {
    if (row.schema.empty() || is_reference(row) || row.type == scenario::Type::any ||
        row.type == scenario::Type::object || row.type == scenario::Type::list) {
      continue;
    }
    definitions.push_back({std::string(row.name), {}, literal(row.schema)});
  }
  std::vector<Json> axes;
  for (const std::string& name : axis_names()) axes.push_back(text(name));
  definitions.push_back({"axis", {}, Json::object({{"enum", {}, Json::array(std::move(axes))}})});
  for (const scenario::ObjectRow& object : scenario::object_rows()) {
    if (object.object == scenario::Object::scenario) continue;
    if (object.object == scenario::Object::framework_file)
      break;  // from here on the language of framework and model files
    const std::string name =
        object.object == scenario::Object::uneven_shard ? "uneven_shard" : std::string(object.name) + "_object";
    definitions.push_back({name, {}, object_schema(object)});
  }
  schema.set("$defs", Json::object(std::move(definitions)));
  return schema;
}

}  // namespace lockstep
