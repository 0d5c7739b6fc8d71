// SPDX-License-Identifier: Apache-2.0
#include "src/expression/lexer.h"

#include <array>

#include "lockstep/expression.h"

namespace lockstep::expression {
namespace {

// <cctype> depends on the locale; expressions do not.
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool starts_name(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool in_name(char c) { return starts_name(c) || is_digit(c); }

class Lexer {
 public:
  explicit Lexer(std::string_view text) : text_(text) {}

  std::vector<Token> all() {
    std::vector<Token> tokens;
    while (true) {
      while (at_ < text_.size() && (peek() == ' ' || peek() == '\t' || peek() == '\n' || peek() == '\r')) ++at_;
      begin_ = at_;
      if (at_ == text_.size()) break;
      tokens.push_back(next());
    }
    tokens.push_back({Token::Kind::end, "", text_.size(), 1});
    return tokens;
  }

 private:
  char peek(std::size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }

  Token token(Token::Kind kind) const {
    return {kind, std::string(text_.substr(begin_, at_ - begin_)), begin_, at_ - begin_};
  }

  Token next() {
    if (is_digit(peek())) return number();
    if (starts_name(peek())) return name();
    if (peek() == '\'') return string();
    for (const std::string_view symbol : {"==", "!=", "<=", ">="}) {
      if (text_.substr(at_, 2) == symbol) {
        at_ += 2;
        return token(Token::Kind::symbol);
      }
    }
    if (std::string_view("+-*/(),<>").find(peek()) != std::string_view::npos) {
      ++at_;
      return token(Token::Kind::symbol);
    }
    unexpected();
  }

  Token number() {
    while (is_digit(peek())) ++at_;
    if (peek() == '.' && is_digit(peek(1))) {
      ++at_;
      while (is_digit(peek())) ++at_;
    }
    if (peek() == 'e' || peek() == 'E') {
      const std::size_t sign = peek(1) == '+' || peek(1) == '-' ? 1 : 0;
      if (is_digit(peek(1 + sign))) {
        at_ += 1 + sign;
        while (is_digit(peek())) ++at_;
      }
    }
    if (starts_name(peek())) {
      const std::string digits(text_.substr(begin_, at_ - begin_));
      throw ExpressionError("a number ends here and a name begins; write \"" + digits + "*NAME\" for a product", at_);
    }
    return token(Token::Kind::number);
  }

  Token name() {
    while (in_name(peek()) || (peek() == '.' && starts_name(peek(1)))) ++at_;
    return token(Token::Kind::name);
  }

  // A quote inside is doubled.
  Token string() {
    std::string content;
    for (++at_; at_ < text_.size(); ++at_) {
      if (peek() == '\'') {
        ++at_;
        if (peek() != '\'') {
          Token result = token(Token::Kind::string);
          result.text = content;
          return result;
        }
      }
      content += peek();
    }
    throw ExpressionError("this string has no closing quote \"'\"", begin_, text_.size() - begin_);
  }

  [[noreturn]] void unexpected() const {
    static constexpr std::array<std::array<std::string_view, 2>, 7> hints = {{
        {"&&", "write \"and\" for \"&&\""},
        {"||", "write \"or\" for \"||\""},
        {"=", "write \"==\" to compare"},
        {"!", "write \"not\" for \"!\""},
        {"\"", "write strings in single quotes: \"'adam'\""},
        {"%", "there is no remainder; the operators are + - * /"},
        {"^", "there is no power; the operators are + - * /"},
    }};
    for (const auto& [symbol, hint] : hints) {
      if (text_.substr(at_, symbol.size()) == symbol) throw ExpressionError(std::string(hint), at_, symbol.size());
    }
    std::size_t length = 1;  // of the character in UTF-8
    while (at_ + length < text_.size() && (static_cast<unsigned char>(text_[at_ + length]) & 0xC0U) == 0x80U) ++length;
    const std::string character(text_.substr(at_, length));
    throw ExpressionError("the character \"" + character + "\" has no meaning in an expression", at_, length);
  }

  std::string_view text_;
  std::size_t at_ = 0;
  std::size_t begin_ = 0;
};

}  // namespace

std::vector<Token> tokenize(std::string_view text) { return Lexer(text).all(); }

}  // namespace lockstep::expression
