// SPDX-License-Identifier: Apache-2.0
#include "src/symbolic/formula_scanner.h"

#include <algorithm>
#include <charconv>

namespace lockstep::formula {

void Scanner::fail(const std::string& message, std::size_t offset) const {
  throw ExpressionError(message, offset, offset < text.size() ? std::max<std::size_t>(at, offset + 1) - offset : 1);
}

char Scanner::peek() {
  while (at < text.size() && (text[at] == ' ' || text[at] == '\t' || text[at] == '\n')) ++at;
  return directly();
}

bool Scanner::accept(char symbol) {
  if (peek() != symbol) return false;
  ++at;
  return true;
}

void Scanner::expect(char symbol) {
  if (!accept(symbol)) fail("expected \"" + std::string(1, symbol) + "\"", at);
}

int Scanner::whole_number() {
  const std::size_t begin = at;
  while (is_digit(directly())) ++at;
  int value = 0;
  if (std::from_chars(text.data() + begin, text.data() + at, value).ec != std::errc()) fail("expected a number", begin);
  return value;
}

std::string Scanner::word() {
  const std::size_t begin = at;
  if (directly() != '\'') {
    while (is_letter(directly()) || is_digit(directly())) ++at;
    return std::string(text.substr(begin, at - begin));
  }
  std::string content;
  for (++at; at < text.size(); ++at) {
    if (text[at] == '\'' && (++at == text.size() || text[at] != '\'')) return content;
    content += text[at];
  }
  fail("this name has no closing quote \"'\"", begin);
}

Rational Scanner::number() {
  const std::size_t begin = at;
  while (is_digit(directly())) ++at;
  if (directly() == '.' && at + 1 < text.size() && is_digit(text[at + 1])) {
    for (++at; is_digit(directly());) ++at;
  }
  if (directly() == 'e' && at + 1 < text.size() && (is_digit(text[at + 1]) || text[at + 1] == '-')) {
    for (at += 2; is_digit(directly());) ++at;
  }
  const std::optional<Rational> value = Rational::parse(text.substr(begin, at - begin));
  if (!value) fail("this is no number", begin);
  return *value;
}

}  // namespace lockstep::formula
