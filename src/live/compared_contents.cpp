// SPDX-License-Identifier: Apache-2.0
#include "src/live/compared_contents.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace lockstep::live {

namespace {

using symbolic::ComposedTerm;
using symbolic::Stretch;

}  // namespace

int ComparedSums::number(std::vector<ComparedTerm> terms) {
  std::sort(terms.begin(), terms.end());
  const auto [found, is_new] = numbers_.try_emplace(std::move(terms), static_cast<int>(terms_.size()));
  if (is_new) terms_.push_back(&found->first);
  return found->second;
}

ComparedSide::ComparedSide(const Extraction& extraction, ComparedSums& sums)
    : extraction_(extraction),
      sums_(sums),
      meetings_(symbolic::match_calls(extraction.programs)),
      forms_(extraction.programs, meetings_),
      overlaps_(extraction),
      formulas_(extraction.run) {
  results_.resize(extraction.run.parameters.size());
  for (const ExtractedProgram& details : extraction.details) {
    for (const ExtractedResult& held : details.results)
      results_[at(extraction.regions[at(held.region)].parameter)].emplace_back(&details, &held);
    std::map<std::tuple<int, int, int, std::int64_t>, int> before;
    numbers_.emplace_back();
    for (const ExtractedContribution& contribution : details.contributions) {
      const int number =
          before[{contribution.step, contribution.micro_batch, contribution.region, contribution.first}]++;
      numbers_.back().push_back(number);
      auto& of = contributors_[{extraction.regions[at(contribution.region)].parameter, contribution.step}];
      for (const int rank : details.ranks) {
        int& most = of[{rank, contribution.micro_batch}];
        most = std::max(most, number + 1);
      }
    }
  }
}

std::vector<std::pair<int, int>> ComparedSide::contributors(int parameter, int step) const {
  std::vector<std::pair<int, int>> all;
  if (const auto found = contributors_.find({parameter, step}); found != contributors_.end()) {
    for (const auto& [who, most] : found->second) all.push_back(who);
  }
  return all;
}

std::map<std::string, std::vector<ReadStretch>> ComparedSide::read(int parameter, int step) {
  std::map<std::string, std::vector<ReadStretch>> all;
  const CapturedRun& run = extraction_.run;
  if (run.waits(step, parameter)) return all;
  const std::string* why = run.unknown(step, parameter);
  // What is followed of it is not what ranks get, and nobody knows what that is.
  std::string wrong;
  if (const RunWrong* known = run.wrong(step, parameter); known != nullptr && why == nullptr) {
    wrong = "what an optimizer gets is not what was followed: " + known->why;
    why = &wrong;
  }
  known_.clear();
  for (const auto& [details, result] : results_[at(parameter)]) {
    const ExtractedResult& held = *result;
    const Region& region = extraction_.regions[at(held.region)];
    if (held.step != step || held.elements == 0) continue;
    const bool simple = region.begin.has_value();
    const DeclaredParameter& declared = run.parameters[at(parameter)].declared;
    const std::string space = simple ? std::string() : elements_words(declared, region, 0, region.elements);
    region_of_space_[{parameter, space}] = held.region;
    std::vector<ReadStretch>& here = all[space];
    const std::int64_t base = simple ? *region.begin + held.first : held.first;
    symbolic::Stretches before;  // what ranks of one program read is mostly one sum
    std::vector<ReadStretch> same;
    for (const int rank : details->ranks_of(held)) {
      std::vector<ReadStretch> own;
      if (why != nullptr || held.content < 0) {
        own.push_back({{0, held.elements}, why != nullptr ? unknown(*why) : no_gradient, rank});
      } else {
        symbolic::Stretches stretches = forms_.result(rank, held.content);
        if (same.empty() || stretches != before) same = sums_in(held, stretches);
        before = std::move(stretches);
        own = same;
      }
      for (ReadStretch& stretch : own) {
        stretch.rank = rank;
        stretch.elements = {stretch.elements.begin + base, stretch.elements.end + base};
        if (!here.empty() && here.back().rank == rank && here.back().sum == stretch.sum &&
            here.back().elements.end == stretch.elements.begin)
          here.back().elements.end = stretch.elements.end;
        else
          here.push_back(stretch);
      }
    }
  }
  return all;
}

