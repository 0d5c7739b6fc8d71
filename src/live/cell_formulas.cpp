// SPDX-License-Identifier: Apache-2.0
#include "src/live/cell_formulas.h"

#include <algorithm>
#include <set>

#include "src/live/words.h"

namespace lockstep::live {

namespace {

using Verdict = VerifiedPiece::Verdict;

}  // namespace

void set_wrong(PieceFinding& finding, Mistake kind, std::string what) {
  finding.piece.verdict = Verdict::wrong;
  finding.kind = kind;
  finding.summary = std::move(what);
}

void set_undecided(PieceFinding& finding, std::string what) {
  finding.piece.verdict = Verdict::undecided;
  finding.summary = std::move(what);
}

CellFormulas::CellFormulas(const CapturedRun& run, const RunFormulas& formulas, int step,
                           const std::vector<const Column*>& columns)
    : run_(run), formulas_(formulas), first_step_(step) {
  for (const Column* column : columns) {
    first_step_ = std::min(first_step_, column->step);
    support_.push_back(formulas.term(*column, column->expected.value_or(Rational(0))));
    known_ = known_ && column->expected;
  }
  expected_terms_ = support_;
  std::erase_if(expected_terms_, [](const Term& term) { return term.coefficient.is_zero(); });
  if (known_) expected_ = formulas.print(expected_terms_, support_);
}

std::vector<Term> CellFormulas::terms_of(const Explanation& found) const {
  std::vector<Term> terms;
  for (const ColumnCoefficient& one : found.entered) {
    if (one.exact && !one.exact->is_zero()) terms.push_back(formulas_.term(*one.column, *one.exact));
  }
  return terms;
}

void CellFormulas::write(PieceFinding& finding, const Explanation& found, const std::vector<Term>& others) const {
  VerifiedPiece& piece = finding.piece;
  std::vector<Term> terms = terms_of(found);
  terms.insert(terms.end(), others.begin(), others.end());
  piece.formula = found.exact() ? formulas_.print(terms, support_) : formulas_.print_rounded(found.entered, support_);
}

void CellFormulas::write_coefficients(PieceFinding& finding, const Explanation& found) const {
  VerifiedPiece& piece = finding.piece;
  for (const ColumnCoefficient& one : found.entered) {
    RecoveredCoefficient coefficient;
    coefficient.rank = one.column->rank;
    coefficient.step = one.column->step;
    coefficient.micro_batch = one.column->micro_batch;
    for (const auto& [rank, micro_batch] : one.column->members) {
      if (rank != one.column->rank && (coefficient.alike.empty() || coefficient.alike.back() != rank))
        coefficient.alike.push_back(rank);
    }
    coefficient.members = one.column->members;
    coefficient.value = one.value;
    coefficient.error = one.error;
    coefficient.exact = one.exact;
    coefficient.expected = one.column->step >= first_step_ ? one.column->expected : std::optional<Rational>(0);
    piece.coefficients.push_back(std::move(coefficient));
  }
  std::stable_sort(piece.coefficients.begin(), piece.coefficients.end(),
                   [](const RecoveredCoefficient& a, const RecoveredCoefficient& b) { return a.step < b.step; });
}

std::string CellFormulas::difference(const Explanation& found) const {
  return formulas_.difference(terms_of(found), expected_terms_);
}

void CellFormulas::wrong_by(PieceFinding& finding, const Explanation& found) const {
  VerifiedPiece& piece = finding.piece;
  piece.difference = difference(found);
  set_wrong(finding, kind(found), mistake_words(run_, found, piece.difference, piece.ranks));
}

void CellFormulas::without_loss(PieceFinding& finding, const Explanation& found) const {
  if (found.uniform && found.exact_factor && !found.exact_factor->is_zero()) {
    finding.uniform = found.exact_factor;
    finding.piece.verdict = Verdict::right;
    return;
  }
  if (found.stale && found.exact()) return set_wrong(finding, Mistake::leftover, stale_words);
  std::set<int> missing;
  bool some = false;
  for (const ColumnCoefficient& one : found.entered) {
    if (one.exact && one.exact->is_zero())
      missing.insert(one.column->rank);
    else
      some = true;
  }
  if (!found.entered.empty() && !some) return set_wrong(finding, Mistake::missing_reduction, "nothing arrived");
  if (!missing.empty() && found.told_apart) {
    finding.piece.why = "nothing arrived of some contributions of " + rank_words({missing.begin(), missing.end()});
    return set_wrong(finding, Mistake::missing_reduction, "contributions are missing");
  }
  set_undecided(finding, "the contributions come with different coefficients, and the loss is not known (--loss)");
}

}  // namespace lockstep::live
