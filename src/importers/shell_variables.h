// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
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
  bool is_set(const std::string& name) const;

  /// What was read, and what was set since it was asked for the last time: the reader of a function's body asks.
  std::set<std::string> take_read() { return std::exchange(read_, {}); }
  std::vector<std::string> take_written() { return std::exchange(written_, {}); }
  void add_read(const std::set<std::string>& names) { read_.insert(names.begin(), names.end()); }
  bool was_read(const std::string& name) const { return read_.contains(name); }
  /// In the body of a function $1, $@ and the like are its arguments, and not the script's; "" outside of all.
  void enter_function(std::string name) { function_ = std::move(name); }

  /// What `${NAME}` and `${NAME[@]}` stand for; one that is not set is unresolved.
  Word scalar(const std::string& name) const;
  std::vector<Word> elements(const std::string& name) const;
  ShellBudget& budget() const { return *budget_; }

 private:
  bool is_of_function(const std::string& name) const;

  std::map<std::string, Variable> variables_;
  std::string function_;  // whose body is being read
  mutable std::set<std::string> read_;
  std::vector<std::string> written_;
  std::shared_ptr<ShellBudget> budget_ = std::make_shared<ShellBudget>();
};

constexpr std::size_t longest_shell_text = 1 << 20;
constexpr std::size_t most_shell_words = 100'000;
/// Adds a piece to a text; one that is longer than longest_shell_text is not known.
void join(Word& a, const Word& b);
/// Throws where there are more than most_shell_words.
void check_word_count(std::size_t words);

}  // namespace lockstep::importers
