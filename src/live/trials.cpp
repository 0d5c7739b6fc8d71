// SPDX-License-Identifier: Apache-2.0
#include "src/live/trials.h"

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

Trials::Trials(const Ground& ground, const Cell& cell, const Columns& columns, Earlier earlier, DesignCache& cache)
    : ground_(ground), cell_(cell), earlier_(std::move(earlier)), cache_(cache) {
  for (const Column& column : columns.columns) own_.push_back(&column);
}

std::optional<Trials::Found> Trials::first_that_fits(const Problem& problem, const std::vector<int>& ranks) {
  if (!is_prepared_) prepare();
  std::set<int> data;
  for (const int rank : ranks) data.insert(ground_.run.data_coordinate(rank));
  const std::vector<int> own(data.begin(), data.end());
  std::vector<Trial> of_own = usual(&own);
  for (std::vector<Trial>* trials : {&others_, &of_own, &usual_}) {
    for (Trial& trial : *trials) {
      if (std::optional<Found> found = attempt(problem, trial)) return found;
    }
  }
  return std::nullopt;
}

void Trials::prepare() {
  is_prepared_ = true;
  if (ground_.patterns != nullptr) {
    for (const Pattern& pattern : *ground_.patterns) {
      if (std::optional<Trial> trial = of_pattern(pattern, true)) others_.push_back(std::move(*trial));
    }
  }
  usual_ = usual(nullptr);
  for (Trial& trial : left_by_earlier_steps()) usual_.push_back(std::move(trial));
  for (std::vector<Trial>* trials : {&others_, &usual_}) {
    for (Trial& trial : *trials) trial.is_kept = true;
  }
}

std::optional<Trials::Found> Trials::attempt(const Problem& problem, Trial& trial) {
  Problem own = problem;
  own.columns = trial.columns;
  const Basis& basis = cache_.over(trial.columns).scaled(own).basis;
  std::optional<Left> left;
  if (trial.is_kept) {
    auto found = trial.solved.find(&basis);
    if (found == trial.solved.end()) found = trial.solved.emplace(&basis, basis.solve(trial.design)).first;
    left = fits(own, basis, trial.design, found->second);
  } else {
    left = fits(own, basis, trial.design, basis.solve(trial.design));
  }
  if (!left) return std::nullopt;
  Found result;
  result.left = *left;
  result.of_others = trial.of_others;
  result.explanation.stale = trial.columns.size() > own_.size();
  for (std::size_t j = 0; j < trial.columns.size(); ++j) {
    const Rational& coefficient = trial.coefficients[j];
    result.explanation.entered.push_back({trial.columns[j], to_double(coefficient), 0, coefficient});
  }
  return result;
}

Trials::Trial Trials::of_coefficients(std::vector<const Column*> columns, std::vector<Rational> coefficients) {
  Trial trial;
  trial.columns = std::move(columns);
  trial.design = design_of(coefficients);
  trial.coefficients = std::move(coefficients);
  return trial;
}

/// Nothing where it says nothing of one of the columns.
std::optional<Trials::Trial> Trials::of_pattern(const Pattern& pattern, bool of_others) {
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
    const auto entry = pattern.find(source_of(cell_, *column));
    if (entry == pattern.end()) return std::nullopt;
    coefficients.push_back(entry->second);
  }
  Trial trial = of_coefficients(std::move(all), std::move(coefficients));
  trial.of_others = of_others;
  return trial;
}

/// The own data alone, or the last micro-batch alone, or both, or all; with what is expected or undivided.
std::vector<Trials::Trial> Trials::usual(const std::vector<int>* own) const {
  int last = 0;
  for (const Column* column : own_) last = std::max(last, column->micro_batch);
  std::vector<Trial> trials;
  for (const bool last_alone : {true, false}) {
    for (const bool divided : {true, false}) {
      std::vector<Rational> coefficients;
      coefficients.reserve(own_.size());
      for (const Column* column : own_) {
        const bool in = (own == nullptr ||
                         std::binary_search(own->begin(), own->end(), ground_.run.data_coordinate(column->rank))) &&
                        (!last_alone || column->micro_batch == last);
        coefficients.push_back(!in ? Rational(0) : divided ? *column->expected : Rational(column->different));
      }
      trials.push_back(of_coefficients(own_, std::move(coefficients)));
    }
  }
  return trials;
}

/// What is expected, with all that the last optimizer steps left.
std::vector<Trials::Trial> Trials::left_by_earlier_steps() {
  std::vector<Trial> trials;
  Pattern pattern;
  for (const Column* column : own_) pattern[source_of(cell_, *column)] = *column->expected;
  for (int back = 1; back <= most_back; ++back) {
    const std::optional<std::vector<const Column*>> columns = earlier_(back);
    if (!columns || !std::all_of(columns->begin(), columns->end(),
                                 [](const Column* column) { return column->expected.has_value(); }))
      break;
    if (columns->empty()) continue;
    for (const Column* column : *columns) pattern[source_of(cell_, *column)] = *column->expected;
    if (std::optional<Trial> trial = of_pattern(pattern, false)) trials.push_back(std::move(*trial));
  }
  return trials;
}

}  // namespace lockstep::live
