// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace lockstep {

/// Text that every format can hold: control characters but line feeds become spaces, and what is not valid UTF-8, or is
/// no character of XML 1.0 (U+FFFE, U+FFFF), becomes U+FFFD.
std::string clean_text(std::string_view text);
/// The same on one line: line feeds become spaces too, and none stands at the end.
std::string one_line_text(std::string_view text);
/// A file's name at the beginning of a line: on one line, behind "./" where it would be a command in the log of a
/// GitHub job, which begins with "::".
std::string file_text(std::string_view path);
/// `&`, `<`, `>` and `"` as entities: text between tags or between the quotes of an attribute, in XML and in HTML.
std::string markup_text(std::string_view text);
/// A file's name as part of an address: what is not a letter, a digit or one of "-._~/" is written as %XX.
std::string url_text(std::string_view text);
/// A path as code hosts name files: without "./" and "a/../". Absolute ones stay absolute.
std::string repository_path(std::string_view path);

}  // namespace lockstep
