// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/json.h"

namespace lockstep::scenario {

/// The kinds of values that keys take. Each has one row of the type table.
enum class Type {
  none,
  version,
  text,
  name,
  identifier,
  step_name,
  boolean,
  integer,
  count,
  index,
  axis_size,
  one_of,
  identifiers,
  names,
  expression,
  exact_number,
  scalar,
  axis,
  axes,
  coordinate,
  coordinates,
  selectors,
  selector_list,
  stage,
  shape,
  shard,
  shard_item,
  only,
  root,
  over,
  over_item,
  indices,
  micro_batch_counts,
  loss,
  loss_item,
  tokens,
  token_list,
  weights,
  formula,
  formula_of_rank,
  formula_value,
  norm_counts,
  layout,
  model,
  batch,
  schedule,
  expect,
  geometry,
  parameters,
  step,
  steps,
  edits,
  model_edits,
  options,
  object,
  list,
  any
};

/// What a value of a type looks like.
struct TypeRow {
  Type type;
  std::string_view name;      ///< in the schema's $defs and in the documents
  std::string_view expected;  ///< "an integer of at least 1": for messages
  std::string_view schema;    ///< JSON Schema of it; "" for types whose schema is their object's
  bool (*accepts)(const Json&);
  Type items = Type::none;    ///< of an array's items
  Type members = Type::none;  ///< of an object's members, where their names are free
};

const TypeRow& type_row(Type type);
const std::vector<TypeRow>& type_rows();

/// Whether `value` is of the type, items and members included; every mistake is added.
/// `allowed`, separated by spaces, are the words of Type::one_of.
bool check_type(const Json& value, Type type, std::string_view allowed, Diagnostics& diagnostics);

/// The whole number that a JSON number is, if it is one that fits.
std::optional<std::int64_t> whole_number(const Json& value);
/// Words that are separated by spaces.
std::vector<std::string> split_words(std::string_view words);
/// Whether `word` is one of them.
bool contains_word(std::string_view words, std::string_view word);
bool is_identifier(std::string_view text);
/// `"a", "b" or "c"`.
std::string quoted_alternatives(const std::vector<std::string>& words);

}  // namespace lockstep::scenario
