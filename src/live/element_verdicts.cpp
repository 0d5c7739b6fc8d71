// SPDX-License-Identifier: Apache-2.0
#include "src/live/element_verdicts.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <functional>
#include <optional>
#include <set>

#include "src/live/words.h"

namespace lockstep::live {

namespace {

using symbolic::ComposedTerm;
using symbolic::Stretch;
using Verdict = VerifiedPiece::Verdict;

/// Adds what came in earlier optimizer steps, by step, rank and micro-batch, to an explanation.
void add_earlier(const std::map<std::tuple<int, int, int>, Rational>& before, Explanation& found,
                 std::deque<Column>& earlier) {
  for (const auto& [key, coefficient] : before) {
    if (coefficient.is_zero()) continue;
    const auto& [step, rank, micro_batch] = key;
    Column column;
    column.rank = rank;
    column.step = step;
    column.micro_batch = micro_batch;
    column.members = {{rank, micro_batch}};
    column.expected = Rational(0);
    earlier.push_back(std::move(column));
    found.entered.push_back({&earlier.back(), to_double(coefficient), 0, coefficient});
    found.stale = true;
  }
  if (found.stale) found.right = found.uniform = false;
}

/// Of several verdicts that are not right, those by which less would be wrong come first: one that may be right, one
/// factor on all that belongs to the step, something else without what earlier steps left.
int order_of(const ElementVerdict& verdict) {
  if (verdict.finding.piece.verdict == Verdict::undecided) return 0;
  if (verdict.uniform) return 1;
  return verdict.stale ? 3 : 2;
}

}  // namespace

void ElementVerdicts::begin(int step) {
  step_ = step;
  contributing_.clear();
}

const Contributing& ElementVerdicts::contributing(int parameter, const std::vector<int>& groups,
                                                  std::uint32_t replicas) {
  std::unique_ptr<Contributing>& known = contributing_[{parameter, groups, replicas}];
  if (!known) {
    ExtractedColumns columns(extraction_, contributions_, groups, expected_, parameter, replicas);
    CellFormulas words(run_, formulas_, step_, pointers(columns.columns()));
    known = std::make_unique<Contributing>(Contributing{std::move(columns), std::move(words)});
  }
  return *known;
}

bool ElementVerdicts::is_same_element(const ExtractedResult& result, const Interval& part, std::int64_t move,
                                      int region) {
  const std::vector<Overlap>* common = overlaps_.of(result.region, region);
  if (common == nullptr) return false;
  const Interval own{part.begin + result.first, part.end + result.first};
  return std::any_of(common->begin(), common->end(), [&](const Overlap& one) {
    return one.move == move && one.elements.begin <= own.begin && own.end <= one.elements.end;
  });
}

const ExtractedContribution& ElementVerdicts::contribution_of(const ComposedTerm& term) const {
  const ExtractedProgram& details = extraction_.details[at(extraction_.programs.program_of[at(term.rank)])];
  return details.contributions[at(details.contribution_of[at(term.source)])];
}

ElementVerdict ElementVerdicts::verdict_on(const ExtractedResult& result, const Stretch& stretch,
                                           const Interval& elements, const std::vector<int>& groups) {
  std::set<int, std::greater<>> steps = {step_};
  for (const int number : groups) steps.insert(contributions_.group(number).step);
  std::optional<ElementVerdict> best;
  for (const int from : steps) {
    std::vector<int> since;
    for (const int number : groups) {
      if (contributions_.group(number).step >= from) since.push_back(number);
    }
    ElementVerdict verdict = verdict_by(result, stretch, elements, since);
    if (verdict.finding.piece.verdict == Verdict::right) return verdict;
    // What is left over with the most that may belong to the step is left over in any case.
    const int order = order_of(verdict), before = best ? order_of(*best) : 4;
    if (order < before || (verdict.stale && order == before)) best = std::move(verdict);
  }
  return std::move(*best);
}

ElementVerdicts::Sorted ElementVerdicts::sort(const ExtractedResult& result, const Stretch& stretch,
                                              const Interval& part, const ExtractedColumns& columns) {
  const int parameter = extraction_.regions[at(result.region)].parameter;
  Sorted terms;
  for (const ComposedTerm& term : forms_.terms_of(stretch.form)) {
    const ExtractedContribution& contribution = contribution_of(term);
    // Where the contribution's elements stand in its region, seen from the result's in its own.
    const std::int64_t move = contribution.first - result.first + stretch.shift + term.offset;
    const bool is_own = extraction_.regions[at(contribution.region)].parameter == parameter &&
                        is_same_element(result, part, move, contribution.region);
    if (is_own && columns.slot(term.rank, term.source) != nullptr) {
      terms.entered.push_back(term);
    } else if (is_own && contribution.step < step_ &&
               std::binary_search(run_.steps.begin(), run_.steps.end(), contribution.step)) {
      terms.before[{contribution.step, term.rank, contribution.micro_batch}] += term.coefficient;
    } else {
      terms.others.push_back(other_term(result, part, term, contribution, move));
      if (terms.foreign.empty()) terms.foreign = foreign_words(contribution, parameter);
    }
  }
  return terms;
}

ElementVerdict ElementVerdicts::verdict_by(const ExtractedResult& result, const Stretch& stretch, const Interval& part,
                                           const std::vector<int>& groups) {
  const int parameter = extraction_.regions[at(result.region)].parameter;
  const Contributing& own = contributing(parameter, groups, 0);
  ElementVerdict verdict;
  verdict.unsaid = own.columns.unsaid();
  PieceFinding& finding = verdict.finding;
  // What is expected where an axis is unsaid depends on what would be said.
  if (verdict.unsaid == 0) finding.piece.expected = own.formulas.expected();
  if (const std::string* why = run_.unknown(step_, parameter)) {
    set_undecided(finding, *why);
    return verdict;
  }
  const Sorted terms = sort(result, stretch, part, own.columns);
  bool uneven = false;
  Explanation found = own.columns.explain(terms.entered, uneven);
  add_earlier(terms.before, found, verdict.earlier);
  if (!terms.others.empty()) found.right = found.uniform = false;
  verdict.uniform = found.uniform;
  verdict.stale = found.stale;
  finding.told_apart = finding.piece.told_apart = true;
  if (!terms.foreign.empty()) {
    set_wrong(finding, Mistake::wrong_cut, terms.foreign);
  } else if (uneven) {
    // No name stands for one of them alone.
    set_wrong(finding, Mistake::wrong_weights,
              "several contributions of one micro-batch came with different coefficients");
    return verdict;
  } else if (verdict.unsaid != 0 && !found.stale) {
    decide_unsaid(verdict, parameter, groups, terms, found);
  } else {
    decide(verdict, own, found);
  }
  own.formulas.write(finding, found, terms.others);
  if (finding.piece.verdict == Verdict::right && !of_right_) return verdict;
  if (!keeps(found.entered.size())) {
    finding.piece.left_out = found.entered.size();
    return verdict;
  }
  own.formulas.write_coefficients(finding, found);
  if (verdict.unsaid != 0) {
    for (RecoveredCoefficient& one : finding.piece.coefficients) one.expected.reset();
  }
  return verdict;
}

void ElementVerdicts::decide(ElementVerdict& verdict, const Contributing& own, Explanation found) const {
  PieceFinding& finding = verdict.finding;
  if (found.right) {
    finding.piece.verdict = Verdict::right;
    if (own.columns.columns().empty()) finding.piece.why = "no rank yields a gradient, and the optimizer gets zeros";
    return;
  }
  if (!own.formulas.known()) return own.formulas.without_loss(finding, found);
  add_reading(verdict, own, std::move(found));
}

void ElementVerdicts::decide_unsaid(ElementVerdict& verdict, int parameter, const std::vector<int>& groups,
                                    const Sorted& terms, const Explanation& found) {
  const auto undecided = [&] {
    verdict.readings.clear();
    verdict.finding.piece.difference.clear();
    set_undecided(verdict.finding,
                  fmt::format("ranks along {} each yield a gradient of it, and nothing says whether it is one gradient "
                              "or shares of one",
                              axes_words(verdict.unsaid)));
  };
  constexpr int most_axes_tried = 6;
  if (!contributing(parameter, groups, 0).formulas.known() || std::popcount(verdict.unsaid) > most_axes_tried)
    return undecided();
  // Ranks along every subset of the axes may yield one gradient, and along the others shares.
  for (std::uint32_t replicas = verdict.unsaid;; replicas = (replicas - 1) & verdict.unsaid) {
    const Contributing& own = contributing(parameter, groups, replicas);
    bool uneven = false;
    Explanation read = replicas == 0 ? found : own.columns.explain(terms.entered, uneven);
    if (read.right) return undecided();
    add_reading(verdict, own, std::move(read));
    if (replicas == 0) break;
  }
  verdict.experts = own_experts(verdict.unsaid, contributing(parameter, groups, 0), found);
}

OwnExperts ElementVerdicts::own_experts(std::uint32_t unsaid, const Contributing& shares,
                                        const Explanation& found) const {
  std::uint32_t experts = 0;
  std::int64_t places = 1;
  for (std::size_t axis = 0; axis < run_.header.axes.size(); ++axis) {
    const std::string& name = run_.header.axes[axis];
    if ((name != "ep" && name != "expert") || (unsaid >> axis & 1) == 0) continue;
    experts |= std::uint32_t{1} << axis;
    places *= run_.header.sizes[axis];
  }
  if (experts == 0 || found.stale) return {};
  std::map<const Column*, Rational> came;
  std::optional<int> place;
  for (const ColumnCoefficient& one : found.entered) {
    if (!one.exact) return {};
    if (one.exact->is_zero()) continue;
    const int own = run_.coordinates(one.column->rank, experts);
    if (place.value_or(own) != own) return {};
    place = own;
    came.emplace(one.column, *one.exact);
  }
  if (!place) return {};
  const std::vector<Column>& columns = shares.columns.columns();
  const auto all_with = [&](const Rational& factor) {
    return std::all_of(columns.begin(), columns.end(), [&](const Column& column) {
      if (run_.coordinates(column.rank, experts) != *place) return true;
      const auto entered = came.find(&column);
      return entered != came.end() && column.expected && entered->second == *column.expected * factor;
    });
  };
  // Ranks along the axis may have the same tokens, or each its own.
  return all_with(Rational(1)) || all_with(Rational(1, places)) ? OwnExperts{experts, *place} : OwnExperts{};
}

/// The first one says which kind of mistake it is.
void ElementVerdicts::add_reading(ElementVerdict& verdict, const Contributing& own, Explanation found) const {
  PieceFinding& finding = verdict.finding;
  std::string difference = own.formulas.difference(found);
  if (verdict.readings.empty()) {
    set_wrong(finding, own.formulas.kind(found), "");
    finding.piece.difference = difference;
  } else if (finding.piece.difference != difference) {
    finding.piece.difference.clear();
  }
  std::erase_if(found.entered, [](const ColumnCoefficient& one) { return one.exact->is_zero(); });
  found.entered.shrink_to_fit();
  verdict.readings.push_back({&own, std::move(found), std::move(difference)});
}

void ElementVerdicts::put_in_words(const ElementVerdict& verdict, PieceFinding& finding) const {
  const std::vector<int>& ranks = finding.piece.ranks;
  if (verdict.experts.axes != 0 && std::all_of(ranks.begin(), ranks.end(), [&](int rank) {
        return run_.coordinates(rank, verdict.experts.axes) == verdict.experts.place;
      })) {
    finding.piece.difference.clear();
    set_undecided(finding, fmt::format("right if ranks along {} each have an expert of their own under this name, and "
                                       "nothing says so",
                                       axes_words(verdict.experts.axes)));
    return;
  }
  std::vector<std::string> all;
  all.reserve(verdict.readings.size());
  for (const Reading& reading : verdict.readings) all.push_back(words(reading, finding.piece.ranks));
  if (all.empty()) return;
  finding.summary = all.front();
  if (std::count(all.begin(), all.end(), all.front()) == std::ssize(all)) return;
  finding.summary =
      fmt::format("it is wrong whether ranks along {} yield one gradient or shares of one", axes_words(verdict.unsaid));
  finding.piece.why = fmt::format("as one gradient: {}; as shares: {}", all.front(), all.back());
}

std::string ElementVerdicts::words(const Reading& reading, const std::vector<int>& ranks) const {
  Explanation whole = reading.found;
  if (!whole.stale) {
    const std::vector<Column>& columns = reading.own->columns.columns();
    whole.entered.clear();
    for (const Column& column : columns) whole.entered.push_back({&column, 0, 0, Rational(0)});
    for (const ColumnCoefficient& one : reading.found.entered) whole.entered[at(one.column - columns.data())] = one;
  }
  return mistake_words(run_, whole, reading.difference, ranks);
}

bool ElementVerdicts::keeps(std::size_t coefficients) {
  if (kept_ > 0 && kept_ + coefficients > most_coefficients_) return false;
  kept_ += coefficients;
  return true;
}

std::string ElementVerdicts::foreign_words(const ExtractedContribution& contribution, int parameter) const {
  const int other = extraction_.regions[at(contribution.region)].parameter;
  if (other != parameter)
    return "contributions to another parameter are in it, " + run_.parameters[at(other)].declared.name;
  return contribution.step > step_ ? "contributions of a later optimizer step are in it"
                                   : "contributions of other elements are in it";
}

std::string ElementVerdicts::axes_words(std::uint32_t axes) const {
  std::string names;
  for (std::size_t axis = 0; axis < run_.header.axes.size(); ++axis) {
    if ((axes >> axis & 1) != 0) names += (names.empty() ? "" : ", ") + run_.header.axes[axis];
  }
  return names;
}

/// A contribution to other elements, or to another parameter, by a name of its own: with how far the first of them is
/// off, as all are where these are stretches of indices.
Term ElementVerdicts::other_term(const ExtractedResult& result, const Interval& part, const ComposedTerm& term,
                                 const ExtractedContribution& contribution, std::int64_t move) const {
  std::string text = run_.parameters[at(extraction_.regions[at(contribution.region)].parameter)].declared.name;
  const std::int64_t own = result.first + part.begin;
  const std::int64_t off = overlaps_.distance(result.region, own, contribution.region, own + move);
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
