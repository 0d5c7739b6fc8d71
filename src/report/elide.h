// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>

namespace lockstep::report {

/// Columns that a line with a formula takes up at most, where -v was not given.
constexpr std::size_t page_width = 120;
/// What a formula may take up in a table, inside a sentence, on each side of "becomes" or "expected" in an annotation,
/// in a line of its own, and in a page.
constexpr std::size_t widest_cell = 40, widest_in_sentence = 48, widest_side = 95, widest_line = 104,
                      widest_in_page = 200;
constexpr std::size_t unlimited_width = static_cast<std::size_t>(-1);

/// `formula` in at most `most` columns. A longer one is cut after a term, where one fits in, and
/// says how many terms it has in all: "g0.m0+g0.m1 … (16 terms)".
std::string elided(const std::string& formula, std::size_t most);
/// The same for readers who can ask for more: "g0.m0+g0.m1 … and 14 more terms (-v prints all)".
std::string shortened(const std::string& formula, std::size_t most);

/// `text`, one line, on lines of at most page_width columns, those behind the first indented by `indent`. It is broken
/// at spaces, but not at those that unbroken() made; a word that is wider stands on a line of its own. Colours take up
/// no columns, and spaces at the end are left out.
std::string wrapped(const std::string& text, std::size_t indent);
/// For wrapped(): `formula` with spaces that stay in their line.
std::string unbroken(std::string formula);

}  // namespace lockstep::report
