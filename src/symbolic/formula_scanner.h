// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "lockstep/expression.h"

namespace lockstep::formula {

inline bool is_digit(char c) { return c >= '0' && c <= '9'; }
inline bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

/// The text of a formula and how far it is read.
struct Scanner {
  std::string_view text;
  std::size_t at = 0;

  /// Throws ExpressionError for what stands from `offset` to here.
  [[noreturn]] void fail(const std::string& message, std::size_t offset) const;
  /// The next character after spaces; 0 at the end.
  char peek();
  /// The next character, without skipping spaces: inside a name there are none.
  char directly() const { return at < text.size() ? text[at] : '\0'; }
  bool accept(char symbol);
  void expect(char symbol);
  /// Digits as a number.
  int whole_number();
  /// An identifier, or whatever stands in single quotes; empty where there is neither.
  std::string word();
  Rational number();
};

}  // namespace lockstep::formula
