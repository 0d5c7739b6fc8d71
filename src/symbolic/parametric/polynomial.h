// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "lockstep/mesh.h"
#include "lockstep/rational.h"
#include "src/base/at.h"

namespace lockstep::parametric {

/// A number that a proof leaves open.
struct Variable {
  enum class Kind {
    size,           ///< of `axis`
    micro_batches,  ///< of the optimizer step
    tokens,         ///< of the contributor's piece, summed over the axes in `summed`
    coordinate      ///< the contributor's, along `axis`
  };
  Kind kind = Kind::size;
  Axis axis = Axis::dp;
  std::string entry;     ///< tokens: the use under which the batch lists them
  unsigned summed = 0;   ///< tokens: bit i for the Axis of number i; all_micro_batches for these
  int micro_batch = -1;  ///< tokens of one micro-batch, counted through the optimizer steps; -1: the contribution's own
  int step = 0;          ///< optimizer step of tokens
  auto operator<=>(const Variable&) const = default;
};
inline constexpr unsigned all_micro_batches = 1U << 31;
inline unsigned bit(Axis axis) { return 1U << static_cast<unsigned>(axis); }

/// As people write it: "dp", "micro_batches", "tokens", "sum(tokens, dp, micro_batch)".
std::string name_of(const Variable& variable);

/// `base` is not 0 where `exponent` is negative.
Rational power(const Rational& base, int exponent);

/// Values that a variable has in a proof: whole ones from `least` on, without `most` for ever.
struct Span {
  int least = 1;
  std::optional<int> most = std::nullopt;
};
using SpanOf = std::function<Span(const Variable&)>;

/// Which signs a number can have.
struct Signs {
  bool negative = false, zero = false, positive = false;
};

/// Sums of products of powers of variables, exponents of either sign, with exact coefficients. Interned: two are equal
/// as functions exactly when their numbers are. 0 is zero, 1 is one. Quotients exist by products of powers only, which
/// is what factors of gradients divide by; whatever else is divided by is said to be out of reach.
class Polynomials {
 public:
  using Power = std::pair<int, int>;           ///< variable number, exponent other than 0
  using Monomial = std::vector<Power>;         ///< by variable number
  using Terms = std::map<Monomial, Rational>;  ///< no coefficient is 0

  Polynomials();
  int constant(const Rational& value);
  int variable(const Variable& variable);
  int add(int a, int b);
  int multiply(int a, int b);
  int negate(int a) { return multiply(a, minus_one_); }
  int subtract(int a, int b) { return add(a, negate(b)); }
  /// Nothing where `a` has several terms. `a` must not be 0.
  std::optional<int> inverse(int a);
  /// The same polynomial of another set.
  int import(const Polynomials& other, int a);
  std::optional<Rational> as_constant(int a) const;
  const Terms& terms(int a) const { return *terms_[at(a)]; }
  const Variable& variable_at(int number) const { return variables_[at(number)]; }
  /// The value where each variable has the value that `value_of` gives.
  Rational evaluate(int a, const std::function<Rational(const Variable&)>& value_of) const;
  /// The signs over all whole values of the variables in their spans; more than there are where that is not seen.
  Signs signs(int a, const SpanOf& span_of) const;
  /// Between which numbers the values there are; none on a side where none is seen.
  using Bounds = std::pair<std::optional<Rational>, std::optional<Rational>>;
  Bounds bounds(int a, const SpanOf& span_of) const { return bounds(terms(a), span_of); }
  std::string to_string(int a) const;

 private:
  int intern(Terms terms);
  Bounds bounds(const Terms& terms, const SpanOf& span_of) const;
  Terms without_common_powers(const Terms& terms, const SpanOf& span_of) const;
  std::vector<const Terms*> terms_;
  std::map<Terms, int> numbers_;
  std::vector<Variable> variables_;
  std::map<Variable, int> variable_numbers_;
  std::unordered_map<std::uint64_t, int> sums_, products_;
  int minus_one_ = 0;
};

}  // namespace lockstep::parametric
