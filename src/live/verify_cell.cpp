// SPDX-License-Identifier: Apache-2.0
#include "src/live/verify_cell.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "src/base/at.h"
#include "src/base/counted.h"
#include "src/live/cell_formulas.h"
#include "src/live/hypotheses.h"
#include "src/live/precision.h"
#include "src/live/results.h"
#include "src/live/words.h"

namespace lockstep::live {

namespace {

using Verdict = VerifiedPiece::Verdict;

class CellVerifier {
 public:
  CellVerifier(const RunContext& context, const Cell& cell)
      : context_(context),
        cell_(cell),
        columns_(gather_columns(context.run, context.files, context.expected, cell.step, cell.contributions)),
        hypotheses_(
            context, cell, columns_, [this](int back) { return earlier(back); }, cache_),
        cell_formulas_(context.run, context.formulas, cell.step, pointers(columns_.columns)) {
    complete_ = context.run.complete_step(cell.step) && columns_.missing.empty();
  }

  std::vector<PieceFinding> run() {
    std::vector<PieceFinding> all;
    if (context_.run.waits(cell_.step, cell_.parameter)) return all;
    if (const auto divided = context_.run.divided.find(cell_.step); divided != context_.run.divided.end()) {
      for (PieceFinding& finding : without_formula(all))
        set_wrong(finding, finding.piece.ranks.empty() ? Mistake::no_owner : Mistake::wrong_values, divided->second);
      return all;
    }
    if (const std::string* why = context_.run.unknown(cell_.step, cell_.parameter)) {
      for (PieceFinding& finding : without_formula(all)) set_undecided(finding, *why);
      return all;
    }
    if (cell_.results.empty()) {
      if (columns_.columns.empty() && columns_.missing.empty() && columns_.non_finite == 0) return all;
      all.push_back(begin({}, cell_.contributions));
      set_wrong(all.back(), Mistake::no_owner, "no rank's optimizer gets it, and backward yields a gradient");
    }
    for (const SameResult& group : distinct_results(context_.run, cell_.results)) {
      all.push_back(begin(group.ranks, {group.first}));
      verify_result(all.back(), group);
    }
    if (const auto doubt = context_.run.doubts.find({cell_.step, cell_.parameter});
        doubt != context_.run.doubts.end()) {
      for (PieceFinding& finding : all) {
        if (finding.piece.verdict == Verdict::right) set_undecided(finding, doubt->second);
      }
    }
    // A contribution that is not known may be what is missing, or be the same as one that is known.
    for (PieceFinding& finding : all) {
      if (complete_ || finding.piece.verdict == Verdict::undecided) continue;
      set_undecided(finding, finding.piece.verdict == Verdict::right
                                 ? "right, as far as the run was recorded"
                                 : "as far as the run was recorded: " + finding.summary);
    }
    return all;
  }

 private:
  /// `tensors`: of the lines that tell of it, the first first.
  PieceFinding begin(std::vector<int> ranks, const std::vector<const SketchedTensor*>& tensors) const {
    PieceFinding finding;
    finding.piece.step = cell_.step;
    finding.piece.parameter = cell_.parameter;
    finding.piece.piece = cell_.piece;
    finding.piece.ranks = std::move(ranks);
    if (!tensors.empty()) finding.piece.place = {tensors.front()->rank, tensors.front()->line};
    finding.piece.expected = cell_formulas_.expected();
    return finding;
  }

  /// Every distinct result, or what backward yields where there is none.
  std::vector<PieceFinding>& without_formula(std::vector<PieceFinding>& all) const {
    for (const SameResult& group : distinct_results(context_.run, cell_.results))
      all.push_back(begin(group.ranks, {group.first}));
    if (all.empty()) all.push_back(begin({}, cell_.contributions));
    return all;
  }

