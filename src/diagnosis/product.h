// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/expression.h"

namespace lockstep::diagnosis {

/// An expression as a fraction of factors, for edits that read as a person would write them: "1 / (dp * cp)" times
/// "cp" is "1 / dp", and not "1 / (dp * cp) * cp".
class Product {
 public:
  Product() = default;  ///< 1
  /// An expression that is no product of factors (a sum, a condition) is one factor, in brackets.
  explicit Product(const Expression& expression);
  static Product parse(std::string_view text) { return Product(Expression::parse(text)); }
  /// Of the factor of a step: 1 where it has none.
  static Product of(const std::optional<Expression>& factor) { return factor ? Product(*factor) : Product(); }

  /// Whether all factors of another one, which has no divisor, are factors or divisors of this.
  bool multiplies_by(const Product& other) const { return contains(numerator_, other); }
  bool divides_by(const Product& other) const { return contains(denominator_, other); }
  /// Without the factors and divisors that are plain numbers.
  Product without_numbers() const;
  Product times(const Product& other) const;
  Product over(const Product& other) const;
  std::string to_string() const;
  Expression expression() const { return Expression::parse(to_string()); }

 private:
  void multiply(std::string_view factor, bool divide);
  void multiply(const Expression::Node& node, bool divide);

  static bool contains(const std::vector<std::string>& factors, const Product& other);

  std::vector<std::string> numerator_, denominator_;
};

}  // namespace lockstep::diagnosis
