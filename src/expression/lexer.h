// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::expression {

/// A word of an expression. `text` is a name with its dots ("rank.dp"), a number as written, the
/// characters of a string, or an operator; empty at the end.
struct Token {
  enum class Kind { number, name, string, symbol, end };
  Kind kind = Kind::end;
  std::string text;
  std::size_t offset = 0;
  std::size_t length = 0;

  bool is(std::string_view symbol_or_word) const {
    return (kind == Kind::symbol || kind == Kind::name) && text == symbol_or_word;
  }
};

/// All words of `text`, the last one of kind `end`. Throws ExpressionError.
std::vector<Token> tokenize(std::string_view text);

}  // namespace lockstep::expression