  void verify_result(PieceFinding& finding, const SameResult& group) {
    const SketchedTensor result = whole(group);
    if (result.row < 0) return no_gradient(finding);
    if (columns_.non_finite > 0) {
      finding.piece.why =
          fmt::format("backward yields {} that {} infinite or no number on {}, and the optimizer gets {}",
                      counted(columns_.non_finite, "element"), columns_.non_finite == 1 ? "is" : "are",
                      rank_words(columns_.non_finite_ranks), result.non_finite);
      return set_undecided(finding,
                           "backward yields elements that are infinite or no numbers, so the sums say nothing");
    }
    if (result.non_finite > 0) {
      finding.piece.why =
          fmt::format("{} that the optimizer gets {} infinite or no number, and none that backward yields",
                      counted(result.non_finite, "element"), result.non_finite == 1 ? "is" : "are");
      return set_wrong(finding, Mistake::wrong_values,
                       "the optimizer gets elements that are infinite or no numbers, and backward yields none");
    }
    if (!columns_.missing.empty()) return set_undecided(finding, columns_.missing);
    Problem problem;
    if (const std::optional<int> missing = read_result(context_.files, cell_.step, group, problem.result))
      return set_undecided(
          finding, fmt::format("the sketches of rank {} in optimizer step {} are missing", *missing, cell_.step));
    if (!is_finite(problem.result))
      return set_undecided(finding, "the sketch of what the optimizer gets has sums that are no finite numbers");
    if (is_zero(problem.result) && group.shares.empty() && !ZeroHashes(columns_.zero_hashes).add(result))
      return set_undecided(finding, fmt::format("what the optimizer gets {}", not_of_zeros));
    if (columns_.unsaid_axis >= 0) {
      return set_undecided(finding, unsaid(at(columns_.unsaid_axis)));
    }
    problem.result_dtype = result.dtype;
    problem.coarsest = coarser(result.dtype, cell_.coarsest);
    problem.columns = pointers(columns_.columns);
    for (const Column& column : columns_.columns) problem.coarsest = coarser(problem.coarsest, column.dtype);
    problem.elements = context_.run.measured(cell_.parameter, cell_.piece);
    const Explanation found = explain(
        problem, [&](int back) { return earlier(back); }, cache_);
    if (!found.right && decide_with_skipped_steps(finding, problem)) return;
    decide(finding, problem, found);
  }

  std::string unsaid(std::size_t axis) const {
    const std::string& name = context_.run.header.axes[axis];
    if (name == name_of(Axis::pp))
      return fmt::format(
          "stages along {} have it under one name and begin with the same weights, yield different gradients of it, "
          "and no collective adds these up: it may be one parameter, whose gradient is then not complete, or several "
          "that "
          "were initialised alike",
          name);
    std::string text = fmt::format(
        "ranks along {} yield different gradients of it, and nothing says whether they hold different parts of it or "
        "shares of one gradient",
        name);
    if (context_.run.apart.contains({axis, cell_.parameter}))
      text +=
          "; they begin with different weights of it, as parts do, and copies that were initialised apart: shards= of "
          "the capture tells parts";
    if (context_.run.alike.contains({axis, cell_.parameter}))
      text +=
          "; they begin with the same weights of it, as copies do, and parts that were initialised alike: shards= of "
          "the capture tells parts";
    return text;
  }

  /// The optimizer may get what came in steps before this one in which it did not step, from one of them on: where
  /// nobody has zeroed that, it belongs to this step, and where all of it came with one factor, that is what is wrong.
  bool decide_with_skipped_steps(PieceFinding& finding, Problem problem) {
    std::optional<std::pair<std::vector<const Column*>, Explanation>> scaled;
    const std::vector<int>& steps = context_.run.steps;
    auto step = std::lower_bound(steps.begin(), steps.end(), cell_.step);
    for (int back = 1; step != steps.begin() && context_.run.waits(*--step, cell_.parameter); ++back) {
      if (back > most_back) {
        set_undecided(finding,
                      fmt::format("its optimizer did not step in more than {} optimizer steps before", most_back));
        return true;
      }
      const auto columns = earlier(back);
      if (!columns) break;
      problem.columns.insert(problem.columns.end(), columns->begin(), columns->end());
      const Explanation found = explain(
          problem, [](int) { return std::nullopt; }, cache_);
      if (!found.right) {
        if (found.uniform && found.of_expected && found.told_apart && found.exact())
          scaled.emplace(problem.columns, found);
        continue;
      }
      decide(finding, problem, found);
      finding.piece.expected = finding.piece.formula;
      for (RecoveredCoefficient& one : finding.piece.coefficients) one.expected = one.exact;
      return true;
    }
    if (!scaled) return false;
    const auto& [columns, found] = *scaled;
    const CellFormulas formulas(context_.run, context_.formulas, cell_.step, columns);
    finding.piece.unexplained = found.residual;
    finding.piece.noise = found.noise;
    finding.told_apart = finding.piece.told_apart = true;
    finding.piece.expected = formulas.expected();
    formulas.write(finding, found);
    formulas.write_coefficients(finding, found);
    formulas.wrong_by(finding, found);
    return true;
  }

  /// The columns of the optimizer step that is so many before; nothing where the run has no such step.
  std::optional<std::vector<const Column*>> earlier(int back) {
    while (static_cast<int>(earlier_.size()) < back)
      earlier_.push_back(context_.before ? context_.before(cell_, static_cast<int>(earlier_.size()) + 1) : nullptr);
    const std::shared_ptr<const Columns>& found = earlier_[at(back - 1)];
    if (found == nullptr) return std::nullopt;
    return pointers(found->columns);
  }

