// SPDX-License-Identifier: Apache-2.0
#include "src/live/hypotheses.h"

#include <algorithm>
#include <set>
#include <tuple>

namespace lockstep::live {

namespace {

constexpr std::size_t most_columns = 4096;  // of a formula

std::tuple<int, int, int> source_of(const Cell& cell, const Column& column) {
  return {cell.step - column.step, column.rank, column.micro_batch};
}

}  // namespace

Hypotheses::Hypotheses(const RunContext& context, const Cell& cell, const Columns& columns, Earlier earlier,
                       DesignCache& cache)
    : context_(context), cell_(cell), earlier_(std::move(earlier)), cache_(cache) {
  for (const Column& column : columns.columns) own_.push_back(&column);
}

std::optional<Hypotheses::Found> Hypotheses::first_that_fits(const Problem& problem, const std::vector<int>& ranks) {
  if (!is_prepared_) prepare();
  std::set<int> data;
  for (const int rank : ranks) data.insert(context_.run.data_coordinate(rank));
  const std::vector<int> own(data.begin(), data.end());
  std::vector<Hypothesis> of_own = usual(&own);
  for (std::vector<Hypothesis>* hypotheses : {&others_, &of_own, &usual_}) {
    for (Hypothesis& hypothesis : *hypotheses) {
      if (std::optional<Found> found = attempt(problem, hypothesis)) return found;
    }
  }
  return std::nullopt;
}

void Hypotheses::prepare() {
  is_prepared_ = true;
  if (context_.patterns != nullptr) {
    for (const Pattern& pattern : *context_.patterns) {
      if (std::optional<Hypothesis> hypothesis = of_pattern(pattern, true)) others_.push_back(std::move(*hypothesis));
    }
  }
  usual_ = usual(nullptr);
  for (Hypothesis& hypothesis : left_by_earlier_steps()) usual_.push_back(std::move(hypothesis));
  for (std::vector<Hypothesis>* hypotheses : {&others_, &usual_}) {
    for (Hypothesis& hypothesis : *hypotheses) hypothesis.is_kept = true;
  }
}

std::optional<Hypotheses::Found> Hypotheses::attempt(const Problem& problem, Hypothesis& hypothesis) {
  Problem own = problem;
  own.columns = hypothesis.columns;
  const Basis& basis = cache_.over(hypothesis.columns).scaled(own).basis;
  std::optional<Left> left;
  if (hypothesis.is_kept) {
    auto found = hypothesis.solved.find(&basis);
    if (found == hypothesis.solved.end())
      found = hypothesis.solved.emplace(&basis, basis.solve(hypothesis.design)).first;
    left = fits(own, basis, hypothesis.design, found->second);
  } else {
    left = fits(own, basis, hypothesis.design, basis.solve(hypothesis.design));
  }
  if (!left) return std::nullopt;
  Found result;
  result.left = *left;
  result.of_others = hypothesis.of_others;
  result.explanation.stale = hypothesis.columns.size() > own_.size();
  for (std::size_t j = 0; j < hypothesis.columns.size(); ++j) {
    const Rational& coefficient = hypothesis.coefficients[j];
    result.explanation.entered.push_back({hypothesis.columns[j], to_double(coefficient), 0, coefficient});
  }
  return result;
}

Hypotheses::Hypothesis Hypotheses::of_coefficients(std::vector<const Column*> columns,
                                                   std::vector<Rational> coefficients) {
  Hypothesis hypothesis;
  hypothesis.columns = std::move(columns);
  hypothesis.design = design_of(coefficients);
  hypothesis.coefficients = std::move(coefficients);
  return hypothesis;
}

/// Nothing where it says nothing of one of the columns.
std::optional<Hypotheses::Hypothesis> Hypotheses::of_pattern(const Pattern& pattern, bool of_others) {
  std::vector<const Column*> all = own_;
  const int oldest = pattern.empty() ? 0 : std::get<0>(pattern.rbegin()->first);
  for (int back = 1; oldest > 0 && back <= most_back && all.size() < most_columns; ++back) {
    const std::optional<std::vector<const Column*>> columns = earlier_(back);
    if (!columns) break;
    if (columns->empty()) continue;
    if (cell_.step - columns->front()->step > oldest) break;
    all.insert(all.end(), columns->begin(), columns->end());
  }
  if ((oldest > 0) != (all.size() > own_.size())) return std::nullopt;
  std::vector<Rational> coefficients;
  for (const Column* column : all) {
    // What is the same on several ranks here may not be so in the parameter that the pattern is of.
    std::optional<Rational> sum;
    for (const auto& [rank, micro_batch] : column->members) {
      const auto entry = pattern.find({cell_.step - column->step, rank, micro_batch});
      if (entry != pattern.end()) sum = sum.value_or(Rational(0)) + entry->second;
    }
    if (!sum) return std::nullopt;
    coefficients.push_back(*sum);
  }
  Hypothesis hypothesis = of_coefficients(std::move(all), std::move(coefficients));
  hypothesis.of_others = of_others;
  return hypothesis;
}

/// The own data alone, or the last micro-batch alone, or both, or all; with what is expected or undivided.
std::vector<Hypotheses::Hypothesis> Hypotheses::usual(const std::vector<int>* own) const {
  int last = 0;
  for (const Column* column : own_) last = std::max(last, column->micro_batch);
  std::vector<Hypothesis> hypotheses;
  for (const bool last_alone : {true, false}) {
    for (const bool divided : {true, false}) {
      std::vector<Rational> coefficients;
      coefficients.reserve(own_.size());
      for (const Column* column : own_) {
        const bool in = (own == nullptr ||
                         std::binary_search(own->begin(), own->end(), context_.run.data_coordinate(column->rank))) &&
                        (!last_alone || column->micro_batch == last);
        coefficients.push_back(!in ? Rational(0) : divided ? *column->expected : Rational(column->different));
      }
      hypotheses.push_back(of_coefficients(own_, std::move(coefficients)));
    }
  }
  return hypotheses;
}

/// What is expected, with all that the last optimizer steps left.
std::vector<Hypotheses::Hypothesis> Hypotheses::left_by_earlier_steps() {
  std::vector<Hypothesis> hypotheses;
  Pattern pattern;
  for (const Column* column : own_) pattern[source_of(cell_, *column)] = *column->expected;
  for (int back = 1; back <= most_back; ++back) {
    const std::optional<std::vector<const Column*>> columns = earlier_(back);
    if (!columns || !std::all_of(columns->begin(), columns->end(),
                                 [](const Column* column) { return column->expected.has_value(); }))
      break;
    if (columns->empty()) continue;
    for (const Column* column : *columns) pattern[source_of(cell_, *column)] = *column->expected;
    if (std::optional<Hypothesis> hypothesis = of_pattern(pattern, false)) hypotheses.push_back(std::move(*hypothesis));
  }
  return hypotheses;
}

}  // namespace lockstep::live
