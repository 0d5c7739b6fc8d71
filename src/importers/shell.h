// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/importers/words.h"

namespace lockstep::importers {

/// A command of a script with its variables put in. Nothing was executed: a word that would need it is unresolved.
struct ShellCommand {
  std::vector<Word> words;
  int line = 0;
  bool sets_unnamed = false;    ///< it may set variables whose names are not known, as `eval "$(…)"` does
  bool is_conditional = false;  ///< in an if, a loop, a function or brackets, or behind &&, || or |
  std::string function;         ///< in whose body it stands; "" outside of all
  /// What its function reads and the script sets behind it, perhaps before it is called; with the line.
  std::shared_ptr<const std::map<std::string, int>> set_later = nullptr;
};

/// The commands of a script in a language of the Bourne family, in order. Variables, arrays and arithmetic are
/// followed; what is set inside of `if`, `case`, a loop or a function, by another program or outside of the script is
/// not known. `variables` (name → value) are set outside, and win. What it does not understand is unresolved; a script
/// that stands for more text than anybody writes is a mistake.
std::vector<ShellCommand> read_shell(const std::shared_ptr<const Source>& source,
                                     const std::map<std::string, std::string>& variables, Diagnostics& diagnostics);

/// The value of an arithmetic expression of the shell whose variables are put in already: whole numbers,
/// + - * / % **, brackets. Nothing where it is anything else, divides by 0 or does not fit.
std::optional<std::int64_t> shell_arithmetic(std::string_view text);

}  // namespace lockstep::importers
