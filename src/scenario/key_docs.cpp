// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "lockstep/operation.h"
#include "lockstep/scenario.h"
#include "src/scenario/key_table.h"

namespace lockstep {

namespace {

std::string escaped(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c == '|') result += '\\';
    result += c;
  }
  return result;
}

std::string code(std::string_view text) { return fmt::format("`{}`", text); }

std::string code_list(const std::vector<std::string>& words) {
  std::vector<std::string> list;
  for (const std::string& word : words) list.push_back(code(word));
  return fmt::format("{}", fmt::join(list, ", "));
}

std::string value_of(const scenario::ObjectKey& key) {
  if (key.type == scenario::Type::one_of) return code_list(scenario::split_words(key.allowed));
  return escaped(scenario::type_row(key.type).expected);
}

std::string default_of(const scenario::ObjectKey& key) {
  if (key.required == "*") return "required";
  if (!key.required.empty() && key.required != key.name) {
    return fmt::format("required by {}{}", code_list(scenario::split_words(key.required)),
                       key.fallback.empty() ? "" : fmt::format(", else {}", code(key.fallback)));
  }
  return key.fallback.empty() ? "" : code(escaped(key.fallback));
}

/// The variants that have a key, where not all have it.
std::string owners_of(const scenario::ObjectRow& object, const scenario::ObjectKey& key) {
  std::vector<std::string> with, without;
  for (const std::string& variant : scenario::variants_of(object))
    (scenario::has_key(object, key, variant) ? with : without).push_back(variant);
  if (without.empty()) return "all";
  if (with.size() > without.size()) return fmt::format("all but {}", code_list(without));
  return code_list(with);
}

std::string table(const scenario::ObjectRow& object) {
  const bool variants = scenario::variants_of(object).size() > 1;
  const std::string_view of = object.object == scenario::Object::step ? "ops"
                              : object.object == scenario::Object::edit || object.object == scenario::Object::model_edit
                                  ? "edits"
                                  : "kinds";
  std::string text = fmt::format("## {}\n\n{}\n\n", object.name, object.help);
  text += variants ? fmt::format("| key | {} | value | default | meaning |\n|---|---|---|---|---|\n", of)
                   : "| key | value | default | meaning |\n|---|---|---|---|\n";
  for (const scenario::ObjectKey& key : object.keys) {
    text += fmt::format("| `{}` |", key.name);
    if (variants) text += fmt::format(" {} |", owners_of(object, key));
    text += fmt::format(" {} | {} | {} |\n", value_of(key), default_of(key), escaped(key.help));
  }
  return text + "\n";
}

std::string op_table() {
  std::string text = "## Ops\n\n| op | what it does |\n|---|---|\n";
  for (const Operation& row : operations()) text += fmt::format("| `{}` | {} |\n", row.name, escaped(row.help));
  return text + "\n";
}

}  // namespace

std::string scenario_key_tables() {
  std::string text =
      "# Keys of scenario, framework and model files\n\n"
      "Printed by `lockstep schema --markdown` from the table that the parser uses; docs/scenario-format.md explains "
      "the language.\n\n";
  for (const scenario::ObjectRow& object : scenario::object_rows()) {
    text += table(object);
    if (object.object == scenario::Object::step) text += op_table();
  }
  text.pop_back();
  return text;
}

}  // namespace lockstep
