// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace lockstep::report {

/// Text that every format can hold and everybody can see: tabs become spaces, what would not be seen is escaped
/// (is_invisible(); not line feeds), and what is not valid UTF-8, or is no character of XML 1.0 (U+FFFE, U+FFFF),
/// becomes U+FFFD.
std::string clean_text(std::string_view text);
/// The same on one line: line feeds become spaces too, and none stands at the end.
std::string one_line_text(std::string_view text);
/// A file's name at the beginning of a line: on one line, behind "./" where it would be a command in the log of a
/// GitHub job, which begins with "::".
std::string file_text(std::string_view path);
/// For Markdown, on one line: text that is to be read as it is, in a table's cell as well.
std::string markdown_text(std::string_view text);
/// Text between backticks, as many as it takes.
std::string markdown_code(std::string_view text);
/// The same in a table, where a pipe ends a cell even between backticks.
std::string markdown_cell(std::string_view text);
/// `&`, `<`, `>` and `"` as entities: text between tags or between the quotes of an attribute, in XML and in HTML.
std::string markup_text(std::string_view text);
/// A file's name as part of an address: what is not a letter, a digit or one of "-._~/" is written as %XX.
std::string url_text(std::string_view text);
/// A path as code hosts name files: without "./" and "a/../". Absolute ones stay absolute.
std::string repository_path(std::string_view path);

}  // namespace lockstep::report
