// SPDX-License-Identifier: Apache-2.0
#include "src/live/judged_elements.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <set>

namespace lockstep::live {

namespace {

using symbolic::ComposedTerm;
using symbolic::Stretch;
using Verdict = VerifiedPiece::Verdict;

/// The explanation with what came in earlier optimizer steps, by step, rank and micro-batch.
void add_earlier(const std::map<std::tuple<int, int, int>, Rational>& before, Judgement& judgement) {
  Explanation& found = judgement.explanation;
  for (const auto& [key, coefficient] : before) {
    if (coefficient.is_zero()) continue;
    const auto& [step, rank, micro_batch] = key;
    Column column;
    column.rank = rank;
    column.step = step;
    column.micro_batch = micro_batch;
    column.members = {{rank, micro_batch}};
    column.expected = Rational(0);
    judgement.earlier.push_back(std::move(column));
    found.entered.push_back({&judgement.earlier.back(), to_double(coefficient), 0, coefficient});
    found.stale = true;
  }
  if (found.stale) found.right = found.uniform = false;
}

}  // namespace

void ElementJudge::begin(int step) {
  step_ = step;
  contributing_.clear();
}

const ElementJudge::Contributing& ElementJudge::contributing(int parameter, const std::vector<int>& groups) {
  std::unique_ptr<Contributing>& known = contributing_[{parameter, groups}];
  if (!known) {
    ExtractedColumns columns(extraction_, contributions_, groups, expected_, parameter);
    CellFormulas words(run_, formulas_, step_, columns.columns());
    known = std::make_unique<Contributing>(Contributing{std::move(columns), std::move(words)});
  }
  return *known;
}

bool ElementJudge::is_same_element(const ExtractedResult& result, const Interval& part, std::int64_t move, int region) {
  const std::vector<Overlap>* common = overlaps_.of(result.region, region);
  if (common == nullptr) return false;
  const Interval own{part.begin + result.first, part.end + result.first};
  return std::any_of(common->begin(), common->end(), [&](const Overlap& one) {
    return one.move == move && one.elements.begin <= own.begin && own.end <= one.elements.end;
  });
}

const ExtractedContribution& ElementJudge::contribution_of(const ComposedTerm& term) const {
  const ExtractedProgram& details = extraction_.details[at(extraction_.programs.program_of[at(term.rank)])];
  return details.contributions[at(details.contribution_of[at(term.source)])];
}

Judgement ElementJudge::judge(const ExtractedResult& result, const Stretch& stretch, const Interval& elements,
                              const std::vector<int>& groups) {
  std::set<int, std::greater<>> steps = {step_};
  for (const int number : groups) steps.insert(contributions_.group(number).step);
  std::optional<Judgement> first;
  for (const int from : steps) {
    std::vector<int> since;
    for (const int number : groups) {
      if (contributions_.group(number).step >= from) since.push_back(number);
    }
    Judgement judgement = judge_by(result, stretch, elements, since);
    if (judgement.finding.piece.verdict == Verdict::right) return judgement;
    if (!first) first = std::move(judgement);
  }
  return std::move(*first);
}

Judgement ElementJudge::judge_by(const ExtractedResult& result, const Stretch& stretch, const Interval& part,
                                 const std::vector<int>& groups) {
  const int parameter = extraction_.regions[at(result.region)].parameter;
  const Contributing& own = contributing(parameter, groups);
  Judgement judgement;
  PieceFinding& finding = judgement.finding;
  finding.piece.expected = own.formulas.expected();
  if (const std::string* why = run_.unknown(step_, parameter)) {
    set_undecided(finding, *why);
    return judgement;
  }
  std::vector<ComposedTerm> entered;
  std::map<std::tuple<int, int, int>, Rational> before;
  std::string foreign;
  std::vector<Term> other_terms;
  for (const ComposedTerm& term : forms_.terms_of(stretch.form)) {
    const ExtractedContribution& contribution = contribution_of(term);
    // Where the contribution's elements stand in its region, seen from the result's in its own.
    const std::int64_t move = contribution.first - result.first + stretch.shift + term.offset;
    const bool is_own = extraction_.regions[at(contribution.region)].parameter == parameter &&
                        is_same_element(result, part, move, contribution.region);
    if (is_own && own.columns.slot(term.rank, term.source) != nullptr) {
      entered.push_back(term);
    } else if (is_own && contribution.step < step_ &&
               std::binary_search(run_.steps.begin(), run_.steps.end(), contribution.step)) {
      before[{contribution.step, term.rank, contribution.micro_batch}] += term.coefficient;
    } else {
      other_terms.push_back(other_term(result, term, contribution, move));
      if (foreign.empty()) foreign = foreign_words(contribution, parameter);
    }
  }
  bool uneven = false;
  judgement.explanation = own.columns.explain(entered, uneven);
  add_earlier(before, judgement);
  if (!other_terms.empty()) judgement.explanation.right = judgement.explanation.uniform = false;
  finding.told_apart = finding.piece.told_apart = true;
  own.formulas.write(finding, judgement.explanation, other_terms);
  decide(judgement, own, foreign, uneven);
  return judgement;
}

void ElementJudge::decide(Judgement& judgement, const Contributing& own, const std::string& foreign,
                          bool uneven) const {
  PieceFinding& finding = judgement.finding;
  const Explanation& found = judgement.explanation;
  if (!foreign.empty()) return set_wrong(finding, Mistake::wrong_cut, foreign);
  if (uneven) {
    // No name stands for one of them alone.
    finding.piece.formula.clear();
    finding.piece.coefficients.clear();
    return set_wrong(finding, Mistake::wrong_weights,
                     "several contributions of one micro-batch came with different coefficients");
  }
  if (own.columns.unsaid() != 0 && !found.stale && (!own.formulas.known() || own.columns.may_be_right(found)))
    return set_undecided(finding, unsaid_words(own.columns.unsaid()));
  if (found.right) {
    finding.piece.verdict = Verdict::right;
    if (own.columns.columns().empty()) finding.piece.why = "no rank yields a gradient, and the optimizer gets zeros";
    return;
  }
  if (!own.formulas.known()) return own.formulas.without_loss(finding, found);
  judgement.by_formula = true;
  set_wrong(finding, kind_of(found, step_), "");
  finding.piece.difference = own.formulas.difference(found);
}

std::string ElementJudge::foreign_words(const ExtractedContribution& contribution, int parameter) const {
  const int other = extraction_.regions[at(contribution.region)].parameter;
  if (other != parameter)
    return "contributions to another parameter are in it, " + run_.parameters[at(other)].declared.name;
  return contribution.step > step_ ? "contributions of a later optimizer step are in it"
                                   : "contributions of other elements are in it";
}

std::string ElementJudge::unsaid_words(std::uint32_t axes) const {
  std::string names;
  for (std::size_t axis = 0; axis < run_.header.axes.size(); ++axis) {
    if ((axes >> axis & 1) != 0) names += (names.empty() ? "" : ", ") + run_.header.axes[axis];
  }
  return fmt::format(
      "ranks along {} each yield a gradient of it, and nothing says whether it is one gradient or shares of one",
      names);
}

/// A contribution to other elements, or to another parameter, by a name of its own.
Term ElementJudge::other_term(const ExtractedResult& result, const ComposedTerm& term,
                              const ExtractedContribution& contribution, std::int64_t move) const {
  const Region& region = extraction_.regions[at(contribution.region)];
  const Region& own = extraction_.regions[at(result.region)];
  std::string text = run_.parameters[at(region.parameter)].declared.name;
  const std::int64_t off = move + (region.begin && own.begin ? *region.begin - *own.begin : 0);
  if (off != 0) text += fmt::format("{:+}", off);
  if (contribution.step != step_) text += fmt::format(" of optimizer step {}", contribution.step);
  if (contribution.micro_batch != 0) text += fmt::format(" of micro-batch {}", contribution.micro_batch);
  Term other;
  other.rank = term.rank;
  other.leftover = std::move(text);
  other.coefficient = term.coefficient;
  return other;
}

}  // namespace lockstep::live