  /// Whether backward yielded the same in the optimizer step before, as of a constant: twice this may be both together.
  bool repeats_earlier() {
    const auto before = earlier(1);
    return before && !columns_.columns.empty() &&
           std::all_of(columns_.columns.begin(), columns_.columns.end(), [&](const Column& own) {
             return std::any_of(before->begin(), before->end(), [&](const Column* other) {
               return other->rank == own.rank && other->micro_batch == own.micro_batch &&
                      nearly_equal(own.values, other->values, coarser(own.dtype, other->dtype));
             });
           });
  }

  void no_gradient(PieceFinding& finding) {
    if (!columns_.missing.empty()) return set_undecided(finding, columns_.missing);
    finding.piece.formula = "0";
    if (columns_.columns.empty() && columns_.non_finite == 0) {
      finding.piece.verdict = Verdict::right;
      finding.piece.why = "no rank yields a gradient, and the optimizer gets none";
      return;
    }
    set_wrong(finding, Mistake::no_owner, "the optimizer gets no gradient, and backward yields one");
    std::set<int> ranks;
    for (const Column& column : columns_.columns) ranks.insert(column.rank);
    finding.piece.why = "backward yields a gradient on " + rank_words({ranks.begin(), ranks.end()});
  }

  void decide(PieceFinding& finding, const Problem& problem, const Explanation& found) {
    VerifiedPiece& piece = finding.piece;
    piece.unexplained = found.residual;
    piece.noise = found.noise;
    finding.told_apart = piece.told_apart = found.told_apart;
    cell_formulas_.write(finding, found);
    cell_formulas_.write_coefficients(finding, found);
    if (!found.explained) return unexplained(finding, problem, found);
    if (found.right) {
      piece.verdict = Verdict::right;
      finding.came = found.came;
      finding.hidden = found.hidden;
      return;
    }
    if (!cell_formulas_.known()) return cell_formulas_.without_loss(finding, found);
    if (const Dtype way = coarsest_way(problem); faded(problem, way))
      return set_undecided(
          finding, fmt::format("nothing arrived, and what is expected is so small that {}, in which {} reduced, "
                               "rounds it to zero",
                               name_of(way), cell_.own_coarsest ? "it was" : "gradients were"));
    const bool repeats = found.told_apart && found.uniform && repeats_earlier();
    const bool hidden = hides_expected(found);
    const bool others_alone = found.told_apart && (repeats || hidden || !found.exact());
    if ((!found.told_apart || others_alone) && try_formulas(finding, problem, others_alone)) return;
    finding.open = !found.told_apart || repeats || hidden;
    if (hidden) return set_undecided(finding, "contributions are so much alike that rounding hides their coefficients");
    // What clipping left of earlier steps is no small fraction.
    if (!found.exact())
      set_wrong(finding, cell_formulas_.kind(found),
                found.stale ? stale_words : "the coefficients are not the expected ones");
    else
      cell_formulas_.wrong_by(finding, found);
    if (!found.told_apart)
      piece.why = fmt::format("{} cannot be told apart, so this is the simplest of several formulas",
                              counted(problem.columns.size(), "contribution"));
  }

  /// The type with the fewest digits through which this parameter's gradients went; where no collective is known to
  /// have carried them, of all that carried some.
  Dtype coarsest_way(const Problem& problem) const {
    Dtype way = coarser(problem.result_dtype, cell_.own_coarsest.value_or(cell_.coarsest));
    for (const Column* column : problem.columns) way = coarser(way, column->dtype);
    return way;
  }

  /// Whether nothing of the result is left and all of what is expected may lie below half of the smallest number that
  /// this type has, as a gradient that is rounding alone does in float16.
  bool faded(const Problem& problem, Dtype way) const {
    if (!is_zero(problem.result) || problem.columns.empty()) return false;
    Vector expected(problem.result.size());
    for (const Column* column : problem.columns) {
      const double factor = to_double(*column->expected);
      for (std::size_t i = 0; i < expected.size(); ++i) expected[i] += factor * column->values[i];
    }
    double energy = 0;
    for (const double one : expected) energy += squared(one);
    return energy <= squared(smallest_spacing(way) / 2) * problem.elements;
  }

  /// Whether noise is so large that the coefficients may be those that are expected, although these do not explain the
  /// result: contributions of ranks that are nearly one.
  bool hides_expected(const Explanation& found) const {
    return !found.stale && std::all_of(found.entered.begin(), found.entered.end(), [](const ColumnCoefficient& one) {
      if (one.exact) return *one.exact == *one.column->expected;
      return std::abs(one.value - to_double(*one.column->expected)) <= 7 * one.error;
    });
  }

