// SPDX-License-Identifier: Apache-2.0
#include "src/symbolic/parametric/zero_condition.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdlib>
#include <numeric>
#include <vector>

namespace lockstep::parametric {

namespace {

Rational value_of(const Variable& variable, const Sizes& sizes) {
  return Rational(variable.kind == Variable::Kind::size ? sizes.axes.at(variable.axis)
                                                        : sizes.micro_batches.value_or(1));
}

/// Where the sum is zero; nothing where it does not have two terms.
std::optional<ZeroCondition> zero_of(const Polynomials& polynomials, const SizeTerms& sum) {
  if (sum.size() != 2) return std::nullopt;
  ZeroCondition condition;
  condition.product = -sum[1].second / sum[0].second;
  for (const auto& [number, exponent] : sum[0].first) condition.exponents[polynomials.variable_at(number)] += exponent;
  for (const auto& [number, exponent] : sum[1].first) condition.exponents[polynomials.variable_at(number)] -= exponent;
  std::erase_if(condition.exponents, [](const auto& one) { return one.second == 0; });
  if (condition.exponents.empty()) return std::nullopt;
  if (condition.exponents.begin()->second < 0) {
    for (auto& [variable, exponent] : condition.exponents) exponent = -exponent;
    condition.product = Rational(1) / condition.product;
  }
  return condition;
}

/// The size at which a power of one size is the number; none where there is none, or the condition is another one.
std::optional<int> root_of(const ZeroCondition& condition) {
  if (condition.exponents.size() != 1 || condition.exponents.begin()->second < 0) return std::nullopt;
  const int exponent = condition.exponents.begin()->second;
  int low = 1, high = largest_size;
  while (low < high) {
    const int middle = low + (high - low) / 2;
    if (power(Rational(middle), exponent) < condition.product) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return power(Rational(low), exponent) == condition.product ? std::optional(low) : std::nullopt;
}

}  // namespace

bool ZeroCondition::holds(const Sizes& sizes) const {
  Rational found(1);
  for (const auto& [variable, exponent] : exponents) found = found * power(value_of(variable, sizes), exponent);
  return found == product;
}

ZeroCondition ZeroCondition::within(const CaseSizes& one) const {
  ZeroCondition left{{}, product};
  for (const auto& [variable, exponent] : exponents) {
    const auto exact = one.exact.find(variable.axis);
    if (variable.kind == Variable::Kind::size && exact != one.exact.end()) {
      left.product = left.product / power(Rational(exact->second), exponent);
    } else if (variable.kind == Variable::Kind::micro_batches && one.exact_micro_batches) {
      left.product = left.product / power(Rational(*one.exact_micro_batches), exponent);
    } else {
      left.exponents[variable] = exponent;
    }
  }
  if (!left.exponents.empty() && left.exponents.begin()->second < 0) {
    for (auto& [variable, exponent] : left.exponents) exponent = -exponent;
    left.product = Rational(1) / left.product;
  }
  return left;
}

bool ZeroCondition::never_holds(const Reason& reason) const {
  const ZeroCondition here = within(*reason.of);
  if (here.exponents.empty()) return !here.product.is_one();
  if (here.exponents.size() == 1 && here.exponents.begin()->second > 0 && !root_of(here)) return true;
  Rational smallest(1);
  std::optional<Rational> largest(1);
  bool whole = true;
  for (const auto& [variable, exponent] : here.exponents) {
    const auto least = reason.least.find(variable.axis);
    const bool size = variable.kind == Variable::Kind::size && least != reason.least.end();
    const auto end = reason.of->most.find(variable.axis);
    const std::optional<int> most = !size                          ? reason.of->most_micro_batches
                                    : end == reason.of->most.end() ? std::nullopt
                                                                   : std::optional(end->second);
    const Rational at_least = power(Rational(size ? least->second : 1), exponent);
    const std::optional<Rational> at_most = most ? std::optional(power(Rational(*most), exponent)) : std::nullopt;
    whole = whole && exponent > 0;
    smallest = smallest * (exponent > 0 ? at_least : at_most.value_or(Rational(0)));
    const std::optional<Rational> up = exponent > 0 ? at_most : at_least;
    largest = largest && up ? std::optional(*largest * *up) : std::nullopt;
  }
  return here.product < smallest || (largest && *largest < here.product) ||
         (whole && !here.product.denominator().is_one());
}

std::optional<ZeroCondition> zero_condition(const Reason& reason) {
  if (reason.cell->fault == Fault::unowned) return std::nullopt;
  const Polynomials& polynomials = reason.representative->world->polynomials();
  std::optional<ZeroCondition> found;
  for (const auto& [others, sum] : by_tokens(polynomials, reason.cell->value)) {
    std::optional<ZeroCondition> here = zero_of(polynomials, sum);
    if (!here || (found && !(*found == *here))) return std::nullopt;
    found = std::move(here);
  }
  return found;
}

std::string describe(const ZeroCondition& condition) {
  if (const auto root = root_of(condition))
    return fmt::format("{} = {}", name_of(condition.exponents.begin()->first), *root);
  std::vector<std::string> above, below;
  for (const auto& [variable, exponent] : condition.exponents) {
    for (int i = 0; i < std::abs(exponent); ++i) (exponent > 0 ? above : below).push_back(name_of(variable));
  }
  // p/q · below = above
  const Rational numerator = condition.product.numerator(), denominator = condition.product.denominator();
  if (!(denominator == Rational(1))) above.insert(above.begin(), denominator.to_string());
  if (below.empty() || !(numerator == Rational(1))) below.insert(below.begin(), numerator.to_string());
  return fmt::format("{} = {}", fmt::join(above, "*"), fmt::join(below, "*"));
}

}  // namespace lockstep::parametric
