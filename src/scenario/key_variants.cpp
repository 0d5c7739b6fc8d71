// SPDX-License-Identifier: Apache-2.0
#include <unordered_map>

#include "lockstep/operation.h"
#include "src/base/budget.h"
#include "src/scenario/key_table.h"

namespace lockstep::scenario {

namespace {

/// Keys that most ops have are listed by the ops that lack them; all others stand in the
/// operation table.
bool op_has_key(std::string_view op, std::string_view key) {
  if (key == "name" || key == "op" || key == "when" || key == "only") return true;
  if (key == "params" || key == "async") return op != "wait" && op != "each";
  if (key == "buffer") return !contains_word("copy accumulate all_to_all wait each", op);
  if (key == "on") return !contains_word("norm all_to_all wait each", op);
  const std::optional<Op> row = op_named(op);
  return row && contains_word(operation(*row).keys, key);
}

}  // namespace

bool has_key(const ObjectRow& object, const ObjectKey& key, std::string_view variant) {
  if (object.object == Object::step) return op_has_key(variant, key.name);
  return key.variants.empty() || contains_word(key.variants, variant);
}

bool needs_key(const ObjectKey& key, std::string_view variant) {
  if (key.required == "*") return !(variant == "wait" && key.name == "name");
  return !key.required.empty() && contains_word(key.required, variant);
}

const ObjectKey* find_key(const ObjectRow& object, std::string_view name) {
  using Keys = std::unordered_map<std::string_view, const ObjectKey*>;
  static const std::vector<Keys> by_object = made_once([] {
    std::vector<Keys> all;
    for (const ObjectRow& row : object_rows()) {
      Keys& keys = all.emplace_back();
      for (const ObjectKey& key : row.keys) keys.emplace(key.name, &key);
    }
    return all;
  });
  const Keys& keys = by_object[static_cast<std::size_t>(object.object)];
  const auto found = keys.find(name);
  return found == keys.end() ? nullptr : found->second;
}

std::vector<std::string> variants_of(const ObjectRow& object) {
  if (object.object == Object::step) {
    std::vector<std::string> ops;
    for (const Operation& row : operations()) ops.emplace_back(row.name);
    return ops;
  }
  if (object.variants.empty()) return {""};
  return split_words(object.variants);
}

}  // namespace lockstep::scenario