  void unexplained(PieceFinding& finding, const Problem& problem, const Explanation& found) {
    VerifiedPiece& piece = finding.piece;
    if (!complete_) {
      return set_undecided(finding, "a part is none of the recorded contributions; some are missing in the run");
    }
    if (cell_formulas_.known() && try_formulas(finding, problem)) return;
    if (columns_.columns.empty()) {
      piece.formula.clear();
      return set_undecided(finding, "the optimizer gets a gradient, and no backward pass was seen that yields one");
    }
    finding.open = true;  // formulas of other parameters may tell
    // Fewer digits on the way than any recorded tensor has leave the coefficients as they are.
    if (cell_formulas_.known() && found.told_apart) {
      bool right = true;
      for (const ColumnCoefficient& one : found.entered)
        right = right && std::abs(one.value - to_double(*one.column->expected)) <= 7 * one.error;
      const LeastSquares system(problem, cache_.over(problem.columns).scaled(problem).basis);
      Vector coefficients;
      for (const ColumnCoefficient& one : found.entered) coefficients.push_back(one.value);
      const double half = 5 * std::sqrt(system.model_noise(coefficients, Dtype::bfloat16)) / system.size();
      if (right && found.residual <= half) {
        piece.why = fmt::format("{} is more than {} leaves, and no more than 16 bits on the way would",
                                percent(found.residual), name_of(problem.coarsest));
        return set_undecided(
            finding, "the coefficients are right within noise, and the noise is more than the recorded types leave");
      }
    }
    if (!found.told_apart && problem.columns.size() > 1) {
      piece.formula.clear();
      piece.coefficients.clear();
      const bool is_small = problem.elements < context_.run.header.sums;
      piece.why = fmt::format(
          "{} cannot be told apart {}; the nearest of the formulas that were tried leaves {} of it, and rounding at "
          "most {}",
          counted(problem.columns.size(), "contribution"),
          is_small ? fmt::format("in {}", counted(static_cast<std::uint64_t>(problem.elements), "element"))
                   : fmt::format("by {}", counted(context_.run.header.sums, "sum")),
          percent(found.residual), percent(found.noise));
      if (!cell_formulas_.known()) return set_undecided(finding, "no simple formula explains it");
      return set_wrong(finding, Mistake::wrong_values, "it is not the expected sum, and no simple formula explains it");
    }
    piece.why = fmt::format("{} of it is none of the recorded contributions; rounding leaves at most {}",
                            percent(found.residual), percent(found.noise));
    set_wrong(finding, Mistake::leftover, "a part of it is none of the recorded contributions");
  }

  /// A formula of other parameters, or a usual one, that explains this result as well.
  bool try_formulas(PieceFinding& finding, const Problem& problem, bool others_alone = false) {
    const std::optional<Hypotheses::Found> fitting = hypotheses_.first_that_fits(problem, finding.piece.ranks);
    if (!fitting || (others_alone && !fitting->of_others)) return false;
    const Explanation& found = fitting->explanation;
    finding.piece.unexplained = fitting->left.residual;
    finding.piece.noise = fitting->left.noise;
    finding.piece.coefficients.clear();
    finding.told_apart = finding.piece.told_apart = false;
    cell_formulas_.write(finding, found);
    cell_formulas_.write_coefficients(finding, found);
    cell_formulas_.wrong_by(finding, found);
    finding.piece.from_others = fitting->of_others;
    finding.open = !fitting->of_others;
    finding.piece.why =
        fmt::format("{} cannot be told apart here; this formula {}", counted(found.entered.size(), "contribution"),
                    fitting->of_others ? "is that of other parameters" : "fits, and others do as well");
    return true;
  }

  const RunContext& context_;
  const Cell& cell_;
  Columns columns_;
  DesignCache cache_;
  std::vector<std::shared_ptr<const Columns>> earlier_;  // of the optimizer steps before, the last first
  Hypotheses hypotheses_;
  CellFormulas cell_formulas_;
  bool complete_ = false;
};

}  // namespace

std::vector<PieceFinding> verify_cell(const RunContext& context, const Cell& cell) {
  return CellVerifier(context, cell).run();
}

std::optional<Pattern> pattern_of(const PieceFinding& finding) {
  if (!finding.told_apart || finding.piece.verdict != Verdict::wrong || finding.piece.coefficients.empty())
    return std::nullopt;
  Pattern pattern;
  for (const RecoveredCoefficient& one : finding.piece.coefficients) {
    if (!one.exact) return std::nullopt;
    pattern[{finding.piece.step - one.step, one.rank, one.micro_batch}] = *one.exact;
  }
  return pattern;
}

}  // namespace lockstep::live