std::vector<ReadStretch> ComparedSide::sums_in(const ExtractedResult& result, const symbolic::Stretches& stretches) {
  std::vector<ReadStretch> all;
  std::int64_t end = 0;
  const auto skip = [&](std::int64_t to) {
    if (end < to) all.push_back({{end, to}, unknown(std::string(symbolic::not_followed)), 0});
  };
  for (const Stretch& stretch : stretches) {
    skip(stretch.begin);
    end = stretch.end;
    if (stretch.form < 0)
      all.push_back({{stretch.begin, stretch.end}, unknown(forms_.reason_of(stretch.form)), 0});
    else if (!is_of_contributions(stretch.form))
      all.push_back({{stretch.begin, stretch.end}, unknown("sums of squares are added to gradients"), 0});
    else if (stretch.begin < stretch.end)
      add(result, stretch, all);
  }
  skip(result.elements);
  return all;
}

bool ComparedSide::is_of_contributions(int form) const {
  const std::vector<ComposedTerm> terms = forms_.terms_of(form);
  return std::all_of(terms.begin(), terms.end(), [&](const ComposedTerm& term) {
    const ExtractedProgram& details = extraction_.details[at(extraction_.programs.program_of[at(term.rank)])];
    return details.contribution_of[at(term.source)] >= 0;
  });
}

/// In boxes a sum is of the same contributions' elements only where these run alike.
void ComparedSide::add(const ExtractedResult& result, const Stretch& stretch, std::vector<ReadStretch>& all) {
  std::set<std::int64_t> ends = {stretch.begin, stretch.end};
  std::set<int> seen;
  for (const ComposedTerm& term : forms_.terms_of(stretch.form)) {
    const ExtractedProgram& details = extraction_.details[at(extraction_.programs.program_of[at(term.rank)])];
    const ExtractedContribution& contribution = details.contributions[at(details.contribution_of[at(term.source)])];
    const Region& region = extraction_.regions[at(contribution.region)];
    if (!seen.insert(contribution.region).second || contribution.region == result.region ||
        (region.begin && extraction_.regions[at(result.region)].begin) ||
        region.parameter != extraction_.regions[at(result.region)].parameter)
      continue;
    const std::vector<Overlap>* common = overlaps_.of(result.region, contribution.region);
    if (common == nullptr) continue;
    for (const Overlap& overlap : *common) {
      for (const std::int64_t end : {overlap.elements.begin - result.first, overlap.elements.end - result.first}) {
        if (stretch.begin < end && end < stretch.end) ends.insert(end);
      }
    }
  }
  for (auto end = std::next(ends.begin()); end != ends.end(); ++end) {
    const Interval part{*std::prev(end), *end};
    all.push_back({part, sum_of(result, stretch, part), 0});
  }
}

