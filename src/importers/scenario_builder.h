// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/importer.h"
#include "lockstep/rational.h"
#include "src/importers/key_table.h"
#include "src/importers/settings.h"

namespace lockstep::importers {

/// A scenario in the making: reads settings by their keys, keeps account of which were read, and collects what they
/// stand for. Mistakes are collected; a value that is one reads as if it had not been given.
class ScenarioBuilder {
 public:
  ScenarioBuilder(const ImportRequest& request, const std::string& table, Settings settings, Diagnostics& diagnostics);

  const ImportRequest& request() const { return request_; }
  const KeyTable& table() const { return table_; }
  const Settings& settings() const { return settings_; }

  // Values. A key that was not given, or is null, has none.
  std::optional<std::int64_t> integer(std::string_view key);
  std::int64_t integer(std::string_view key, std::int64_t otherwise) { return integer(key).value_or(otherwise); }
  std::optional<Rational> number(std::string_view key);
  bool boolean(std::string_view key, bool otherwise);
  /// One of the words of the key's row.
  std::string word(std::string_view key, const std::string& otherwise = "");
  /// Any value, as it was written; null where there is none.
  const Json* value(std::string_view key);
  bool given(std::string_view key) { return value(key) != nullptr; }
  /// Whether the key stands in the configuration, with null or "auto" as well.
  bool mentioned(std::string_view key) const { return settings_.find(key) != nullptr; }
  /// Whether its value is "auto", which what hands the configuration to DeepSpeed fills in.
  bool is_auto(std::string_view key) const;
  /// The key, or the first one below it, that stands in the configuration; "" where there is none.
  std::string mentioned_at(const std::string& key) const;
  /// A size of the model: that of --size where the request names it, else the key's.
  std::optional<std::int64_t> model_size(const std::string& size, std::string_view key);
  /// A size of the layout: `asked` where the request names one, else the key's, else 1. At most largest_import_size.
  std::int64_t degree(std::string_view key, std::int64_t asked = 0);

  /// What the key is listed with, in place of its row's meaning.
  void meaning(std::string_view key, std::string text);
  /// From now on the key reads as if it had not been given; it is listed with its value and this.
  void disregard(std::string_view key, std::string text);
  /// A mistake at the key's value; without the key, at no place.
  void mistake(std::string_view key, std::string message);
  /// A part of the model that no preset has: a mistake, but where the request names a model in its place. Then the key
  /// reads as if it had not been given, and what is not judged is told.
  void beyond_presets(std::string_view key, const std::string& message);
  /// Whether the request names a model in the place of the configuration's own.
  bool has_stand_in() const { return !request_.model.empty(); }
  /// A part of the model, or the program that trains it, in whose place is that of --model: it is told that this is
  /// not judged.
  void stands_in_for(std::string_view what) { stood_in_.emplace_back(what); }
  /// A size that the configuration does not give: it is told that it is that of --model.
  void size_of_stand_in(std::string_view key) { sizes_of_stand_in_.emplace_back(key); }
  /// The key, and those below it, is left out as one that nobody knows.
  void leave_out(std::string_view key) { left_out_.emplace(key); }
  /// The words that keys are written with, for "did you mean"; without them, the table's.
  void spellings(std::vector<std::string> words) { spellings_ = std::move(words); }
  /// A sentence about what the configuration does not say.
  void assume(std::string sentence) { assumed_.push_back(std::move(sentence)); }

