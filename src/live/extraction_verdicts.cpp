// SPDX-License-Identifier: Apache-2.0
#include "src/live/extraction_verdicts.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <iterator>
#include <set>

#include "src/base/counted.h"
#include "src/live/element_verdicts.h"
#include "src/live/extraction_order.h"
#include "src/live/words.h"

namespace lockstep::live {

namespace {

using symbolic::NoSum;
using symbolic::Stretch;
using symbolic::Stretches;
using Verdict = VerifiedPiece::Verdict;

}  // namespace

class ExtractionVerdicts::Composition {
 public:
  Composition(const Extraction& extraction, const RunFormulas& formulas, const std::map<int, Expected>& expected,
              const VerifyOptions& options)
      : extraction_(extraction),
        run_(extraction.run),
        copies_coefficients_(options.coefficients),
        meetings_(symbolic::match_calls(extraction.programs)),
        forms_(extraction.programs, meetings_),
        contributions_(extraction),
        overlaps_(extraction),
        elements_(extraction, formulas, expected, forms_, contributions_, overlaps_, options.coefficients,
                  options.most_coefficients),
        results_(run_.parameters.size()),
        pieces_(run_.parameters.size()),
        piece_numbers_(run_.parameters.size()),
        is_simple_(run_.parameters.size(), 1) {
    for (const Region& region : extraction.regions) {
      if (!region.begin) is_simple_[at(region.parameter)] = 0;
    }
    for (const ExtractedProgram& details : extraction.details) {
      has_squares_ = has_squares_ || !details.squares.empty();
      for (const ExtractedResult& one : details.results)
        results_[at(extraction.regions[at(one.region)].parameter)].emplace_back(&details, &one);
    }
  }

  std::vector<PieceFinding> findings(int step, const std::vector<char>& chosen) {
    step_ = step;
    std::vector<PieceFinding> all;
    for (std::size_t i = 0; i < run_.parameters.size(); ++i) {
      const auto parameter = static_cast<int>(i);
      if (chosen[i] == 0 || run_.waits(step, parameter)) continue;
      elements_.begin(step);
      const std::map<Key, Readers> slots = collect(parameter);
      const RunWrong* wrong = run_.wrong(step, parameter);
      if (wrong != nullptr) tell_wrong(parameter, *wrong, all);
      const std::vector<RegionPart> spoiled =
          wrong == nullptr ? std::vector<RegionPart>() : parts_of(*wrong, parameter);
      for (const auto& [key, readers] : slots) {
        if (!meets(key, spoiled)) tell(key, readers, all);
      }
      tell_unread(parameter, slots, all);
      // What many ranks contribute to many parameters would take much memory together.
      verdicts_.clear();
      verdict_numbers_.clear();
      unknown_.clear();
    }
    return all;
  }

  const std::vector<std::vector<std::string>>& pieces() const { return pieces_; }
  NormFindings norms(int step) { return norm_findings(extraction_, forms_, overlaps_, step); }
  CollectiveOrder collectives() const { return order_of_calls(extraction_, meetings_); }

 private:
  /// Elements [begin, end) of what a result covers, and what is found of them.
  struct Segment {
    std::int64_t begin = 0, end = 0;
    int verdict = -1;  ///< -1: the optimizer gets no gradient
    friend auto operator<=>(const Segment&, const Segment&) = default;
  };
  using Key = std::tuple<int, std::int64_t, int, std::int64_t, std::int64_t>;  // parameter, index, region, first, count
  struct Reader {
    std::vector<int> ranks;
    int line = 0;
  };
  using Readers = std::map<std::vector<Segment>, Reader>;  // by what they read

