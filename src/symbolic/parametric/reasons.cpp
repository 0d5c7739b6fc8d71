// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <set>

#include "src/base/at.h"
#include "src/symbolic/parametric/cases.h"
#include "src/symbolic/parametric/whole_roots.h"

namespace lockstep::parametric {

namespace {

Rational value_at(const Polynomials& polynomials, const SizeTerms& part, const Sizes& sizes) {
  Rational sum;
  for (const auto& [monomial, coefficient] : part) {
    Rational term = coefficient;
    for (const auto& [number, exponent] : monomial) {
      const Variable& variable = polynomials.variable_at(number);
      const Rational value(variable.kind == Variable::Kind::size ? sizes.axes.at(variable.axis)
                                                                 : sizes.micro_batches.value_or(1));
      for (int i = 0; i < std::abs(exponent); ++i) term = exponent > 0 ? term * value : term / value;
    }
    sum += term;
  }
  return sum;
}

bool depends_on_sizes(const Reason& reason) {
  const Polynomials& polynomials = reason.representative->world->polynomials();
  for (const auto& [monomial, coefficient] : polynomials.terms(reason.cell->value)) {
    for (const Polynomials::Power& power : monomial) {
      const Variable::Kind kind = polynomials.variable_at(power.first).kind;
      if (kind == Variable::Kind::size || kind == Variable::Kind::micro_batches) return true;
    }
  }
  return false;
}

bool depends_on_cut(const ClassResult& result, const Cell& cell) {
  for (std::size_t i = 0; i < cell.partitions.size(); ++i) {
    if (cell.partitions[i] < 0) continue;
    const Level& level = result.diagrams->at_level(static_cast<int>(i));
    if (level.owners.size() > 1 || (!level.owners.empty() && !level.constants.empty())) return true;
  }
  return false;
}

/// What a value depends on, but for tokens and coordinates.
struct DependsOn {
  std::set<Axis> axes;
  bool micro_batches = false;
  std::size_t count() const { return axes.size() + (micro_batches ? 1 : 0); }
};

DependsOn sizes_of(const Polynomials& polynomials, const TokenParts& parts) {
  DependsOn found;
  for (const auto& [others, part] : parts) {
    for (const auto& [monomial, coefficient] : part) {
      for (const auto& [number, exponent] : monomial) {
        const Variable& variable = polynomials.variable_at(number);
        if (variable.kind == Variable::Kind::size) found.axes.insert(variable.axis);
        found.micro_batches = found.micro_batches || variable.kind == Variable::Kind::micro_batches;
      }
    }
  }
  return found;
}

/// All sizes at which the sum is zero that depends on one size alone.
std::vector<int> roots_of(const SizeTerms& part) {
  const auto exponent_of = [](const Polynomials::Monomial& monomial) {
    return monomial.empty() ? 0 : monomial.front().second;
  };
  int lowest = 0, highest = 0;
  for (const auto& [monomial, coefficient] : part) {
    lowest = std::min(lowest, exponent_of(monomial));
    highest = std::max(highest, exponent_of(monomial));
  }
  std::vector<Rational> coefficients(at(highest - lowest) + 1);
  for (const auto& [monomial, coefficient] : part) coefficients[at(exponent_of(monomial) - lowest)] += coefficient;
  while (!coefficients.empty() && coefficients.back().is_zero()) coefficients.pop_back();
  return whole_roots(coefficients, largest_size);
}

/// Sizes at which all parts are zero, which depend on one size alone; those of other cases too.
std::vector<Sizes> zeros_of_one_size(const Polynomials& polynomials, const TokenParts& parts, const DependsOn& on) {
  std::vector<Sizes> found;
  for (const int root : roots_of(parts.begin()->second)) {
    Sizes point;
    if (on.micro_batches) {
      point.micro_batches = root;
    } else {
      point.axes[*on.axes.begin()] = root;
    }
    const bool is_zero = std::all_of(parts.begin(), parts.end(), [&](const auto& part) {
      return value_at(polynomials, part.second, point).is_zero();
    });
    if (is_zero) found.push_back(point);
  }
  return found;
}

/// Whether `a` says no more than `b`.
bool covered(const Reason& a, const Reason& b) {
  if (b.by_cut && !a.by_cut) return false;
  return std::all_of(b.least.begin(), b.least.end(),
                     [&](const auto& bound) { return a.least.at(bound.first) >= bound.second; });
}

}  // namespace

TokenParts by_tokens(const Polynomials& polynomials, int value) {
  TokenParts parts;
  for (const auto& [monomial, coefficient] : polynomials.terms(value)) {
    Polynomials::Monomial sizes, others;
    for (const Polynomials::Power& power : monomial) {
      const Variable::Kind kind = polynomials.variable_at(power.first).kind;
      const bool size = kind == Variable::Kind::size || kind == Variable::Kind::micro_batches;
      (size ? sizes : others).push_back(power);
    }
    parts[others].emplace_back(sizes, coefficient);
  }
  return parts;
}

bool always(const Reason& reason) {
  const World& world = *reason.representative->world;
  const Polynomials& polynomials = world.polynomials();
  if (reason.cell->fault == Fault::unowned) return reason.cell->value == 0;
  if (!depends_on_sizes(reason)) return true;
  const auto span_of = [&](const Variable& variable) {
    Span span = world.span(variable);
    const auto found = reason.least.find(variable.axis);
    if (variable.kind == Variable::Kind::size && found != reason.least.end()) span.least = found->second;
    return span;
  };
  for (const auto& [others, part] : by_tokens(polynomials, reason.cell->value)) {
    Polynomials scratch;
    int sum = 0;
    for (const auto& [monomial, coefficient] : part) {
      int term = scratch.constant(coefficient);
      for (const auto& [number, exponent] : monomial) {
        int factor = scratch.variable(polynomials.variable_at(number));
        if (exponent < 0) factor = *scratch.inverse(factor);
        for (int i = 0; i < std::abs(exponent); ++i) term = scratch.multiply(term, factor);
      }
      sum = scratch.add(sum, term);
    }
    if (!scratch.signs(sum, span_of).zero) return true;
  }
  return false;
}

bool CaseSizes::holds(const Sizes& sizes) const {
  for (const auto& [axis, size] : exact) {
    if (sizes.axes.at(axis) != size) return false;
  }
  for (const auto& [axis, size] : least) {
    if (sizes.axes.at(axis) < size) return false;
  }
  for (const auto& [axis, size] : most) {
    if (sizes.axes.at(axis) > size) return false;
  }
  if (exact_micro_batches && sizes.micro_batches != exact_micro_batches) return false;
  if (!least_micro_batches) return true;
  const bool ends = most_micro_batches && sizes.micro_batches > most_micro_batches;
  return sizes.micro_batches && *sizes.micro_batches >= *least_micro_batches && !ends;
}

bool applies(const Reason& reason, const Sizes& sizes) {
  if (!reason.of->holds(sizes)) return false;
  for (const auto& [axis, least] : reason.least) {
    if (sizes.axes.at(axis) < least) return false;
  }
  const Polynomials& polynomials = reason.representative->world->polynomials();
  const auto parts = by_tokens(polynomials, reason.cell->value);
  const bool zero = std::all_of(parts.begin(), parts.end(),
                                [&](const auto& part) { return value_at(polynomials, part.second, sizes).is_zero(); });
  return reason.cell->fault == Fault::unowned ? zero : !zero;
}

std::vector<Reason> reasons_of(const Case& one) {
  struct Kept {
    Reason reason;
    bool always;
  };
  std::vector<Kept> kept;
  const auto add = [&](Reason reason) {
    if (std::any_of(kept.begin(), kept.end(),
                    [&](const Kept& other) { return other.always && covered(reason, other.reason); }))
      return;
    const bool is_always = always(reason);
    if (is_always) std::erase_if(kept, [&](const Kept& other) { return covered(other.reason, reason); });
    kept.push_back({std::move(reason), is_always});
  };
  for (const Representative& representative : one.representatives) {
    for (const ClassResult& result : representative.results) {
      for (const Cell& cell : result.cells) {
        Reason reason{&one, &representative, &result, &cell, one.least, depends_on_cut(result, cell)};
        for (std::size_t i = 0; i < cell.partitions.size(); ++i) {
          const Level& level = result.diagrams->at_level(static_cast<int>(i));
          if (cell.partitions[i] < 0 || !level.open) continue;
          int& least = reason.least.at(level.axis);
          least = std::max(least, level.partitions.blocks(cell.partitions[i]));
        }
        add(std::move(reason));
      }
    }
  }
  std::vector<Reason> reasons;
  reasons.reserve(kept.size());
  for (Kept& one_kept : kept) reasons.push_back(std::move(one_kept.reason));
  return reasons;
}

std::optional<std::vector<Sizes>> zeros_of_the_one_size(const Reason& reason) {
  const Polynomials& polynomials = reason.representative->world->polynomials();
  const TokenParts parts = by_tokens(polynomials, reason.cell->value);
  const DependsOn on = sizes_of(polynomials, parts);
  if (on.count() != 1) return std::nullopt;
  std::vector<Sizes> zeros = zeros_of_one_size(polynomials, parts, on);
  std::erase_if(zeros, [&](const Sizes& zero) {
    if (zero.micro_batches) {
      const int count = *zero.micro_batches;
      return count != reason.of->exact_micro_batches.value_or(count) ||
             count < reason.of->least_micro_batches.value_or(count) ||
             count > reason.of->most_micro_batches.value_or(count);
    }
    const auto [axis, size] = *zero.axes.begin();
    const auto exact = reason.of->exact.find(axis), least = reason.least.find(axis), most = reason.of->most.find(axis);
    return (exact != reason.of->exact.end() && size != exact->second) ||
           (least != reason.least.end() && size < least->second) ||
           (most != reason.of->most.end() && size > most->second);
  });
  return zeros;
}

std::map<Variable, std::set<int>> sizes_beside_zeros(const Reason& reason) {
  constexpr int most = 64;
  const Polynomials& polynomials = reason.representative->world->polynomials();
  std::map<Variable, std::pair<int, int>> exponents;  // the lowest and the highest of each
  for (const auto& [monomial, coefficient] : polynomials.terms(reason.cell->value)) {
    for (const auto& [number, exponent] : monomial) {
      auto& [lowest, highest] = exponents[polynomials.variable_at(number)];
      lowest = std::min(lowest, exponent), highest = std::max(highest, exponent);
    }
  }
  std::map<Variable, std::set<int>> sizes;
  for (const auto& [variable, range] : exponents) {
    const auto of_axis = reason.least.find(variable.axis);
    const bool is_size = variable.kind == Variable::Kind::size && of_axis != reason.least.end();
    if (!is_size && (variable.kind != Variable::Kind::micro_batches || !reason.of->least_micro_batches)) continue;
    const int least = is_size ? of_axis->second : *reason.of->least_micro_batches;
    for (int i = 0; i <= std::min(range.second - range.first, most); ++i) sizes[variable].insert(least + i);
  }
  return sizes;
}

std::vector<Sizes> zeros_of(const Reason& reason) {
  if (reason.cell->fault == Fault::unowned || !depends_on_sizes(reason)) return {};
  const Polynomials& polynomials = reason.representative->world->polynomials();
  const auto parts = by_tokens(polynomials, reason.cell->value);
  const DependsOn on = sizes_of(polynomials, parts);
  const std::set<Axis>& axes = on.axes;
  const bool has_count = on.micro_batches;
  const std::size_t sizes = on.count();
  if (sizes == 1) return zeros_of_one_size(polynomials, parts, on);
  if (always(reason)) return {};
  std::vector<Sizes> found;
  Sizes point;
  const auto is_zero = [&] {
    return std::all_of(parts.begin(), parts.end(),
                       [&](const auto& part) { return value_at(polynomials, part.second, point).is_zero(); });
  };
  const int most = sizes == 2 ? 64 : sizes == 3 ? 16 : 8;
  const auto look = [&](const auto& self, std::set<Axis>::const_iterator axis) -> void {
    constexpr std::size_t enough = 16;  // of several sizes: to see that not all are wrong
    if (found.size() >= enough) return;
    const bool last = axis == axes.end();
    if (last && (!has_count || point.micro_batches)) {
      if (is_zero()) found.push_back(point);
      return;
    }
    int size = last ? reason.of->least_micro_batches.value_or(1) : reason.least.at(*axis);
    std::optional<int> end = reason.of->most_micro_batches;
    if (!last) {
      const auto bound = reason.of->most.find(*axis);
      end = bound == reason.of->most.end() ? std::nullopt : std::optional(bound->second);
    }
    for (; size <= std::min(most, end.value_or(most)); ++size) {
      if (last) {
        point.micro_batches = size;
        self(self, axis);
      } else {
        point.axes[*axis] = size;
        self(self, std::next(axis));
      }
    }
    if (last) point.micro_batches.reset();
  };
  look(look, axes.begin());
  return found;
}

}  // namespace lockstep::parametric
