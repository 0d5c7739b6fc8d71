// SPDX-License-Identifier: Apache-2.0
#include "src/scenario/value_type.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "lockstep/mesh.h"
#include "lockstep/rational.h"
#include "src/base/budget.h"
#include "src/scenario/other_words.h"

namespace lockstep::scenario {

namespace {

bool at_least(const Json& value, std::int64_t low) {
  const std::optional<std::int64_t> number = whole_number(value);
  return number && *number >= low;
}

bool is_step_name(const Json& value) {
  return value.is_string() && !value.text().empty() &&
         std::all_of(value.text().begin(), value.text().end(), [](unsigned char c) {
           return c >= 128 || std::isalnum(c) != 0 || c == '_' || c == '.' || c == '-' || c == ':' || c == '/';
         });
}

bool is_any(const Json&) { return true; }
bool is_array(const Json& value) { return value.is_array(); }
bool is_object(const Json& value) { return value.is_object(); }
bool is_text(const Json& value) { return value.is_string(); }
bool is_name(const Json& value) { return value.is_string() && !value.text().empty(); }
bool is_boolean(const Json& value) { return value.is_boolean(); }
bool is_integer(const Json& value) { return whole_number(value).has_value(); }
bool is_count(const Json& value) { return at_least(value, 1); }
bool is_index(const Json& value) { return at_least(value, 0); }
bool is_scalar(const Json& value) { return value.is_boolean() || value.is_number() || value.is_string(); }
bool is_scalar_or_null(const Json& value) { return is_scalar(value) || value.is_null(); }
bool is_axis(const Json& value) { return value.is_string() && axis_named(value.text()).has_value(); }
bool is_word_any(const Json& value) { return value.is_string() && value.text() == "any"; }
bool is_coordinate(const Json& value) {
  return is_integer(value) || (value.is_string() && (value.text() == "first" || value.text() == "last"));
}
bool is_rational(const Json& value) {
  return (value.is_number() || value.is_string()) && Rational::parse(value.text()).has_value();
}

/// A whole number that does not fit where whole numbers are kept.
bool is_too_long(const Json& value) {
  const std::optional<Rational> number = value.is_number() ? Rational::parse(value.text()) : std::nullopt;
  return number && number->is_integer() && !number->to_int64();
}

/// One that a string has: it would end up on a terminal.
std::optional<unsigned> control_character(const Json& value) {
  if (!value.is_string()) return std::nullopt;
  for (const char c : value.text()) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7F) return byte;
  }
  return std::nullopt;
}