  std::map<Key, Readers> collect(int parameter) {
    std::map<Key, Readers> slots;
    for (const auto& [details, result] : results_[at(parameter)]) {
      const ExtractedResult& one = *result;
      if (one.step != step_) continue;
      const std::int64_t begin = extraction_.regions[at(one.region)].begin.value_or(0) + one.first;
      Readers& readers = slots[{parameter, begin, one.region, one.first, one.elements}];
      Stretches before;
      std::vector<Segment> same{{0, one.elements, -1}};
      const std::vector<int>& ranks = details->ranks_of(one);
      for (const int rank : ranks) {
        // What ranks of one program read is mostly one sum.
        if (one.content >= 0) {
          if (Stretches own = forms_.result(rank, one.content); rank == ranks.front() || own != before) {
            same = segments(one, own);
            before = std::move(own);
          }
        }
        Reader& reader = readers[same];
        if (reader.ranks.empty()) reader.line = one.line;
        reader.ranks.push_back(rank);
      }
    }
    for (auto& [key, readers] : slots) {
      for (auto& [segments, reader] : readers) {
        std::sort(reader.ranks.begin(), reader.ranks.end());
        reader.ranks.erase(std::unique(reader.ranks.begin(), reader.ranks.end()), reader.ranks.end());
      }
    }
    return slots;
  }

  /// What is read, cut where other contributions belong to it.
  std::vector<Segment> segments(const ExtractedResult& result, Stretches stretches) {
    std::vector<Segment> all;
    const auto add = [&](std::int64_t begin, std::int64_t end, int verdict) {
      if (!all.empty() && all.back().end == begin && all.back().verdict == verdict) {
        all.back().end = end;
      } else {
        all.push_back({begin, end, verdict});
      }
    };
    std::int64_t end = 0;
    stretches.push_back({result.elements, result.elements, 0, 0});
    for (const Stretch& stretch : stretches) {
      if (end < stretch.begin) add(end, stretch.begin, unknown(result, std::string(symbolic::not_followed)));
      end = stretch.end;
      if (stretch.begin == stretch.end) continue;
      if (stretch.form < 0) {
        add(stretch.begin, stretch.end, unknown(result, forms_.reason_of(stretch.form), forms_.no_sum(stretch.form)));
        continue;
      }
      if (has_squares_ && !is_of_contributions(stretch.form)) {
        add(stretch.begin, stretch.end, unknown(result, "sums of squares are added to gradients"));
        continue;
      }
      for (const auto& [part, groups] : cut(result, {stretch.begin, stretch.end}))
        add(part.begin, part.end, verdict_number(result, stretch, part, groups));
    }
    return all;
  }

  bool is_of_contributions(int form) const {
    const std::vector<symbolic::ComposedTerm> terms = forms_.terms_of(form);
    return std::all_of(terms.begin(), terms.end(), [&](const symbolic::ComposedTerm& term) {
      return extraction_.details[at(extraction_.programs.program_of[at(term.rank)])].contribution_of[at(term.source)] >=
             0;
    });
  }

  /// Whether what a step contributes to a parameter may belong to what its optimizer gets now: since then it has not
  /// stepped.
  bool belongs(int step, int parameter) const {
    const std::vector<int>& steps = run_.steps;
    if (step > step_ || !is_in_run(step)) return false;
    auto one = std::lower_bound(steps.begin(), steps.end(), step_);
    while (one != steps.begin() && *one > step && run_.waits(*std::prev(one), parameter)) --one;
    return *one <= step;
  }

  bool is_in_run(int step) const { return std::binary_search(run_.steps.begin(), run_.steps.end(), step); }

