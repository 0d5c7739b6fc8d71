// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "src/base/at.h"
#include "src/live/explain.h"
#include "src/live/precision.h"
#include "src/live/reference.h"
#include "src/live/results.h"
#include "src/live/words.h"
#include "src/numeric/parallel.h"

namespace lockstep::live {

namespace {

using Verdict = VerifiedPiece::Verdict;

/// Two computations of one gradient, in other batches and orders of summation, may be so many roundings apart
/// (docs/verify.md has what was measured).
constexpr double most_roundings = 64;
/// Of 16 bits so many roundings are some per cent, which may be a rank's whole share: right is what is nearer than
/// this, and the rest undecided. Where float32 gradients were computed in 16 bits, which a capture does not see, as
/// many roundings to bfloat16 are undecided.
constexpr double most_coarse_roundings = 8;
/// A gradient of no more than so many roundings of the largest one is zero as far as can be told.
constexpr double roundings_of_zero = 4;

/// Contributions added up.
struct Added {
  Vector sum;
  double energy = 0;  // sum of the squares of what was added
  Dtype dtype = Dtype::float64;
  std::uint64_t non_finite = 0;
  std::string missing;  // why some are not known: a sentence without a period
  bool known = true;    // the coefficients are
  bool sampled = false;

  void add(const Columns& columns) {
    for (const Column& column : columns.columns) {
      known = known && column.expected;
      dtype = coarser(dtype, column.dtype);
      if (!column.expected) continue;
      const Vector one = scaled(column.values, to_double(*column.expected));
      live::add(sum, one);
      energy += live::energy(one);
    }
    non_finite += columns.non_finite;
    if (missing.empty()) missing = columns.missing;
  }
};

/// One parameter's comparison.
class Comparison {
 public:
  /// `truth` and `largest`, the size of an element of the largest gradient, are the reference's.
  Comparison(const ComparedStep& compared, int parameter, const Added& truth, double largest)
      : compared_(compared), parameter_(compared.run.parameters[at(parameter)]), truth_(truth), largest_(largest) {
    result_.parameter = parameter;
    for (const std::int64_t size : parameter_.declared.shape) elements_ *= static_cast<double>(size);
    if (parameter_.declared.sampled) elements_ /= compared.run.header.one_of;
    for (std::size_t piece = 0; piece < parameter_.declared.pieces.size(); ++piece)
      pieces_.push_back(static_cast<int>(piece));
    own_.sum.resize(at(compared.run.header.sums));
  }

  ReferencedParameter run() {
    contributions();
    result_.dtype = name_of(dtype());
    results();
    return std::move(result_);
  }

 private:
  void wrong(std::string what) {
    result_.contributions = Verdict::wrong;
    result_.what = std::move(what);
  }
  void undecided(std::string what) {
    result_.contributions = Verdict::undecided;
    result_.what = std::move(what);
  }

  Dtype dtype() const { return coarser(own_.dtype, truth_.dtype); }

  /// The error of one rounding of each element of the sums.
  double rounding(Dtype dtype) const {
    const double energy = std::max({own_.energy, truth_.energy, live::energy(truth_.sum)});
    return std::sqrt(squared(unit_roundoff(dtype)) * energy + squared(smallest_spacing(dtype)) * elements_);
  }

  /// Whether both are no more than what rounding leaves of the largest gradient, which may be nothing at all.
  bool both_zero(const Vector& sum, Dtype dtype) const {
    const double zero = roundings_of_zero * unit_roundoff(dtype) * largest_ * std::sqrt(elements_);
    return length(sum) <= zero && length(truth_.sum) <= zero;
  }

  /// Whether the two are one gradient, as far as rounding tells; `distance` is their difference.
  Verdict compare(const Vector& sum, double distance, Dtype dtype) const {
    const double unit = rounding(dtype);
    // Numbers whose squares no float64 holds.
    if (!std::isfinite(unit) || (unit == 0 && distance > 0)) return Verdict::undecided;
    const bool fine = unit_roundoff(dtype) <= unit_roundoff(Dtype::float32);
    if (distance <= (fine ? most_roundings : most_coarse_roundings) * unit) return Verdict::right;
    if (both_zero(sum, dtype)) return fine ? Verdict::right : Verdict::undecided;
    const double unclear = std::max(most_roundings * unit, most_coarse_roundings * rounding(Dtype::bfloat16));
    return distance <= unclear ? Verdict::undecided : Verdict::wrong;
  }