const std::vector<TypeRow> rows_of_types = {
    {Type::none, "", "nothing", "", is_any},
    {Type::version, "version", "the version number 1", R"({"const": 1})", is_integer},
    {Type::text, "text", "a string", R"({"type": "string"})", is_text},
    {Type::name, "name", "a string that is not empty", R"({"type": "string", "minLength": 1})", is_name},
    {Type::identifier, "identifier", "a name of letters, digits and underscores",
     R"({"type": "string", "pattern": "^[A-Za-z_][A-Za-z0-9_]*$"})",
     [](const Json& value) { return value.is_string() && is_identifier(value.text()); }},
    {Type::step_name, "step_name", "a step name of letters, digits and any of _ . - : /",
     R"({"type": "string", "minLength": 1, "pattern": "^[^\\s\\[\\](){}\"',;]+$"})", is_step_name},
    {Type::boolean, "boolean", "true or false", R"({"type": "boolean"})", is_boolean},
    {Type::integer, "integer", "an integer", R"({"type": "integer"})", is_integer},
    {Type::count, "count", "an integer of at least 1", R"({"type": "integer", "minimum": 1})", is_count},
    {Type::index, "index", "an integer of at least 0", R"({"type": "integer", "minimum": 0})", is_index},
    {Type::axis_size, "axis_size", "an integer of at least 1 or \"any\"",
     R"({"oneOf": [{"type": "integer", "minimum": 1}, {"const": "any"}]})",
     [](const Json& value) { return is_count(value) || is_word_any(value); }},
    {Type::one_of, "one_of", "one of a few words", "", is_text},
    {Type::identifiers, "identifiers", "a list of names",
     R"({"type": "array", "items": {"$ref": "#/$defs/identifier"}, "minItems": 1})",
     [](const Json& value) { return value.is_array() && !value.items().empty(); }, Type::identifier},
    {Type::names, "names", "a list of names", R"({"type": "array", "items": {"$ref": "#/$defs/name"}})", is_array,
     Type::name},
    {Type::expression, "expression", "a number, true, false or an expression in a string",
     R"({"type": ["number", "boolean", "string"]})", is_scalar},
    {Type::exact_number, "exact_number", "a number, or one in a string such as \"1/3\"",
     R"({"oneOf": [{"type": "number"}, {"type": "string", "pattern": "^-?[0-9]"}]})", is_rational},
    {Type::scalar, "scalar", "a number, true, false, a string or null",
     R"({"type": ["number", "boolean", "string", "null"]})", is_scalar_or_null},
    {Type::axis, "axis", "an axis", "", is_axis},
    {Type::axes, "axes", "a list of axes such as [\"tp\"]", R"({"type": "array", "items": {"$ref": "#/$defs/axis"}})",
     is_array, Type::axis},
    {Type::coordinate, "coordinate", "a coordinate: an integer (negative from the end), \"first\" or \"last\"",
     R"({"oneOf": [{"type": "integer"}, {"enum": ["first", "last"]}]})", is_coordinate},
    {Type::coordinates, "coordinates",
     "a coordinate or a list of them: integers (negative from the end), \"first\" or \"last\"",
     R"({"oneOf": [{"$ref": "#/$defs/coordinate"}, {"type": "array", "items": {"$ref": "#/$defs/coordinate"}}]})",
     [](const Json& value) { return value.is_array() || is_coordinate(value); }, Type::coordinate},
    {Type::selectors, "selectors", "a selector or a list of at least one",
     R"({"oneOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}]})",
     [](const Json& value) { return value.is_string() || (value.is_array() && !value.items().empty()); }, Type::text},
    {Type::selector_list, "selector_list", "a selector or a list of them",
     R"({"oneOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]})",
     [](const Json& value) { return value.is_string() || value.is_array(); }, Type::text},
    {Type::stage, "stage", "a pipeline stage (an integer, negative from the end) or \"all\"",
     R"({"oneOf": [{"type": "integer"}, {"const": "all"}]})",
     [](const Json& value) { return is_integer(value) || (value.is_string() && value.text() == "all"); }},
    {Type::shape, "shape", "a list of sizes such as [1024, 768]",
     R"({"type": "array", "items": {"type": "integer", "minimum": 1}})", is_array, Type::count},
    {Type::shard, "shard", "an object from axes to dimensions such as { \"tp\": 0 }",
     R"({"type": "object", "propertyNames": {"$ref": "#/$defs/axis"}, "additionalProperties": {"$ref": "#/$defs/shard_item"}})",
     is_object, Type::none, Type::shard_item},
    {Type::shard_item, "shard_item", "a dimension or { \"dim\": …, \"uneven\": true }",
     R"({"oneOf": [{"type": "integer", "minimum": 0}, {"$ref": "#/$defs/uneven_shard"}]})",
     [](const Json& value) { return is_index(value) || value.is_object(); }},
    {Type::only, "only", "an object from axes to coordinates",
     R"({"type": "object", "propertyNames": {"$ref": "#/$defs/axis"}, "additionalProperties": {"$ref": "#/$defs/coordinates"}})",
     is_object, Type::none, Type::coordinates},
    {Type::root, "root", "a position in the group or an object from axes to coordinates",
     R"({"oneOf": [{"type": "integer", "minimum": 0}, {"type": "object", "propertyNames": {"$ref": "#/$defs/axis"},
         "additionalProperties": {"$ref": "#/$defs/coordinate"}, "minProperties": 1}]})",
     [](const Json& value) { return is_index(value) || (value.is_object() && !value.members().empty()); }, Type::none,
     Type::coordinate},
    {Type::over, "over", "an axis, a list of axes or an object from axes to coordinates",
     R"({"oneOf": [{"$ref": "#/$defs/axis"}, {"$ref": "#/$defs/axes"}, {"type": "object",
         "propertyNames": {"$ref": "#/$defs/axis"}, "additionalProperties": {"$ref": "#/$defs/over_item"}}]})",
     [](const Json& value) { return value.is_string() || value.is_array() || value.is_object(); }, Type::axis,
     Type::over_item},
    {Type::over_item, "over_item", "\"all\", a coordinate or a list of coordinates",
     R"({"oneOf": [{"const": "all"}, {"$ref": "#/$defs/coordinates"}]})",
     [](const Json& value) {
       return value.is_array() || is_coordinate(value) || (value.is_string() && value.text() == "all");
     },
     Type::coordinate},
    {Type::indices, "indices", "a list of integers of at least 0",
     R"({"type": "array", "items": {"type": "integer", "minimum": 0}})", is_array, Type::index},
    {Type::micro_batch_counts, "micro_batch_counts",
     "an integer of at least 1, \"any\" or a list with an integer for each optimizer step",
     R"({"oneOf": [{"type": "integer", "minimum": 1}, {"const": "any"}, {"type": "array", "items": {"type": "integer",
         "minimum": 1}, "minItems": 1}]})",
     [](const Json& value) {
       return is_count(value) || is_word_any(value) || (value.is_array() && !value.items().empty());
     },
     Type::count},
    {Type::loss, "loss", "the name of a loss, { \"weight\": … } or an object from uses to losses",
     R"({"oneOf": [{"$ref": "#/$defs/loss_item"}, {"type": "object", "not": {"required": ["weight"]},
         "additionalProperties": {"$ref": "#/$defs/loss_item"}, "minProperties": 1}]})",
     [](const Json& value) { return value.is_string() || (value.is_object() && !value.members().empty()); }},
    {Type::loss_item, "loss_item", "the name of a loss or { \"weight\": … }",
     R"({"oneOf": [{"enum": ["token_mean", "micro_batch_mean", "local_mean", "sum"]},
         {"const": "piece_mean", "deprecated": true, "description": "The old name of local_mean."}, {"type": "object",
         "properties": {"weight": {"$ref": "#/$defs/expression",
          "description": "The weight of each piece's summed loss, evaluated on the rank whose tokens they are."}},
         "required": ["weight"], "additionalProperties": false}]})",
     [](const Json& value) { return value.is_string() || value.is_object(); }},
    {Type::tokens, "tokens", "\"uneven\", \"even\", a list [micro-batch][dp][cp][sp] or an object from uses to these",
     R"({"oneOf": [{"$ref": "#/$defs/token_list"}, {"type": "object", "additionalProperties": {"$ref": "#/$defs/token_list"},
         "minProperties": 1}]})",
     [](const Json& value) {
       return value.is_string() || value.is_array() || (value.is_object() && !value.members().empty());
     },
     Type::none, Type::token_list},
    {Type::token_list, "token_list", "\"uneven\", \"even\" or a list [micro-batch][dp][cp][sp]",
     R"({"oneOf": [{"enum": ["uneven", "even"]}, {"type": "array", "items": {"type": "array", "items": {"type": "array",
         "items": {"type": "array", "items": {"type": "integer", "minimum": 0}}}}}]})",
     [](const Json& value) { return value.is_string() || value.is_array(); }},
    {Type::weights, "weights", "an object from uses to numbers",
     R"({"type": "object", "additionalProperties": {"$ref": "#/$defs/exact_number"}})", is_object, Type::none,
     Type::exact_number},
    {Type::formula, "formula", "an object from parameter names to { RANK: formula }",
     R"({"type": "object", "additionalProperties": {"$ref": "#/$defs/formula_of_rank"}})", is_object, Type::none,
     Type::formula_of_rank},
    {Type::formula_of_rank, "formula_of_rank", "an object from ranks to formulas",
     R"({"type": "object", "propertyNames": {"pattern": "^[0-9]+$"},
         "additionalProperties": {"$ref": "#/$defs/formula_value"}})",
     is_object, Type::none, Type::formula_value},
    {Type::formula_value, "formula_value", "a formula, or an object from elements \"[begin,end)\" to formulas",
     R"({"oneOf": [{"type": "string"}, {"type": "object", "propertyNames": {"pattern": "^\\[ *[0-9]+ *, *[0-9]+ *\\)$"},
         "additionalProperties": {"type": "string"}}]})",
     [](const Json& value) { return value.is_string() || value.is_object(); }, Type::none, Type::text},
    {Type::norm_counts, "norm_counts", "an object from parameter names to counts",
     R"({"type": "object", "additionalProperties": {"type": ["string", "number"]}})", is_object, Type::none,
     Type::expression},
    {Type::layout, "layout", "an object", R"({"$ref": "#/$defs/layout_object"})", is_object},
    {Type::model, "model", "an object", R"({"$ref": "#/$defs/model_object"})", is_object},
    {Type::batch, "batch", "an object", R"({"$ref": "#/$defs/batch_object"})", is_object},
    {Type::schedule, "schedule", "an object", R"({"$ref": "#/$defs/schedule_object"})", is_object},
    {Type::expect, "expect", "an object", R"({"$ref": "#/$defs/expect_object"})", is_object},
    {Type::geometry, "geometry", "an object with a \"kind\"", R"({"$ref": "#/$defs/geometry_object"})", is_object},
    {Type::parameters, "parameters", "a list of at least one parameter",
     R"({"type": "array", "items": {"$ref": "#/$defs/parameter_object"}, "minItems": 1})",
     [](const Json& value) { return value.is_array() && !value.items().empty(); }},
    {Type::step, "step", "a step", R"({"$ref": "#/$defs/step_object"})", is_object},
    {Type::steps, "steps", "a list of steps", R"({"type": "array", "items": {"$ref": "#/$defs/step_object"}})",
     is_array},
    {Type::edits, "edits", "a list of edits", R"({"type": "array", "items": {"$ref": "#/$defs/edit_object"}})",
     is_array},
    {Type::model_edits, "model_edits", "a list of edits",
     R"({"type": "array", "items": {"$ref": "#/$defs/model_edit_object"}})", is_array},
    {Type::options, "options", "an object from options to values",
     R"({"type": "object", "additionalProperties": {"type": ["number", "boolean", "string", "null"]}})", is_object,
     Type::none, Type::scalar},
    {Type::object, "object", "an object", R"({"type": "object"})", is_object},
    {Type::list, "list", "a list", R"({"type": "array"})", is_array},
    {Type::any, "any", "a value", "{}", is_any},
};

bool check_one_of(const Json& value, std::string_view allowed, Diagnostics& diagnostics) {
  if (value.is_string() && contains_word(allowed, value.text())) return true;
  const std::vector<std::string> words = split_words(allowed);
  if (!value.is_string()) {
    diagnostics.add(value.place(), fmt::format("expected {}, found {}", quoted_alternatives(words), value.describe()));
    return false;
  }
  diagnostics.add(value.place(), fmt::format("expected {}, found {}{}", quoted_alternatives(words), value.describe(),
                                             did_you_mean_here(value.text(), words)));
  return false;
}

}  // namespace

const std::vector<TypeRow>& type_rows() { return rows_of_types; }

const TypeRow& type_row(Type type) {
  static const std::map<Type, const TypeRow*> by_type = made_once([] {
    std::map<Type, const TypeRow*> rows;
    for (const TypeRow& row : rows_of_types) rows.emplace(row.type, &row);
    return rows;
  });
  const auto found = by_type.find(type);
  if (found == by_type.end()) throw InternalError(fmt::format("type {} has no row", static_cast<int>(type)));
  return *found->second;
}

bool check_type(const Json& value, Type type, std::string_view allowed, Diagnostics& diagnostics) {
  if (type == Type::one_of) return check_one_of(value, allowed, diagnostics);
  const TypeRow& row = type_row(type);
  if (!row.accepts(value)) {
    const bool axis = type == Type::axis && value.is_string();
    const std::string near = axis ? did_you_mean_here(value.text(), axis_names()) : "";
    const bool empty = value.is_array() && value.items().empty();
    diagnostics.add(value.place(),
                    fmt::format("expected {}, found {}{}{}", row.expected, empty ? "an empty array" : value.describe(),
                                near, is_too_long(value) ? ", which is beyond 2^63" : ""));
    return false;
  }
  // White space in an expression means nothing.
  if (const auto character = type == Type::expression ? std::nullopt : control_character(value)) {
    diagnostics.add(value.place(),
                    fmt::format("expected a string without control characters, found U+{:04X} in it", *character));
    return false;
  }
  if (type == Type::version && whole_number(value) != 1) {
    diagnostics.add(value.place(),
                    fmt::format("this program reads version 1 of this format, found version {}", value.text()));
    return false;
  }
  bool good = true;
  if (row.items != Type::none) {
    for (const Json& item : value.items()) good &= check_type(item, row.items, "", diagnostics);
  }
  if (row.members != Type::none) {
    for (const Json::Member& member : value.members()) good &= check_type(member.value, row.members, "", diagnostics);
  }
  return good;
}

std::optional<std::int64_t> whole_number(const Json& value) {
  if (!value.is_number()) return std::nullopt;
  const std::optional<Rational> number = Rational::parse(value.text());
  return number ? number->to_int64() : std::nullopt;
}

bool contains_word(std::string_view words, std::string_view word) {
  for (std::size_t begin = 0; begin < words.size();) {
    const std::size_t end = std::min(words.find(' ', begin), words.size());
    if (end > begin && words.substr(begin, end - begin) == word) return true;
    begin = end + 1;
  }
  return false;
}

std::vector<std::string> split_words(std::string_view words) {
  std::vector<std::string> list;
  for (std::size_t begin = 0; begin < words.size();) {
    const std::size_t end = std::min(words.find(' ', begin), words.size());
    if (end > begin) list.emplace_back(words.substr(begin, end - begin));
    begin = end + 1;
  }
  return list;
}

bool is_identifier(std::string_view text) {
  if (text.empty() || std::isdigit(static_cast<unsigned char>(text[0])) != 0) return false;
  return std::all_of(text.begin(), text.end(),
                     [](unsigned char c) { return c < 128 && (std::isalnum(c) != 0 || c == '_'); });
}

std::string quoted_alternatives(const std::vector<std::string>& words) {
  std::string text;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (i > 0) text += i + 1 == words.size() ? " or " : ", ";
    text += fmt::format("\"{}\"", words[i]);
  }
  return text;
}

}  // namespace lockstep::scenario