  // The scenario.
  void layout(std::string_view key, Json value) { layout_.set(key, std::move(value)); }
  void axis(std::string_view key, std::int64_t size);  ///< 1 is left out
  void size(std::string_view key, Json value);         ///< one that --size names stays
  void option(std::string_view key, Json value) { options_.set(key, std::move(value)); }
  void edit(Json value) { edits_.push_back(std::move(value)); }
  void micro_batches(std::int64_t count) { micro_batches_ = count; }
  void preset(std::string name) { preset_ = std::move(name); }
  /// In place of the table's.
  void framework(std::string name) { framework_ = std::move(name); }
  /// The same, where the keys that the table calls options of its framework say nothing to the other one.
  void other_framework(const std::string& name, const std::string& meaning) {
    framework(name);
    table_.without_options(meaning);
  }
  /// Keys of another format may stand beside this one's.
  void also_knows(const std::string& table) { table_.add(table); }
  /// A fork's in the place of the table's.
  void release_name(std::string name) { release_ = std::move(name); }
  /// The release of another format's table does the work as well: "… with DeepSpeed 0.19.8".
  void runs_on(const std::string& table);
  /// The model of the request, for configurations that say nothing about it; its vocabulary divides by `tp`.
  void assumed_model(std::int64_t tp);

  /// The sizes of the layout beside data parallelism, with their names.
  using Degrees = std::vector<std::pair<std::string, std::int64_t>>;
  /// The request's number of ranks, else that of the key; 0 where neither is known.
  std::int64_t world_size(std::string_view key, std::int64_t otherwise = 0);
  /// The product of the degrees; 0 and a mistake where it is larger than largest_import_size.
  std::int64_t product(const Degrees& degrees);
  /// world / the product of the degrees; 0 and a mistake where it is not whole or the world is not known.
  std::int64_t data_parallel_size(std::int64_t world, const Degrees& degrees);

  /// Reads every row that goes on as it is, refuses values that its `only` does not allow, accounts for every key.
  Imported finish(const std::string& title, const std::string& name);

 private:
  const Setting* read(std::string_view key);
  std::string meaning_of(const Setting& setting, const ConfigurationKey& row) const;
  /// The option of the request that says the value at this pointer: "--size layers"; "" where none does.
  std::string replaced_by(const std::string& pointer) const;
  /// What the list says of a key that was used: its meaning, but where an option of the request takes its place.
  std::string listed_with(const Setting& setting, const ConfigurationKey& row) const;
  /// Whether the key that is spelled so is a size of the layout or of the batch.
  bool shapes_layout(const std::string& spelling) const;
  /// The known keys of the layout and batch, by what is left of them without dashes and section.
  std::map<std::string, std::string> spellings_of_layout() const;
  void pass_on(const Setting& setting, const ConfigurationKey& row);
  void check_allowed(const Setting& setting, const ConfigurationKey& row);
  void account(Imported& imported);
  void tell_stand_in();
  bool is_left_out(const std::string& key) const;
  void add_origins(Imported& imported) const;
  void add_request_sizes();
  void add_request_options();
  std::string framework_name() const { return framework_.empty() ? table_.framework() : framework_; }
  std::string release() const;

  const ImportRequest& request_;
  KeyTable table_;
  Settings settings_;
  Diagnostics& diagnostics_;
  std::set<std::string, std::less<>> mistaken_, disregarded_, left_out_, not_judged_;
  std::map<std::string, std::string, std::less<>> meanings_;
  std::vector<std::string> assumed_, spellings_, stood_in_, sizes_of_stand_in_;
  Json layout_ = Json::object(), sizes_ = Json::object(), options_ = Json::object();
  std::vector<Json> edits_;
  std::string preset_, framework_, runs_on_, release_;
  std::int64_t micro_batches_ = 1;
};

/// Whether two words are the same but for upper and lower case.
bool same_word(std::string_view a, std::string_view b);
/// "tensor 2 × pipeline 4".
std::string text_of(const ScenarioBuilder::Degrees& degrees);
/// What a value is, for "found …": numbers and booleans as they are, of everything else the kind alone, for it may be a
/// secret.
std::string kind_of(const Json& value);
/// A boolean, or a text that stands for one; nothing where it is neither.
std::optional<bool> boolean_of(const Json& value);
/// A whole number as JSON.
Json json_integer(std::int64_t value);
/// An exact number as JSON; not every fraction has one: those come as null.
Json json_number(const Rational& value);

}  // namespace lockstep::importers
