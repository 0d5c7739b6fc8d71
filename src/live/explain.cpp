// SPDX-License-Identifier: Apache-2.0
#include "src/live/explain.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "src/diagnosis/kind_of_mistake.h"
#include "src/live/fractions.h"

namespace lockstep::live {

namespace {

constexpr int least_freedom = 4;  // equations beyond the unknowns, for coefficients that mean something
// The same where columns of earlier steps come in, which with few equations would explain anything.
constexpr int freedom_for_earlier = 16;

/// What a wrong normalization would make of a column's weight.
std::optional<Rational> likely_factor(const Column& column, const Rational& weight, int kind) {
  if (column.likely == nullptr) return std::nullopt;
  const std::optional<Rational> likely = column.likely->likely(column.rank, column.micro_batch, kind);
  return likely ? std::optional(*likely / weight) : std::nullopt;
}

/// The fraction that a group's factor stands for: what is expected where noise allows that; else the fraction with the
/// smallest denominator, of the factor or of the coefficient; else what a wrong normalization would make of it.
std::optional<Rational> fraction_of(const std::vector<const Column*>& columns, const Group& group, bool expected,
                                    double factor, double tolerance) {
  if (expected && std::abs(factor - 1) <= tolerance) return Rational(1);
  const Group::Share& first = group.shares.front();
  const bool alike = std::all_of(group.shares.begin(), group.shares.end(),
                                 [&](const Group::Share& share) { return share.weight == first.weight; });
  std::optional<Rational> found = nearest_fraction(factor, tolerance);
  if (alike) {
    const std::optional<Rational> coefficient =
        nearest_fraction(factor * first.rounded, tolerance * std::abs(first.rounded));
    if (coefficient && (!found || coefficient->denominator() < found->denominator()))
      found = *coefficient / first.weight;
  }
  if (found) return found;
  for (int kind = 0; kind < Expected::likely_kinds; ++kind) {
    std::optional<Rational> one = likely_factor(*columns[first.column], first.weight, kind);
    if (!one || std::abs(to_double(*one) - factor) > tolerance) continue;
    const bool all = std::all_of(group.shares.begin(), group.shares.end(), [&](const Group::Share& share) {
      return likely_factor(*columns[share.column], share.weight, kind) == one;
    });
    if (all) return one;
  }
  return std::nullopt;
}

/// The search in one problem: the candidate with the fewest groups that is as good as the finest one that can be
/// solved.
class Search {
 public:
  Search(const Problem& problem, Designs& designs, int freedom)
      : problem_(problem), scaled_(designs.scaled(problem)), system_(problem, scaled_.basis) {
    const std::vector<Candidate>& candidates = designs.candidates();
    const auto fit = [&](std::size_t i) {
      const Design& design = candidates[i].design;
      return system_.has_enough(design) ? system_.fit(design, designs.solved(scaled_, i)) : Fit{};
    };
    std::size_t last = candidates.size();
    while (last > 0 && !finest_.solved) {
      const Candidate& candidate = candidates[--last];
      const auto groups = static_cast<int>(candidate.design.size());
      // One factor for all may be all that a parameter of one element can tell.
      const bool enough = system_.equations() - groups >= (candidate.uniform ? 0 : freedom);
      if (enough) finest_ = fit(last);
    }
    if (!finest_.solved) return;
    told_apart_ = candidates[last].each && finest_.freedom >= least_freedom;
    chosen_ = &candidates[last];
    fit_ = finest_;
    for (std::size_t i = 0; i <= last; ++i) {
      Fit one = i == last ? finest_ : fit(i);
      if (!one.solved || !one.explained || !as_good(one, candidates[last].each)) continue;
      chosen_ = &candidates[i];
      fit_ = std::move(one);
      explained_ = true;
      return;
    }
  }

  bool explained() const { return explained_; }

  Explanation explanation(std::size_t own) const {
    Explanation result;
    result.explained = explained_;
    result.residual = 1;
    for (const Column* column : problem_.columns) result.entered.push_back({column, 0, 0, Rational(0)});
    if (chosen_ == nullptr) {
      if (system_.size() == 0) result.residual = 0;
      return result;
    }
    result.told_apart = told_apart_;
    result.uniform = chosen_->uniform;
    result.of_expected = chosen_->uniform && chosen_->expected;
    result.stale = problem_.columns.size() > own;
    result.residual = fit_.residual;
    result.noise = fit_.noise;
    for (std::size_t g = 0; g < chosen_->design.size(); ++g) {
      const Group& group = chosen_->design[g];
      const double factor = fit_.factors[g];
      const double error = fit_.errors[g];
      const bool expected = chosen_->expected && group.shares.front().column < own;
      const std::optional<Rational> fraction =
          fraction_of(problem_.columns, group, expected, factor, fit_.limit * error);
      if (result.uniform) {
        result.factor = factor;
        result.exact_factor = fraction;
      }
      for (const Group::Share& share : group.shares) {
        ColumnCoefficient& one = result.entered[share.column];
        one.value = share.rounded * factor;
        one.error = std::abs(share.rounded) * error;
        one.exact = fraction ? std::optional(*fraction * share.weight) : std::nullopt;
      }
    }
    check_fractions(result);
    result.right = result.of_expected && result.explained && result.exact_factor && result.exact_factor->is_one();
    if (result.right) find_hidden(result);
    return result;
  }

