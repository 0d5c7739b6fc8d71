// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "src/live/extraction_columns.h"

namespace lockstep::live {

/// What contributes to some elements, with the words for it.
struct Contributing {
  ExtractedColumns columns;
  CellFormulas formulas;
};

/// How contributions entered what is wrong by a formula, where those of ranks of which the run does not say whether
/// they yield one gradient are taken to yield one, or shares of one.
struct Reading {
  const Contributing* own = nullptr;
  Explanation found;  ///< without columns that did not enter
  std::string difference;
};

/// Axes along which ranks may each have an expert of their own, and the place along them whose contributions came.
struct OwnExperts {
  std::uint32_t axes = 0;  ///< by bit; 0: none
  int place = 0;
};

/// What is found of elements that hold one sum; the same for all ranks that read it, but for words.
struct ElementVerdict {
  PieceFinding finding;  ///< without place and ranks
  std::vector<Reading>
      readings;                ///< ElementVerdicts::put_in_words() says what is wrong by them; empty: `finding` says it
  std::uint32_t unsaid = 0;    ///< by bit, the axes along which readings differ
  OwnExperts experts;          ///< readings are wrong but for ranks at that place
  std::deque<Column> earlier;  ///< of optimizer steps before, which readings point to
  bool uniform = false, stale = false;
};

/// Holds what an optimizer reads against what contributes to the same elements.
class ElementVerdicts {
 public:
  /// All must outlive it. Of `most_coefficients` in all that are kept, those of results that are right are some only
  /// where `of_right`.
  ElementVerdicts(const Extraction& extraction, const RunFormulas& formulas, const std::map<int, Expected>& expected,
                  const symbolic::ProgramForms& forms, const ExtractedContributions& contributions,
                  RegionOverlaps& overlaps, bool of_right, std::size_t most_coefficients)
      : extraction_(extraction),
        run_(extraction.run),
        formulas_(formulas),
        expected_(expected),
        forms_(forms),
        contributions_(contributions),
        overlaps_(overlaps),
        of_right_(of_right),
        most_coefficients_(most_coefficients) {}

  /// Forgets what contributes to what, to which verdicts point, and goes on with results of this optimizer step.
  void begin(int step);
  /// What is said of elements of a result that hold one known sum, and to all of which these groups contribute in this
  /// optimizer step, or since the parameter's optimizer stepped last: from one of these steps on, what came may belong
  /// to it.
  ElementVerdict verdict_on(const ExtractedResult& result, const symbolic::Stretch& stretch, const Interval& elements,
                            const std::vector<int>& groups);
  /// Fills in what a copy of a verdict's finding, which has its ranks, says of what is wrong.
  void put_in_words(const ElementVerdict& verdict, PieceFinding& finding) const;
  /// Whether so many more coefficients are kept.
  bool keeps(std::size_t coefficients);

 private:
  /// What a sum is made of, by what its terms are to the elements that hold it.
  struct Sorted {
    std::vector<symbolic::ComposedTerm> entered;           ///< of what belongs to them
    std::map<std::tuple<int, int, int>, Rational> before;  ///< of earlier steps, by step, rank and micro-batch
    std::vector<Term> others;                              ///< of other elements, named
    std::string foreign;                                   ///< what these are; "" where there are none
  };
  const Contributing& contributing(int parameter, const std::vector<int>& groups, std::uint32_t replicas);
  ElementVerdict verdict_by(const ExtractedResult& result, const symbolic::Stretch& stretch, const Interval& part,
                            const std::vector<int>& groups);
  Sorted sort(const ExtractedResult& result, const symbolic::Stretch& stretch, const Interval& part,
              const ExtractedColumns& columns);
  void decide(ElementVerdict& verdict, const Contributing& own, Explanation found) const;
  /// The axes of experts along which nothing says what ranks have, where contributions of one place along them alone
  /// came, and all of these as they should: then each place may have an expert of its own.
  OwnExperts own_experts(std::uint32_t unsaid, const Contributing& shares, const Explanation& found) const;
  void decide_unsaid(ElementVerdict& verdict, int parameter, const std::vector<int>& groups, const Sorted& terms,
                     const Explanation& found);
  void add_reading(ElementVerdict& verdict, const Contributing& own, Explanation found) const;
  std::string words(const Reading& reading, const std::vector<int>& ranks) const;
  bool is_same_element(const ExtractedResult& result, const Interval& part, std::int64_t move, int region);
  const ExtractedContribution& contribution_of(const symbolic::ComposedTerm& term) const;
  std::string foreign_words(const ExtractedContribution& contribution, int parameter) const;
  std::string axes_words(std::uint32_t axes) const;
  Term other_term(const ExtractedResult& result, const Interval& part, const symbolic::ComposedTerm& term,
                  const ExtractedContribution& contribution, std::int64_t move) const;

  const Extraction& extraction_;
  const CapturedRun& run_;
  const RunFormulas& formulas_;
  const std::map<int, Expected>& expected_;
  const symbolic::ProgramForms& forms_;
  const ExtractedContributions& contributions_;
  RegionOverlaps& overlaps_;
  bool of_right_;
  std::size_t most_coefficients_, kept_ = 0;
  /// By parameter, groups and axes whose ranks are taken for replicas.
  std::map<std::tuple<int, std::vector<int>, std::uint32_t>, std::unique_ptr<Contributing>> contributing_;
  int step_ = 0;
};

}  // namespace lockstep::live
