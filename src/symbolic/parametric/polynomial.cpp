// SPDX-License-Identifier: Apache-2.0
#include "src/symbolic/parametric/polynomial.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "src/base/budget.h"

namespace lockstep::parametric {

namespace {

std::uint64_t pair_key(int a, int b) {
  return static_cast<std::uint64_t>(std::min(a, b)) << 32 | static_cast<std::uint64_t>(std::max(a, b));
}

/// A square of a square and so on has a power that no number holds, and no factor of a gradient has one of a thousand.
constexpr int most_power = 4096;

Polynomials::Monomial product(const Polynomials::Monomial& a, const Polynomials::Monomial& b) {
  Polynomials::Monomial result;
  std::size_t i = 0, j = 0;
  while (i < a.size() || j < b.size()) {
    if (j == b.size() || (i < a.size() && a[i].first < b[j].first)) {
      result.push_back(a[i++]);
    } else if (i == a.size() || b[j].first < a[i].first) {
      result.push_back(b[j++]);
    } else {
      const int exponent = a[i].second + b[j].second;
      if (std::abs(exponent) > most_power) throw OverBudget(fmt::format("it would take powers above {}", most_power));
      if (exponent != 0) result.emplace_back(a[i].first, exponent);
      ++i, ++j;
    }
  }
  return result;
}

/// What stands with each power of x in (least + x) to the power of `exponent`.
std::vector<Rational> shifted_power(int least, int exponent) {
  std::vector<Rational> factors(at(exponent + 1));
  factors.back() = Rational(1);
  for (int i = exponent; i > 0; --i) {
    factors[at(i - 1)] = factors[at(i)] * Rational(least) * Rational(i) / Rational(exponent - i + 1);
    spend_on(factors[at(i - 1)]);
  }
  return factors;
}

}  // namespace

Rational power(const Rational& base, int exponent) {
  Rational result(1);
  for (int i = 0; i < std::abs(exponent); ++i) result *= base;
  return exponent < 0 ? Rational(1) / result : result;
}

std::string name_of(const Variable& variable) {
  switch (variable.kind) {
    case Variable::Kind::size:
      return std::string(lockstep::name_of(variable.axis));
    case Variable::Kind::micro_batches:
      return "micro_batches";
    case Variable::Kind::coordinate:
      return "rank." + std::string(lockstep::name_of(variable.axis));
    case Variable::Kind::tokens:
      break;
  }
  std::string name = "tokens";
  if (variable.entry != "main") name += "." + variable.entry;
  if (variable.micro_batch >= 0) {
    name += "[" + std::to_string(variable.micro_batch) + "]";
  } else if ((variable.summed & all_micro_batches) != 0 && variable.step > 0) {
    name += "[step " + std::to_string(variable.step) + "]";
  }
  if (variable.summed == 0) return name;
  for (int axis = 0; axis < axis_count; ++axis) {
    if ((variable.summed >> axis & 1U) != 0) name += ", " + std::string(lockstep::name_of(static_cast<Axis>(axis)));
  }
  if ((variable.summed & all_micro_batches) != 0) name += ", micro_batch";
  return "sum(" + name + ")";
}

Polynomials::Polynomials() {
  intern({});
  constant(Rational(1));
  minus_one_ = constant(Rational(-1));
}

int Polynomials::intern(Terms terms) {
  Budget::spend(4 + 4 * static_cast<std::int64_t>(terms.size()));
  for (const auto& [monomial, coefficient] : terms) spend_on(coefficient);
  const auto [found, is_new] = numbers_.emplace(std::move(terms), static_cast<int>(terms_.size()));
  if (is_new) terms_.push_back(&found->first);
  return found->second;
}

int Polynomials::constant(const Rational& value) {
  if (value.is_zero()) return 0;
  return intern({{Monomial{}, value}});
}

int Polynomials::variable(const Variable& variable) {
  const auto [found, is_new] = variable_numbers_.emplace(variable, static_cast<int>(variables_.size()));
  if (is_new) variables_.push_back(variable);
  return intern({{Monomial{{found->second, 1}}, Rational(1)}});
}

int Polynomials::import(const Polynomials& other, int a) {
  int sum = 0;
  for (const auto& [monomial, coefficient] : other.terms(a)) {
    int term = constant(coefficient);
    for (const auto& [number, exponent] : monomial) {
      int factor = variable(other.variable_at(number));
      if (exponent < 0) factor = *inverse(factor);
      for (int i = 0; i < std::abs(exponent); ++i) term = multiply(term, factor);
    }
    sum = add(sum, term);
  }
  return sum;
}

int Polynomials::add(int a, int b) {
  if (a == 0) return b;
  if (b == 0) return a;
  // Known once it is there: a budget may end the work in between.
  if (const auto known = sums_.find(pair_key(a, b)); known != sums_.end()) return known->second;
  Terms sum = terms(a);
  for (const auto& [monomial, coefficient] : terms(b)) {
    const auto [place, added] = sum.emplace(monomial, coefficient);
    if (added) continue;
    place->second += coefficient;
    if (place->second.is_zero()) sum.erase(place);
  }
  const int number = intern(std::move(sum));
  sums_.emplace(pair_key(a, b), number);
  return number;
}

int Polynomials::multiply(int a, int b) {
  if (a == 0 || b == 0) return 0;
  if (a == 1) return b;
  if (b == 1) return a;
  if (const auto known = products_.find(pair_key(a, b)); known != products_.end()) return known->second;
  Terms result;
  for (const auto& [left, by] : terms(a)) {
    for (const auto& [right, times] : terms(b)) {
      const auto [place, added] = result.emplace(product(left, right), by * times);
      if (added) continue;
      place->second += by * times;
      if (place->second.is_zero()) result.erase(place);
    }
  }
  const int number = intern(std::move(result));
  products_.emplace(pair_key(a, b), number);
  return number;
}

std::optional<int> Polynomials::inverse(int a) {
  if (terms(a).size() != 1) return std::nullopt;
  const auto& [monomial, coefficient] = *terms(a).begin();
  Monomial flipped = monomial;
  for (Power& one : flipped) one.second = -one.second;
  return intern({{std::move(flipped), Rational(1) / coefficient}});
}

std::optional<Rational> Polynomials::as_constant(int a) const {
  if (terms(a).empty()) return Rational(0);
  if (terms(a).size() == 1 && terms(a).begin()->first.empty()) return terms(a).begin()->second;
  return std::nullopt;
}

Rational Polynomials::evaluate(int a, const std::function<Rational(const Variable&)>& value_of) const {
  Rational sum;
  for (const auto& [monomial, coefficient] : terms(a)) {
    Rational term = coefficient;
    for (const auto& [number, exponent] : monomial) term *= power(value_of(variable_at(number)), exponent);
    sum += term;
  }
  return sum;
}

Polynomials::Bounds Polynomials::bounds(const Terms& terms, const SpanOf& span_of) const {
  std::optional<Rational> low(0), high(0);
  for (const auto& [monomial, coefficient] : terms) {
    Rational smallest(1);
    std::optional<Rational> largest(1);
    for (const auto& [number, exponent] : monomial) {
      const auto [least, most] = span_of(variable_at(number));
      std::optional<Rational> up, down(0);
      if (least > 0 || exponent > 0) (exponent > 0 ? down : up) = power(Rational(least), exponent);
      if (most) (exponent > 0 ? up : down) = power(Rational(*most), exponent);
      smallest *= *down;
      largest = largest && up ? std::optional(*largest * *up) : std::nullopt;
    }
    const bool negative = coefficient.is_negative();
    const std::optional<Rational> other = largest ? std::optional(*largest * coefficient) : std::nullopt;
    const std::optional<Rational> one = smallest * coefficient, &lower = negative ? other : one,
                                  &upper = negative ? one : other;
    low = low && lower ? std::optional(*low + *lower) : std::nullopt;
    high = high && upper ? std::optional(*high + *upper) : std::nullopt;
  }
  return {low, high};
}

/// Divided by the powers of positive variables that all terms have: the sign is the same.
Polynomials::Terms Polynomials::without_common_powers(const Terms& terms, const SpanOf& span_of) const {
  std::map<int, int> common;
  for (const auto& [number, exponent] : terms.begin()->first) {
    if (exponent > 0 && span_of(variable_at(number)).least > 0) common[number] = exponent;
  }
  for (const auto& [monomial, coefficient] : terms) {
    const std::map<int, int> exponents(monomial.begin(), monomial.end());
    for (auto& [number, exponent] : common) {
      const auto found = exponents.find(number);
      exponent = found == exponents.end() ? 0 : std::min(exponent, std::max(found->second, 0));
    }
  }
  Monomial divisor;
  for (const auto& [number, exponent] : common) {
    if (exponent > 0) divisor.emplace_back(number, -exponent);
  }
  Terms quotient;
  for (const auto& [monomial, coefficient] : terms) quotient.emplace(product(monomial, divisor), coefficient);
  return quotient;
}

Signs Polynomials::signs(int a, const SpanOf& span_of) const {
  if (a == 0) return {false, true, false};
  bool ends = false;
  // Times a positive product, so that no exponent is negative; then every variable as its least value plus a new one
  // that is not negative: where all coefficients have one sign, so has the sum.
  std::map<int, int> lowest;
  for (const auto& [monomial, coefficient] : terms(a)) {
    for (const auto& [number, exponent] : monomial) {
      lowest[number] = std::min(lowest[number], exponent);
      ends = ends || span_of(variable_at(number)).most;
    }
  }
  Terms shifted;
  for (const auto& [monomial, coefficient] : terms(a)) {
    std::map<int, int> exponents;
    for (const auto& [number, low] : lowest) exponents[number] = -low;
    for (const auto& [number, exponent] : monomial) exponents[number] += exponent;
    Terms expanded = {{Monomial{}, coefficient}};
    for (const auto& [number, exponent] : exponents) {
      if (exponent == 0) continue;
      const std::vector<Rational> factors = shifted_power(span_of(variable_at(number)).least, exponent);
      Terms next;
      for (const auto& [part, by] : expanded) {
        for (int i = 0; i <= exponent; ++i) {
          Monomial power = part;  // of variables before this one
          if (i > 0) power.emplace_back(number, i);
          next.emplace(std::move(power), by * factors[at(i)]);
        }
      }
      Budget::spend(static_cast<std::int64_t>(next.size()));
      expanded = std::move(next);
    }
    for (const auto& [part, by] : expanded) shifted[part] += by;
  }
  Signs result;
  for (const auto& [part, by] : shifted) {
    if (by.is_zero()) continue;
    (by.is_negative() ? result.negative : result.positive) = true;
  }
  const auto lowest_value = shifted.find(Monomial{});
  result.zero = lowest_value == shifted.end() || lowest_value->second.is_zero() || (result.negative && result.positive);
  if (!ends) return result;
  // An end of a span is not seen by that: bounds of the terms see it.
  const auto [low, high] = bounds(without_common_powers(terms(a), span_of), span_of);
  result.negative = result.negative && !(low && !low->is_negative());
  result.positive = result.positive && !(high && !(Rational(0) < *high));
  result.zero = result.zero && !(low && Rational(0) < *low) && !(high && high->is_negative());
  return result;
}

std::string Polynomials::to_string(int a) const {
  if (a == 0) return "0";
  std::string text;
  for (const auto& [monomial, coefficient] : terms(a)) {
    const bool negative = coefficient.is_negative();
    const Rational size = negative ? -coefficient : coefficient;
    std::string above, below;
    int factors_below = 0;
    for (const auto& [number, exponent] : monomial) {
      std::string& side = exponent > 0 ? above : below;
      for (int i = 0; i < std::abs(exponent); ++i) {
        side += (side.empty() ? "" : "*") + name_of(variable_at(number));
        if (exponent < 0) ++factors_below;
      }
    }
    if (!size.numerator().is_one() || above.empty())
      above.insert(0, size.numerator().to_string() + (above.empty() ? "" : "*"));
    if (!size.denominator().is_one()) {
      below.insert(0, size.denominator().to_string() + (below.empty() ? "" : "*"));
      ++factors_below;
    }
    if (!below.empty()) above += "/" + (factors_below > 1 ? "(" + below + ")" : below);
    if (text.empty()) {
      text = (negative ? "-" : "") + above;
    } else {
      text += (negative ? " - " : " + ") + above;
    }
  }
  return text;
}

}  // namespace lockstep::parametric
