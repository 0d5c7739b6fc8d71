// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace lockstep::report {

/// Everything that the program says goes through here last, whatever writer made it. Names and messages come from files
/// of others, and what they put in must neither hide nor act:
/// - what would not be seen is escaped (is_invisible()), but line feeds, tabs and the colours of Style;
/// - no line begins with "::" and none holds "##[" or "##WORD[", which the runners of CI take as commands.
/// Text may come in pieces, cut anywhere.
class ReadableText {
 public:
  enum class Kind {
    text,      ///< also Markdown: a backslash stands before what would act
    commands,  ///< lines that are commands for a runner, made by a writer that escapes what it puts in
    json,
    markup,  ///< XML and HTML: entities
    as_is,   ///< what the program or the user wrote, byte by byte
  };
  explicit ReadableText(Kind kind) : kind_(kind) {}

  /// What may leave of everything so far.
  std::string next(std::string_view piece);
  /// What was held back, after the last piece.
  std::string rest();

 private:
  std::string take(std::string_view text, bool last);
  void take_ascii(char c, std::string& out);

  Kind kind_;
  std::string held_;         // the beginning of a character or a colour
  bool line_begins_ = true;  // nothing but white space so far
  bool colon_held_ = false;  // the first of a line
  int marks_ = 0;            // '#' so far; 2 also where letters follow them
};

/// The same of a whole text.
std::string readable_text(std::string_view text);
/// The kind of what `lockstep -f FORMAT` writes.
ReadableText::Kind kind_of_format(std::string_view format);

}  // namespace lockstep::report
