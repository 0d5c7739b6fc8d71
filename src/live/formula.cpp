// SPDX-License-Identifier: Apache-2.0
#include "src/live/formula.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "src/live/run_layout.h"

namespace lockstep::live {

RunFormulas::RunFormulas(const CapturedRun& run) : steps_(run.steps) {
  std::optional<Layout> layout = layout_of(run.header);
  knows_axes_ = layout.has_value();
  if (!layout) {
    layout.emplace();
    layout->dp = layout->dp_shard = run.header.world;
  }
  Mesh mesh(*layout);
  Parameter parameter;
  parameter.name = "parameter";
  parameter.shape = {1};
  parameter.stage = std::nullopt;
  // Each rank's contribution has a name of its own, of earlier optimizer steps as well.
  if (mesh.size(Axis::tp) > 1) parameter.partial.push_back(Axis::tp);
  Diagnostics diagnostics;
  Model model(mesh, {parameter}, diagnostics);
  if (!diagnostics.empty()) throw InternalError("the model of a captured run is refused");
  Batch batch;
  batch.micro_batch_counts.clear();
  for (const int step : steps_) {
    int most = 1;
    for (const RankRecord& rank : run.ranks) {
      const auto found = rank.steps.find(step);
      if (found != rank.steps.end()) most = std::max(most, found->second.micro_batches);
    }
    batch.micro_batch_counts.push_back(most);
  }
  if (batch.micro_batch_counts.empty()) batch.micro_batch_counts.push_back(1);
  batch.tokens_of_use["main"].kind = Batch::Tokens::Kind::even;
  schedule_ = std::make_unique<Schedule>(Schedule{std::move(mesh), std::move(model), std::move(batch), {}});
}

Term RunFormulas::term(const Column& column, const Rational& coefficient) const {
  const auto step = static_cast<int>(std::lower_bound(steps_.begin(), steps_.end(), column.step) - steps_.begin());
  Term term;
  term.rank = column.rank;
  term.micro_batch = schedule_->batch.first_micro_batch(step) + column.micro_batch;
  term.logical = 0;
  term.piece = 0;
  term.coefficient = coefficient;
  return term;
}

std::string RunFormulas::print(const std::vector<Term>& terms, const std::vector<Term>& support) const {
  return print_formula(*schedule_, 0, 0, terms, support);
}

std::string RunFormulas::print_rounded(const std::vector<ColumnCoefficient>& entered,
                                       const std::vector<Term>& support) const {
  std::string text;
  // All that a name depends on, besides the first, whose step is the result's.
  std::map<int, std::vector<Term>> of_rank;
  for (const Term& one : support) of_rank.try_emplace(one.rank, 1, support.front()).first->second.push_back(one);
  for (const ColumnCoefficient& one : entered) {
    if (one.exact && one.exact->is_zero()) continue;
    const double value = one.value;
    const double size = std::abs(value);
    const auto near = of_rank.find(one.column->rank);
    const std::string name = print({term(*one.column, Rational(1))}, near == of_rank.end() ? support : near->second);
    const int digits = one.error > 0 && size > 0
                           ? std::clamp(static_cast<int>(std::floor(std::log10(size / one.error))) + 1, 1, 6)
                           : 6;
    text += text.empty() ? (value < 0 ? "-" : "") : value < 0 ? " - " : " + ";
    text += fmt::format("{:.{}g}*{}", size, digits, name);
  }
  return text.empty() ? "0" : text;
}

std::string RunFormulas::difference(const std::vector<Term>& got, const std::vector<Term>& expected) const {
  return describe_difference(*schedule_, got, expected);
}

}  // namespace lockstep::live
