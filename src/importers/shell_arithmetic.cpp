// SPDX-License-Identifier: Apache-2.0
#include <cctype>
#include <cstdint>

#include "src/importers/shell.h"

namespace lockstep::importers {

namespace {

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  std::optional<std::int64_t> parse() {
    const Value value = sum(0);
    skip_space();
    return next_ == text_.size() ? value : std::nullopt;
  }

 private:
  using Value = std::optional<std::int64_t>;
  static constexpr int deepest = 50;

  void skip_space() {
    while (next_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[next_])) != 0) ++next_;
  }
  bool take(std::string_view token) {
    skip_space();
    if (!text_.substr(next_).starts_with(token)) return false;
    next_ += token.size();
    return true;
  }

  static Value apply(char operation, Value a, Value b) {
    if (!a || !b) return std::nullopt;
    std::int64_t result = 0;
    bool overflow = false;
    switch (operation) {
      case '+':
        overflow = __builtin_add_overflow(*a, *b, &result);
        break;
      case '-':
        overflow = __builtin_sub_overflow(*a, *b, &result);
        break;
      case '*':
        overflow = __builtin_mul_overflow(*a, *b, &result);
        break;
      default:
        if (*b == 0 || (*a == INT64_MIN && *b == -1)) return std::nullopt;
        result = operation == '/' ? *a / *b : *a % *b;
    }
    return overflow ? std::nullopt : Value(result);
  }

  Value sum(int depth) {
    Value value = product(depth);
    while (value) {
      if (take("+")) {
        value = apply('+', value, product(depth));
      } else if (take("-")) {
        value = apply('-', value, product(depth));
      } else {
        break;
      }
    }
    return value;
  }

  Value product(int depth) {
    Value value = power(depth);
    while (value) {
      if (take("*")) {
        value = apply('*', value, power(depth));
      } else if (take("/")) {
        value = apply('/', value, power(depth));
      } else if (take("%")) {
        value = apply('%', value, power(depth));
      } else {
        break;
      }
    }
    return value;
  }

  Value power(int depth) {
    const Value base = unary(depth);
    if (!base || !take("**")) return base;
    const Value exponent = depth < deepest ? power(depth + 1) : std::nullopt;
    if (!exponent || *exponent < 0 || *exponent > 62) return std::nullopt;
    Value result = 1;
    for (std::int64_t i = 0; i < *exponent; ++i) result = apply('*', result, base);
    return result;
  }

  Value unary(int depth) {
    if (depth > deepest) return std::nullopt;
    if (take("-")) return apply('-', 0, unary(depth + 1));
    if (take("+")) return unary(depth + 1);
    if (take("(")) {
      const Value value = sum(depth + 1);
      return take(")") ? value : std::nullopt;
    }
    skip_space();
    Value value;
    const bool octal = text_.substr(next_).starts_with('0');
    const std::size_t begin = next_;
    while (next_ < text_.size() && std::isdigit(static_cast<unsigned char>(text_[next_])) != 0) {
      value = apply('+', apply('*', value.value_or(0), 10), text_[next_++] - '0');
      if (!value) return std::nullopt;
    }
    return octal && next_ > begin + 1 ? std::nullopt : value;
  }

  std::string_view text_;
  std::size_t next_ = 0;
};

}  // namespace

std::optional<std::int64_t> shell_arithmetic(std::string_view text) { return Parser(text).parse(); }

}  // namespace lockstep::importers
