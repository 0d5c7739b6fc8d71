// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "src/importers/shell_variables.h"

namespace lockstep::importers {

/// Letters, digits and underscores.
bool is_shell_name_character(char c);
bool is_shell_blank(char c);
/// The length of the name that `text` begins with; 0 where it begins with none.
std::size_t shell_name_length(std::string_view text);

class ShellWordList;

/// The words of a script from a place on, with quotes, variables, defaults and arithmetic put in.
class ShellWords {
 public:
  ShellWords(const std::shared_ptr<const Source>& source, ShellVariables variables)
      : source_(source), text_(source->text), variables_(std::move(variables)) {}

 protected:
  char at(std::size_t i) const { return i < text_.size() ? text_[i] : '\0'; }
  char here() const { return at(next_); }
  Place place(std::size_t begin, std::size_t end) const { return {source_, begin, std::min(end, text_.size()), ""}; }
  int line(std::size_t offset) const { return line_column(place(offset, offset)).line; }
  /// Spaces, continued lines and comments.
  void skip_blanks();
  /// The words that begin here, up to the next blank or separator. `whole`: on the right of an assignment, where
  /// nothing is split.
  std::vector<Word> read_word(bool whole = false);
  /// One past the bracket that closes what was opened before `begin`.
  std::size_t closing(std::size_t begin, char open, char close) const;
  /// A variable that something which is not executed sets.
  void set_unknown(const std::string& name, std::size_t at);
  /// The variables that an arithmetic expression assigns to: = and the like, ++ and --.
  void set_changed_unknown(std::string_view expression, std::size_t at);

  std::shared_ptr<const Source> source_;
  std::string_view text_;
  ShellVariables variables_;
  std::size_t next_ = 0;

 private:
  void read_quoted(ShellWordList& list);
  void add(ShellWordList& list, const Word& word, bool quoted);
  void read_expansion(ShellWordList& list, bool quoted);
  /// `${…}` without its brackets.
  void braced(ShellWordList& list, std::string_view inside, const Place& where, bool quoted);
  /// The word behind `:-`; it may hold variables itself.
  Word default_value(std::string_view text, const Place& where);
  Word arithmetic(std::string_view expression, const Place& where);

  int nesting_ = 0;  // of defaults in defaults
};

}  // namespace lockstep::importers