 private:
  bool near(const Vector& prediction) const {
    const auto unknowns = static_cast<double>(finest_.factors.size());
    return LeastSquares::distance(finest_, prediction) <= unknowns + 8 * std::sqrt(2 * unknowns) + 36;
  }

  bool as_good(const Fit& fit, bool finest_is_each) const {
    if (!finest_is_each) return near(fit.prediction);
    for (std::size_t j = 0; j < fit.coefficients.size(); ++j) {
      if (std::abs(fit.coefficients[j] - finest_.coefficients[j]) > finest_.limit * finest_.coefficient_errors[j])
        return false;
    }
    return true;
  }

  /// Takes each rank's contributions away: linear in the columns, as each is taken with the ranks that yielded it.
  void find_hidden(Explanation& result) const {
    std::map<int, Vector> without;
    for (std::size_t j = 0; j < result.entered.size(); ++j) {
      const Column& column = *result.entered[j].column;
      if (column.members.empty() || is_zero(column.values)) continue;
      const double share = result.entered[j].value * scaled_.basis.scale() / static_cast<double>(column.members.size());
      for (const auto& [rank, micro_batch] : column.members) {
        Vector& left = without.try_emplace(rank, finest_.prediction).first->second;
        for (std::size_t i = 0; i < left.size(); ++i) left[i] -= share * column.values[i];
      }
    }
    for (const auto& [rank, left] : without) {
      result.came.insert(rank);
      if (near(left)) result.hidden.insert(rank);
    }
    if (!told_apart_) return;
    for (std::size_t j = 0; j < result.entered.size(); ++j) {
      ColumnCoefficient& one = result.entered[j];
      if (!result.hidden.contains(one.column->rank)) continue;
      one.value = finest_.coefficients[j];
      one.error = finest_.coefficient_errors[j];
    }
  }

  /// All fractions together must explain as much as the numbers that they were rounded from.
  void check_fractions(Explanation& result) const {
    if (!result.exact()) return;
    Vector coefficients(result.entered.size());
    for (std::size_t j = 0; j < result.entered.size(); ++j) coefficients[j] = to_double(*result.entered[j].exact);
    if (near(system_.predict(coefficients))) return;
    for (ColumnCoefficient& one : result.entered) one.exact = std::nullopt;
    result.exact_factor = std::nullopt;
  }

  const Problem& problem_;
  Designs::Scaled& scaled_;
  LeastSquares system_;
  Fit finest_, fit_;
  const Candidate* chosen_ = nullptr;
  bool told_apart_ = false, explained_ = false;
};

}  // namespace

bool Explanation::exact() const {
  return std::all_of(entered.begin(), entered.end(),
                     [](const ColumnCoefficient& one) { return one.exact.has_value(); });
}

Explanation explain(const Problem& problem, const Earlier& earlier, DesignCache& cache) {
  const std::size_t own = problem.columns.size();
  if (own == 0 && is_zero(problem.result)) {
    Explanation nothing;
    nothing.explained = nothing.told_apart = nothing.uniform = nothing.of_expected = nothing.right = true;
    nothing.factor = 1;
    nothing.exact_factor = Rational(1);
    return nothing;
  }
  const Search search(problem, cache.over(problem.columns), least_freedom);
  if (search.explained()) return search.explanation(own);
  // Gradients that nobody zeroed: those of the step before, and of all before that.
  Problem more = problem;
  std::vector<std::size_t> first;
  for (int back = 1; back <= most_back; ++back) {
    const std::optional<std::vector<const Column*>> columns = earlier(back);
    if (!columns) break;
    if (columns->empty()) continue;  // backward yielded nothing there; what came before it may be left all the same
    first.push_back(more.columns.size());
    more.columns.insert(more.columns.end(), columns->begin(), columns->end());
    const Search wider(more, cache.over(more.columns, first), freedom_for_earlier);
    if (wider.explained()) return wider.explanation(own);
  }
  return search.explanation(own);
}

Mistake kind_of(const Explanation& found, int first_step) {
  diagnosis::Difference content;
  bool exact = true;
  for (const ColumnCoefficient& one : found.entered) {
    const std::optional<Rational>& expected = one.column->expected;
    const bool is_zero = one.exact && one.exact->is_zero();
    if (one.column->step < first_step) {
      content.leftover = content.leftover || !is_zero;
    } else if (!expected || !expected->is_zero()) {
      content.missing = content.missing || is_zero;
      exact = exact && one.exact;
      if (one.exact) content.take(expected ? *one.exact / *expected : *one.exact);
    }
  }
  const Mistake kind = diagnosis::kind_of_content({content});
  return kind == Mistake::wrong_factor && !exact ? Mistake::wrong_weights : kind;
}

Design design_of(const std::vector<Rational>& coefficients) {
  Design design(1);
  for (std::size_t j = 0; j < coefficients.size(); ++j) {
    if (!coefficients[j].is_zero()) design[0].shares.push_back({j, coefficients[j], to_double(coefficients[j])});
  }
  return design;
}

std::optional<Left> fits(const Problem& problem, const Basis& basis, const Design& design, const SolvedDesign& solved) {
  if (design.front().shares.empty()) return is_zero(problem.result) ? std::optional(Left{}) : std::nullopt;
  const Fit fit = LeastSquares(problem, basis).fit(design, solved);
  if (!fit.solved || !fit.explained || std::abs(fit.factors[0] - 1) > fit.limit * fit.errors[0]) return std::nullopt;
  return Left{fit.residual, fit.noise};
}

}  // namespace lockstep::live