  void contributions() {
    std::vector<const SketchedTensor*> tensors;
    for (const int piece : pieces_) {
      const std::vector<const SketchedTensor*> of_piece = compared_.contributions(result_.parameter, piece);
      tensors.insert(tensors.end(), of_piece.begin(), of_piece.end());
      own_.add(gather_columns(compared_.run, compared_.files, compared_.expected, compared_.step, of_piece));
    }
    if (compared_.run.parameters[at(result_.parameter)].declared.sampled != truth_.sampled)
      return undecided("in one of the runs all of its elements were measured, and in the other a part of them");
    if (!truth_.missing.empty()) return undecided("in the reference, " + truth_.missing);
    if (!own_.missing.empty()) return undecided(own_.missing);
    if (const std::string* why = compared_.run.unknown(compared_.step, result_.parameter)) return undecided(*why);
    if (!compared_.run.complete_step(compared_.step)) return undecided("some contributions are missing in the run");
    if (own_.non_finite > 0 || truth_.non_finite > 0)
      return undecided("backward yields elements that are infinite or no numbers, so the sums say nothing");
    if (!own_.known) return undecided("what the contributions should add up to is not known without the loss");
    const double distance = length(difference(own_.sum, truth_.sum)),
                 size = std::max(length(own_.sum), length(truth_.sum));
    result_.difference = size > 0 ? distance / size : 0;
    result_.roundings = distance > 0 ? distance / rounding(dtype()) : 0;
    result_.contributions = compare(own_.sum, distance, dtype());
    if (result_.contributions == Verdict::right) return;
    explain_by(gather_columns(compared_.run, compared_.files, compared_.expected, compared_.step, tensors));
  }

  /// Looks for the coefficients with which the contributions are the true gradient.
  void explain_by(const Columns& columns) {
    if (columns.columns.empty()) return wrong("no rank contributes to it, and on one device there is a gradient");
    if (is_zero(truth_.sum)) return wrong("ranks contribute to it, and on one device there is no gradient");
    Problem problem;
    std::vector<Term> support;
    for (const Column& column : columns.columns) {
      problem.columns.push_back(&column);
      support.push_back(compared_.formulas.term(column, *column.expected));
    }
    problem.result = truth_.sum;
    problem.elements = elements_;
    DesignCache cache;
    for (const auto& [dtype, roundings] :
         {std::pair(this->dtype(), most_roundings), std::pair(Dtype::bfloat16, most_coarse_roundings)}) {
      problem.roundings = 3 * squared(roundings / 5);  // its own margin is 5, and a rounding leaves 1/3 of its square
      problem.result_dtype = problem.coarsest = dtype;
      const Explanation found = explain(
          problem, [](int) { return std::nullopt; }, cache);
      if (!found.explained || !found.exact() || found.right) continue;
      std::vector<Term> terms;
      for (const ColumnCoefficient& one : found.entered) {
        if (!one.exact->is_zero()) terms.push_back(compared_.formulas.term(*one.column, *one.exact));
      }
      result_.formula = compared_.formulas.print(terms, support);
      if (found.of_expected && found.exact_factor && !found.exact_factor->is_zero())
        result_.part = Rational(1) / *found.exact_factor;
      return wrong(words(found));
    }
    if (result_.contributions == Verdict::wrong) return wrong("the contributions do not add up to the true gradient");
    if (both_zero(own_.sum, dtype()))
      return undecided(
          "the contributions do not add up to the true gradient, which is as small as what rounding leaves of others");
    if (unit_roundoff(dtype()) > unit_roundoff(Dtype::float32))
      return undecided(
          fmt::format("the contributions are farther from the true gradient than rounding to {} mostly leaves them, "
                      "and not as far as "
                      "it ever does",
                      name_of(dtype())));
    undecided(
        "the contributions are as far from the true gradient as rounding to 16 bits leaves them, and no recorded "
        "gradient has so few");
  }

  static std::string part_words(const Rational& part) {
    return fmt::format("{} {}", part.to_string(), part > 0 && part < 1 ? "of" : "×");
  }

  std::string words(const Explanation& found) const {
    if (result_.part) return fmt::format("the contributions add up to {} the true gradient", part_words(*result_.part));
    // Which ranks' contributions are too large or too small, if all of a rank are alike.
    std::map<int, std::set<std::string>> of_rank;
    for (const ColumnCoefficient& one : found.entered) {
      const std::string part = one.exact->is_zero() ? "no part of" : part_words(*one.column->expected / *one.exact);
      for (const auto& [rank, micro_batch] : one.column->members) of_rank[rank].insert(part);
    }
    std::map<std::string, std::vector<int>> ranks;
    for (const auto& [rank, parts] : of_rank) {
      if (parts.size() > 1) return "the contributions add up to the true gradient with other coefficients";
      if (*parts.begin() != part_words(Rational(1))) ranks[*parts.begin()].push_back(rank);
    }
    std::string text;
    for (const auto& [part, which] : ranks)
      text += fmt::format("{}what {} contribute{} is {} {} share of the true gradient", text.empty() ? "" : "; ",
                          rank_words(which), which.size() == 1 ? "s" : "", part, which.size() == 1 ? "its" : "their");
    return text;
  }