  /// Elements of a result with the groups of contributions to them, where these change.
  std::vector<std::pair<Interval, std::vector<int>>> cut(const ExtractedResult& result, const Interval& elements) {
    const int parameter = extraction_.regions[at(result.region)].parameter;
    std::set<std::int64_t> ends = {elements.begin, elements.end};
    std::vector<std::pair<Interval, int>> parts;
    for (const int number : contributions_.of_parameter(parameter)) {
      const ContributionGroup& group = contributions_.group(number);
      if (!belongs(group.step, parameter)) continue;
      const std::vector<Overlap>* common = overlaps_.of(result.region, group.region);
      if (common == nullptr) return {{elements, {-1}}};
      for (const Overlap& one : *common) {
        // Of the region's own elements those that are in the contribution; then those of the result.
        const Interval own = intersect(one.elements, {group.first - one.move, group.first - one.move + group.elements});
        const Interval seen = intersect(elements, {own.begin - result.first, own.end - result.first});
        if (seen.empty()) continue;
        ends.insert(seen.begin);
        ends.insert(seen.end);
        parts.emplace_back(seen, number);
      }
    }
    std::vector<std::pair<Interval, std::vector<int>>> all;
    for (auto end = std::next(ends.begin()); end != ends.end(); ++end) all.push_back({{*std::prev(end), *end}, {}});
    for (const auto& [seen, number] : parts) {
      auto part = std::lower_bound(all.begin(), all.end(), seen.begin,
                                   [](const auto& one, std::int64_t begin) { return one.first.begin < begin; });
      for (; part != all.end() && part->first.end <= seen.end; ++part) part->second.push_back(number);
    }
    return all;
  }

  int add(ElementVerdict verdict) {
    verdict.finding.piece.step = step_;
    verdicts_.push_back(std::move(verdict));
    return static_cast<int>(verdicts_.size()) - 1;
  }

  int unknown(const ExtractedResult& result, const std::string& why, NoSum no_sum = NoSum::perhaps) {
    const int parameter = extraction_.regions[at(result.region)].parameter;
    const auto [found, is_new] = unknown_.try_emplace({step_, parameter, why, no_sum}, -1);
    if (!is_new) return found->second;
    ElementVerdict verdict;
    const std::string* all = no_sum == NoSum::perhaps ? nullptr : run_.unknown(step_, parameter);
    if (no_sum == NoSum::perhaps || all != nullptr) {
      set_undecided(verdict.finding, all != nullptr ? *all : "what the optimizer gets is not known: " + why);
    } else {
      set_wrong(verdict.finding, no_sum == NoSum::in_flight ? Mistake::race : Mistake::leftover,
                "what the optimizer gets is no sum of gradients: " + why);
      verdict.finding.piece.formula = "no sum of gradients";
    }
    return found->second = add(std::move(verdict));
  }

  /// Whatever optimizers of these ranks get of the parameter.
  void tell_wrong(int parameter, const RunWrong& wrong, std::vector<PieceFinding>& all) {
    PieceFinding finding;
    set_wrong(finding, Mistake::wrong_values, wrong.why);
    finding.piece.step = step_;
    finding.piece.parameter = parameter;
    finding.piece.piece = piece(parameter, "");
    finding.piece.ranks = {wrong.ranks.begin(), wrong.ranks.end()};
    finding.piece.place = {finding.piece.ranks.front(), wrong.line};
    all.push_back(std::move(finding));
  }

  /// What ranks with which something is wrong get of a parameter or contribute to it: of nobody else's it is known to
  /// be right.
  std::vector<RegionPart> parts_of(const RunWrong& wrong, int parameter) const {
    std::set<RegionPart> parts;
    for (const auto& [details, result] : results_[at(parameter)]) {
      const std::vector<int>& ranks = details->ranks_of(*result);
      if (result->step == step_ &&
          std::any_of(ranks.begin(), ranks.end(), [&](int rank) { return wrong.ranks.contains(rank); }))
        parts.insert({result->region, result->first, result->elements});
    }
    for (const int number : contributions_.of_parameter(parameter)) {
      const ContributionGroup& group = contributions_.group(number);
      if (group.step == step_ && std::any_of(group.who.begin(), group.who.end(),
                                             [&](const Contributor& one) { return wrong.ranks.contains(one.rank); }))
        parts.insert({group.region, group.first, group.elements});
    }
    return {parts.begin(), parts.end()};
  }

  bool meets(const Key& key, const std::vector<RegionPart>& parts) {
    const auto& [parameter, index, region, first, elements] = key;
    const RegionOverlaps::Covered found = overlaps_.covered({region, first, elements}, parts);
    return !found.compared || !found.elements.empty();
  }

