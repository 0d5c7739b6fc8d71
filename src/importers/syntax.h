// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/json.h"

namespace lockstep::importers {

// Texts as values that know their places. What is wrong with a text goes to the diagnostics, at least one where null
// comes back; nesting and the number of values are limited. In YAML and TOML, numbers are numbers as they were written
// (5e8), dates are strings.

/// YAML: anchors, aliases and merge keys resolved; a key that is given twice with different values is a mistake, but
/// for those that `may_repeat` allows: the last one counts. Needs yaml-cpp.
Json read_yaml(const std::shared_ptr<const Source>& source, Diagnostics& diagnostics,
               const std::function<bool(const std::string&)>& may_repeat = {});
/// Needs toml++.
Json read_toml(const std::shared_ptr<const Source>& source, Diagnostics& diagnostics);
/// Hjson, as DeepSpeed reads its files: JSON with comments (#, //, /* */), optional commas, and keys and strings
/// without quotes.
Json read_hjson(const std::shared_ptr<const Source>& source, Diagnostics& diagnostics);

/// A bare word of YAML or Hjson as the value that it stands for: null, a boolean, a number; else a string.
Json scalar_value(std::string text, const Place& place);

/// Where each line of a text begins.
class Lines {
 public:
  explicit Lines(std::string_view text);
  /// Of a line and column, both counted from 0; never beyond the text.
  std::size_t offset(int line, int column) const;

 private:
  std::vector<std::size_t> begins_;
  std::size_t size_;
};

}  // namespace lockstep::importers
