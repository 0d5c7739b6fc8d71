// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/json.h"

namespace lockstep::importers {

/// What a key of a configuration means, a row of src/importers/NAME.jsonc.
struct ConfigurationKey {
  std::string type;  ///< integer, number, boolean, word (one of `words`), list, any
  /// Where the value goes as it is: "option", "size" or "layout"; "" where the importer reads it by itself.
  std::string goes_to;
  std::string target;   ///< the option, size or layout key
  std::string meaning;  ///< what it is listed with, where the importer reads it
  std::vector<std::string> words;
  std::map<std::string, Json> becomes;  ///< a word or boolean that goes on as something else
  bool refuses = false;                 ///< a value that is not in `only` is refused, `because` says why
  bool of_model = false;                ///< what it refuses is a part of the model: --model names one without it
  std::vector<Json> only;               ///< beside null, which is no value; empty: the key is refused with any value
  std::string because;

  /// The value of the scenario that the key shapes, as a JSON pointer; "" where there is none, or several.
  std::string pointer() const;
};

/// The keys of one format: those that matter, and those that do not.
class KeyTable {
 public:
  /// The table of src/importers/`name`.jsonc. One that is not as it should be is an InternalError.
  explicit KeyTable(const std::string& name);

  /// Adds the rows of another table, where this one has none, and what does not matter there.
  void add(const std::string& other);

  /// What goes on as an option of the framework is listed with `meaning` instead: another framework takes its place.
  void without_options(const std::string& meaning);

  const std::string& framework() const { return framework_; }
  /// The key's own row, else that of the first pattern with a star that describes it; null where there is neither.
  const ConfigurationKey* row(std::string_view key) const;
  /// Why `key` does not matter for gradients; "" where it may. `origin`: the class of keys that it belongs to, for
  /// tables that name classes.
  std::string ignored(std::string_view key, std::string_view origin = "") const;
  /// A member of the table beside those that every table has; null where there is none.
  const Json* other(std::string_view key) const { return json_.find(key); }
  /// The keys that have a row, for "did you mean".
  std::vector<std::string> known() const;
  /// All rows by their keys and patterns.
  const std::map<std::string, ConfigurationKey, std::less<>>& rows() const { return rows_; }

 private:
  struct Ignored {
    std::string pattern, why;
  };
  Json json_;
  std::string framework_;
  std::map<std::string, ConfigurationKey, std::less<>> rows_;
  std::vector<Ignored> ignored_;
};

/// Whether `text` is what `pattern`, in which * stands for anything, describes.
bool glob_matches(std::string_view pattern, std::string_view text);

}  // namespace lockstep::importers