  int verdict_number(const ExtractedResult& result, const Stretch& stretch, const Interval& part,
                     const std::vector<int>& groups) {
    const Region& region = extraction_.regions[at(result.region)];
    if (groups == std::vector<int>{-1})
      return unknown(result, "its parts and those of contributions are too many to compare");
    // In stretches of indices all that matters is by how much the elements of contributions are off.
    const bool is_simple = is_simple_[at(region.parameter)] != 0;
    const std::int64_t shift = stretch.shift - result.first - (is_simple ? *region.begin : 0);
    const auto [found, is_new] =
        verdict_numbers_.try_emplace({region.parameter, step_, stretch.form, shift, is_simple ? -1 : result.region,
                                      is_simple ? 0 : part.begin + result.first, groups},
                                     -1);
    if (!is_new) return found->second;
    const int number = add(elements_.verdict_on(result, stretch, part, groups));
    return verdict_numbers_[{region.parameter, step_, stretch.form, shift, is_simple ? -1 : result.region,
                             is_simple ? 0 : part.begin + result.first, groups}] = number;
  }

  int piece(int parameter, const std::string& words) {
    const auto [found, is_new] =
        piece_numbers_[at(parameter)].try_emplace(words, static_cast<int>(pieces_[at(parameter)].size()));
    if (is_new) pieces_[at(parameter)].push_back(words);
    return found->second;
  }

  std::string words_of(int region, std::int64_t first, std::int64_t count) const {
    const Region& own = extraction_.regions[at(region)];
    return elements_words(run_.parameters[at(own.parameter)].declared, own, first, count);
  }

  /// What the readers of some elements get: once where all of these hold the same, else once for each that differ.
  void tell(const Key& key, const Readers& readers, std::vector<PieceFinding>& all) {
    const auto& [parameter, index, region, first, elements] = key;
    if (elements == 0) return;
    for (const auto& [segments, reader] : readers) {
      std::map<int, std::vector<const Segment*>> by_verdict;
      for (const Segment& one : segments) by_verdict[one.verdict].push_back(&one);
      for (const auto& [number, parts] : by_verdict) {
        std::string words = words_of(region, first + parts.front()->begin, parts.front()->end - parts.front()->begin);
        if (parts.size() > 1) words += fmt::format(" and {} more", parts.size() - 1);
        PieceFinding finding = number < 0 ? PieceFinding() : copied(number);
        finding.piece.step = step_;
        finding.piece.parameter = parameter;
        finding.piece.piece = piece(parameter, words);
        finding.piece.ranks = reader.ranks;
        finding.piece.place = {reader.ranks.front(), reader.line};
        if (number < 0)
          no_gradient(finding, region, first, elements);
        else
          elements_.put_in_words(verdicts_[at(number)], finding);
        all.push_back(std::move(finding));
      }
    }
  }

  /// Those who read it first get the coefficients; for others they are the same.
  PieceFinding copied(int number) {
    PieceFinding& kept = verdicts_[at(number)].finding;
    if (copies_coefficients_ && elements_.keeps(kept.piece.coefficients.size())) return kept;
    std::vector<RecoveredCoefficient> coefficients = std::move(kept.piece.coefficients);
    kept.piece.coefficients.clear();
    PieceFinding finding = kept;
    if (!coefficients.empty()) kept.piece.left_out = coefficients.size();
    finding.piece.coefficients = std::move(coefficients);
    return finding;
  }

  void no_gradient(PieceFinding& finding, int region, std::int64_t first, std::int64_t elements) {
    if (const std::string* why = run_.unknown(step_, finding.piece.parameter)) return set_undecided(finding, *why);
    ExtractedResult all;
    all.region = region;
    all.first = first;
    all.elements = elements;
    std::set<int> ranks;
    for (const auto& [part, groups] : cut(all, {0, elements})) {
      if (groups == std::vector<int>{-1})
        return set_undecided(finding, "the optimizer gets no gradient, and which contributions there are is not known");
      for (const int number : groups) {
        for (const Contributor& who : contributions_.group(number).who) ranks.insert(who.rank);
      }
    }
    finding.piece.formula = "0";
    if (ranks.empty()) {
      finding.piece.verdict = Verdict::right;
      finding.piece.why = "no rank yields a gradient, and the optimizer gets none";
      return;
    }
    set_wrong(finding, Mistake::no_owner, "the optimizer gets no gradient, and backward yields one");
    finding.piece.why = "backward yields a gradient on " + rank_words({ranks.begin(), ranks.end()});
  }