int ComparedSide::sum_of(const ExtractedResult& result, const Stretch& stretch, const Interval& part) {
  const Region& own = extraction_.regions[at(result.region)];
  // In stretches of indices all that matters is by how much the elements of contributions are off.
  const std::int64_t shift = stretch.shift - result.first - own.begin.value_or(0);
  const auto key = own.begin ? std::tuple{stretch.form, shift, -1, std::int64_t{0}}
                             : std::tuple{stretch.form, shift, result.region, part.begin + result.first};
  if (const auto found = known_.find(key); found != known_.end()) return found->second;
  using Yielded = std::tuple<int, int, int, int, std::int64_t>;  // parameter, step, rank, micro-batch, and how far off
  std::map<Yielded, std::vector<std::pair<int, Rational>>> yielded;
  int sum = 0;
  for (const ComposedTerm& term : forms_.terms_of(stretch.form)) {
    const int program = extraction_.programs.program_of[at(term.rank)];
    const ExtractedProgram& details = extraction_.details[at(program)];
    const int place = details.contribution_of[at(term.source)];
    const ExtractedContribution& contribution = details.contributions[at(place)];
    const Region& region = extraction_.regions[at(contribution.region)];
    const std::int64_t first = part.begin + result.first;
    const std::int64_t there = contribution.first + part.begin + stretch.shift + term.offset;
    const std::int64_t move = overlaps_.distance(result.region, first, contribution.region, there);
    const auto same = [&] {
      const std::vector<Overlap>* common = overlaps_.of(result.region, contribution.region);
      return common != nullptr && std::any_of(common->begin(), common->end(), [&](const Overlap& overlap) {
               return overlap.move == there - first && overlap.elements.begin <= first &&
                      first + part.size() <= overlap.elements.end;
             });
    };
    const bool alike =
        (own.begin && region.begin) || contribution.region == result.region || part.size() == 1 || same();
    if (!alike) sum = unknown("its elements are sums of elements of other boxes, which are not compared");
    yielded[{region.parameter, contribution.step, term.rank, contribution.micro_batch, move}].emplace_back(
        numbers_[at(program)][at(place)], term.coefficient);
  }
  std::vector<ComparedTerm> terms;
  for (const auto& [what, numbers] : yielded) {
    const auto& [parameter, step, rank, micro_batch, move] = what;
    const std::string& name = extraction_.run.parameters[at(parameter)].declared.name;
    // Those of a micro-batch are one gradient, where all of them come with one coefficient.
    const Rational& first = numbers.front().second;
    const bool whole =
        std::ssize(numbers) == contributors_.at({parameter, step}).at({rank, micro_batch}) &&
        std::all_of(numbers.begin(), numbers.end(), [&](const auto& entry) { return entry.second == first; });
    for (const auto& [number, coefficient] : numbers) {
      terms.push_back({name, step, rank, micro_batch, whole ? -1 : number, move, coefficient});
      if (whole) break;
    }
  }
  if (sum == 0) sum = sums_.number(std::move(terms));
  return known_[key] = sum;
}

int ComparedSide::unknown(const std::string& reason) {
  const auto [found, is_new] = reason_numbers_.try_emplace(reason, -2 - static_cast<int>(reasons_.size()));
  if (is_new) reasons_.push_back(reason);
  return found->second;
}

std::string ComparedSide::formula(int sum, int parameter, int step) const {
  const std::string& name = extraction_.run.parameters[at(parameter)].declared.name;
  std::vector<Term> terms, support;
  std::map<std::pair<int, int>, int> most;
  if (const auto found = contributors_.find({parameter, step}); found != contributors_.end()) most = found->second;
  const auto column = [](int rank, int at_step, int micro_batch) {
    Column result;
    result.rank = rank;
    result.step = at_step;
    result.micro_batch = micro_batch;
    return result;
  };
  for (const auto& [who, count] : most) support.push_back(formulas_.term(column(who.first, step, who.second), 1));
  // What g stands for is all that a micro-batch yields.
  std::vector<const ComparedTerm*> others;
  for (const ComparedTerm& term : sums_.terms(sum)) {
    if (term.parameter == name && term.move == 0 && term.number < 0)
      terms.push_back(formulas_.term(column(term.rank, term.step, term.micro_batch), term.coefficient));
    else
      others.push_back(&term);
  }
  for (const ComparedTerm* term : others) {
    Term other;
    other.rank = term->rank;
    other.leftover = term->parameter;
    if (term->move != 0) other.leftover += fmt::format("{:+}", term->move);
    if (term->step != step) other.leftover += fmt::format(" of optimizer step {}", term->step);
    if (term->micro_batch != 0) other.leftover += fmt::format(" of micro-batch {}", term->micro_batch);
    if (term->number >= 0) other.leftover += fmt::format(", contribution {}", term->number);
    other.coefficient = term->coefficient;
    terms.push_back(std::move(other));
  }
  return formulas_.print(terms, support);
}

}  // namespace lockstep::live
