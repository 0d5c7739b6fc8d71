// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "src/scenario/value_type.h"

namespace lockstep::scenario {

/// The objects of the scenario language.
enum class Object {
  scenario,
  layout,
  model,
  parameter,
  uneven_shard,
  batch,
  schedule,
  step,
  geometry,
  edit,
  model_edit,
  expect,
  framework_file,
  model_file,
  option,
  size,
  rule,
  conditional,
  parameter_loop
};

/// One key of an object: what the parser accepts, and what the schema and the documents say.
struct ObjectKey {
  std::string_view name;
  Type type;
  std::string_view required;       ///< "*": always; else the variants of the object that need it; "": optional
  std::string_view fallback;       ///< the default, as the documents show it
  std::string_view help;           ///< one sentence
  std::string_view allowed = "";   ///< words, for Type::one_of
  std::string_view variants = "";  ///< geometry kinds or edits that have the key; "": all. Steps: see has_key
};

/// All keys of one kind of object. Its variants are the ops of a step, the kinds of a geometry,
/// the actions of an edit.
struct ObjectRow {
  Object object;
  std::string_view name;
  std::string_view help;
  std::vector<ObjectKey> keys;
  std::string_view variants = "";
};

const ObjectRow& object_row(Object object);
const std::vector<ObjectRow>& object_rows();

/// Whether a variant ("all_reduce", "bucket", "move"; "" for objects without) has this key, and
/// whether it must be given.
bool has_key(const ObjectRow& object, const ObjectKey& key, std::string_view variant);
bool needs_key(const ObjectKey& key, std::string_view variant);
const ObjectKey* find_key(const ObjectRow& object, std::string_view name);
/// The variants of an object; one empty word where it has none.
std::vector<std::string> variants_of(const ObjectRow& object);

}  // namespace lockstep::scenario
