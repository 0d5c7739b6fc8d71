// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep {

/// A text that was read, with the name that messages give it. Lines are counted from 1, columns from 1 in characters:
/// code points of UTF-8, whatever their width; a tab is one.
struct Source {
  std::string name;
  std::string text;
};

/// A text that nobody changes: copies share it.
class SharedText {
 public:
  SharedText() = default;
  SharedText(std::string text) : text_(text.empty() ? nullptr : std::make_shared<const std::string>(std::move(text))) {}
  SharedText(const char* text) : SharedText(std::string(text)) {}

  const std::string& text() const {
    static const std::string nothing;
    return text_ == nullptr ? nothing : *text_;
  }

 private:
  std::shared_ptr<const std::string> text_;
};

/// A stretch of a source: bytes [begin, end), with the JSON pointer of the value there.
struct Place {
  std::shared_ptr<const Source> source;  ///< none: made by the program
  std::size_t begin = 0;
  std::size_t end = 0;
  SharedText pointer;
};

/// One mistake of a user's: a full sentence that says what was expected and what was found.
struct Diagnostic {
  Place place;
  std::string message;
};

struct LineColumn {
  int line = 0;
  int column = 0;
};
/// Where `place` begins; {0, 0} without a source.
LineColumn line_column(const Place& place);

/// "FILE:LINE:COLUMN: error: MESSAGE [POINTER]", then the source line and a caret line under it.
/// Tabs are kept in the caret line, long lines are cut around the caret. Ends with a newline.
std::string render(const Diagnostic& diagnostic);

/// Collects the mistakes of a file, so that all are reported at once. Beyond the first thousand they are only counted.
class Diagnostics {
 public:
  void add(const Place& place, std::string message);
  bool empty() const { return list_.empty(); }
  std::size_t size() const { return list_.size() + left_out_; }
  /// Sorted by source and place, equal ones once; the last one says how many were left out.
  std::vector<Diagnostic> sorted() const;

 private:
  std::vector<Diagnostic> list_;
  std::size_t left_out_ = 0;
};

/// Thrown where a user's mistake ends the work at once; carries everything that was found.
class InputError : public std::runtime_error {
 public:
  explicit InputError(std::vector<Diagnostic> diagnostics);
  const std::vector<Diagnostic>& diagnostics() const { return diagnostics_; }
  /// All of them as render() shows them. Written when it is first asked for: a search for sizes that a file allows
  /// catches thousands that nobody reads.
  const char* what() const noexcept override;

 private:
  std::vector<Diagnostic> diagnostics_;
  mutable std::string rendered_;
};

/// A broken invariant of lockstep itself, or a failure of the machine: exit status 3.
class InternalError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

/// The word of `known` nearest to `word` (Damerau-Levenshtein, at most a third of its letters
/// wrong), or an empty string.
std::string nearest_word(std::string_view word, const std::vector<std::string>& known);
/// `; did you mean "WORD"?`, or "" where nothing is near.
std::string did_you_mean(std::string_view word, const std::vector<std::string>& known);

}  // namespace lockstep
