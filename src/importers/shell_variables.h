// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "src/importers/words.h"

namespace lockstep::importers {

/// Thrown where a script stands for more than is read of it; what() is a sentence.
class ShellLimit : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// What the words of a script take together, in bytes. Doubling a variable again and again is cheap to write.
class ShellBudget {
 public:
  void spend(const Word& word);
  /// For words that are kept for a moment alone.
  void copy(const std::vector<Word>& words);

 private:
  void spend(std::size_t bytes);
  std::size_t spent_ = 0;
};

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
  ShellBudget& budget() const { return *budget_; }

 private:
  std::map<std::string, Variable> variables_;
  std::shared_ptr<ShellBudget> budget_ = std::make_shared<ShellBudget>();
};

constexpr std::size_t longest_shell_text = 1 << 20;
constexpr std::size_t most_shell_words = 100'000;
/// Adds a piece to a text; one that is longer than longest_shell_text is not known.
void join(Word& a, const Word& b);
/// Throws where there are more than most_shell_words.
void check_word_count(std::size_t words);

}  // namespace lockstep::importers