  /// Every distinct gradient that optimizers get; of a parameter that is cut, pieces side by side.
  void results() {
    if (!truth_.missing.empty() || truth_.non_finite > 0 || compared_.run.waits(compared_.step, result_.parameter))
      return;
    std::vector<std::vector<SameResult>> groups;
    std::vector<std::vector<const SketchedTensor*>> kept;
    std::size_t variants = 0;
    for (const int piece : pieces_) {
      kept.push_back(compared_.results(result_.parameter, piece));
      groups.push_back(distinct_results(compared_.run, kept.back()));
      if (groups.back().empty()) return;
      variants = std::max(variants, groups.back().size());
    }
    Verdict worst = Verdict::right;
    for (std::size_t i = 0; i < variants; ++i) {
      Vector sum(truth_.sum.size()), one;
      Dtype coarsest = coarser(dtype(), compared_.coarsest);
      for (const std::vector<SameResult>& of_piece : groups) {
        const SameResult& group = of_piece[std::min(i, of_piece.size() - 1)];
        const SketchedTensor all = whole(group);
        if (all.row < 0) continue;
        if (all.non_finite > 0 || read_result(compared_.files, compared_.step, group, one) || !is_finite(one)) return;
        coarsest = coarser(coarsest, all.dtype);
        add(sum, one);
      }
      const double distance = length(difference(sum, truth_.sum));
      const Verdict verdict = compare(sum, distance, coarsest);
      if (distance > 0) result_.result_roundings = std::max(result_.result_roundings, distance / rounding(coarsest));
      if (verdict == Verdict::wrong || worst == Verdict::right) worst = verdict;
    }
    result_.result = worst;
  }

  const ComparedStep& compared_;
  const RunParameter& parameter_;
  const Added& truth_;
  double largest_;
  double elements_ = 1;
  std::vector<int> pieces_;
  Added own_;
  ReferencedParameter result_;
};

}  // namespace

std::vector<ReferencedParameter> compare_with_reference(const ComparedStep& compared, ReferenceRun& reference,
                                                        int threads) {
  const CapturedRun& run = reference.run();
  std::vector<std::vector<const SketchedTensor*>> tensors(run.parameters.size());
  for (const RankRecord& rank : run.ranks) {
    const auto found = rank.steps.find(compared.step);
    if (found == rank.steps.end()) continue;
    for (const SketchedTensor& tensor : found->second.contributions) tensors[at(tensor.parameter)].push_back(&tensor);
  }
  // Added up as they are where nobody said what they are: that is what autograd does.
  const Expected expected(run, run.header.loss.value_or(CapturedLoss::sum), compared.step);
  // Of all its parameters, so that what is zero does not depend on which of them are looked at.
  std::vector<Added> truths(run.parameters.size());
  std::vector<double> sizes(truths.size());
  numeric::parallel_for(truths.size(), threads, [&](std::size_t i) {
    Added& truth = truths[i];
    truth.sum.resize(at(compared.run.header.sums));
    truth.sampled = run.parameters[i].declared.sampled;
    truth.add(gather_columns(run, reference.files(), expected, compared.step, tensors[i]));
    if (!expected.unknown().empty()) truth.missing = expected.unknown();
    if (const std::string* why = run.unknown(compared.step, static_cast<int>(i))) truth.missing = *why;
    double elements = 1;
    for (const std::int64_t size : run.parameters[i].declared.shape) elements *= static_cast<double>(size);
    if (truth.sampled) elements /= run.header.one_of;
    sizes[i] = elements > 0 && is_finite(truth.sum) ? length(truth.sum) / std::sqrt(elements) : 0;
  });
  const double largest = sizes.empty() ? 0 : *std::max_element(sizes.begin(), sizes.end());
  std::vector<ReferencedParameter> all(compared.parameters.size());
  numeric::parallel_for(all.size(), threads, [&](std::size_t i) {
    const int parameter = compared.parameters[i];
    all[i] = Comparison(compared, parameter, truths[at(reference.counterpart(parameter))], largest).run();
  });
  return all;
}

}  // namespace lockstep::live
