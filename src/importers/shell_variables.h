// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/importers/words.h"

namespace lockstep {

/// The variables of a script. A scalar is one word, an array any number.
class ShellVariables {
 public:
  explicit ShellVariables(const std::map<std::string, std::string>& given);

  void set(const std::string& name, std::vector<Word> words, bool is_array);
  /// `NAME+=…`: text behind a scalar, elements behind an array.
  void append(const std::string& name, std::vector<Word> words, bool is_array);
  void forget(const std::string& name);

  struct Variable {
    std::vector<Word> words;
    bool is_array = false;
    bool is_given = false;  // from outside: stays
  };
  /// A variable as it is now, nothing where it is not set; restore() brings it back.
  using State = std::optional<Variable>;
  State state(const std::string& name) const;
  void restore(const std::string& name, const State& state);
  bool is_set(const std::string& name) const { return variables_.contains(name); }

  /// What `${NAME}` and `${NAME[@]}` stand for; one that is not set is unresolved.
  Word scalar(const std::string& name) const;
  std::vector<Word> elements(const std::string& name) const;

 private:
  std::map<std::string, Variable> variables_;
};

/// A text put together from pieces, with limits: doubling a variable again and again is cheap to write.
constexpr std::size_t longest_shell_text = 1 << 20;
constexpr std::size_t most_shell_words = 100'000;
Word joined(const Word& a, const Word& b);
/// The same, in place.
void join(Word& a, const Word& b);

}  // namespace lockstep