  /// Elements to which a backward contributes and that no optimizer reads.
  void tell_unread(int parameter, const std::map<Key, Readers>& slots, std::vector<PieceFinding>& all) {
    std::vector<RegionPart> read;
    for (const auto& [key, readers] : slots) {
      const auto& [own, index, region, first, elements] = key;
      read.push_back({region, first, elements});
    }
    std::set<std::string> told;
    for (const int number : contributions_.of_parameter(parameter)) {
      const ContributionGroup& group = contributions_.group(number);
      if (group.step != step_) continue;
      const RegionOverlaps::Covered covered = overlaps_.covered({group.region, group.first, group.elements}, read);
      for (const Interval& one : subtract({{group.first, group.first + group.elements}}, covered.elements)) {
        const std::string words = words_of(group.region, one.begin, one.size());
        if (told.insert(words).second) all.push_back(unread(parameter, group, words, covered.compared));
      }
    }
  }

  PieceFinding unread(int parameter, const ContributionGroup& group, const std::string& words, bool compared) {
    PieceFinding finding;
    finding.piece.step = step_;
    finding.piece.parameter = parameter;
    finding.piece.piece = piece(parameter, words);
    finding.piece.place = {group.who.front().rank, group.who.front().line};
    if (const std::string* why = run_.unknown(step_, parameter)) {
      set_undecided(finding, *why);
    } else if (!compared) {
      set_undecided(finding, "whether an optimizer gets it is not known: its parts are too many to compare");
    } else {
      set_wrong(finding, Mistake::no_owner, "no rank's optimizer gets it, and backward yields a gradient");
    }
    return finding;
  }

  const Extraction& extraction_;
  const CapturedRun& run_;
  bool copies_coefficients_;
  symbolic::Meetings meetings_;
  symbolic::ProgramForms forms_;
  ExtractedContributions contributions_;
  RegionOverlaps overlaps_;
  ElementVerdicts elements_;
  /// By parameter.
  std::vector<std::vector<std::pair<const ExtractedProgram*, const ExtractedResult*>>> results_;
  std::vector<std::vector<std::string>> pieces_;
  std::vector<std::map<std::string, int>> piece_numbers_;
  std::vector<char> is_simple_;  // by parameter: all its regions are stretches of indices
  std::deque<ElementVerdict> verdicts_;
  std::map<std::tuple<int, int, int, std::int64_t, int, std::int64_t, std::vector<int>>, int> verdict_numbers_;
  std::map<std::tuple<int, int, std::string, NoSum>, int> unknown_;  // by step, parameter and reason
  bool has_squares_ = false;
  int step_ = 0;
};

ExtractionVerdicts::ExtractionVerdicts(const Extraction& extraction, const RunFormulas& formulas,
                                       const std::map<int, Expected>& expected, const VerifyOptions& options)
    : composition_(std::make_unique<Composition>(extraction, formulas, expected, options)) {}

ExtractionVerdicts::~ExtractionVerdicts() = default;

std::vector<PieceFinding> ExtractionVerdicts::findings(int step, const std::vector<char>& chosen) {
  return composition_->findings(step, chosen);
}

const std::vector<std::vector<std::string>>& ExtractionVerdicts::pieces() const { return composition_->pieces(); }

NormFindings ExtractionVerdicts::norms(int step) { return composition_->norms(step); }

CollectiveOrder ExtractionVerdicts::collectives() const { return composition_->collectives(); }

}  // namespace lockstep::live
