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

/// What is found of elements that hold one sum; the same for all ranks that read it, but for words.
struct Judgement {
  PieceFinding finding;     ///< without place and ranks
  bool by_formula = false;  ///< wrong by a formula that is exact: mistake_words() depend on who reads it
  Explanation explanation;
  std::deque<Column> earlier;  ///< of optimizer steps before, which the explanation points to
};

/// Holds what an optimizer reads against what contributes to the same elements.
class ElementJudge {
 public:
  /// All must outlive it.
  ElementJudge(const Extraction& extraction, const RunFormulas& formulas, const std::map<int, Expected>& expected,
               const symbolic::ProgramForms& forms, const ExtractedContributions& contributions,
               RegionOverlaps& overlaps)
      : extraction_(extraction),
        run_(extraction.run),
        formulas_(formulas),
        expected_(expected),
        forms_(forms),
        contributions_(contributions),
        overlaps_(overlaps) {}

  /// Forgets what contributes to what, to which judgements point, and goes on with results of this optimizer step.
  void begin(int step);
  /// Judges elements of a result that hold one known sum, and to all of which these groups contribute in this optimizer
  /// step, or since the parameter's optimizer stepped last: from one of these steps on, what came may belong to it.
  Judgement judge(const ExtractedResult& result, const symbolic::Stretch& stretch, const Interval& elements,
                  const std::vector<int>& groups);

 private:
  /// What contributes to some elements, with the words for it.
  struct Contributing {
    ExtractedColumns columns;
    CellFormulas formulas;
  };
  const Contributing& contributing(int parameter, const std::vector<int>& groups);
  Judgement judge_by(const ExtractedResult& result, const symbolic::Stretch& stretch, const Interval& part,
                     const std::vector<int>& groups);
  void decide(Judgement& judgement, const Contributing& own, const std::string& foreign, bool uneven) const;
  bool is_same_element(const ExtractedResult& result, const Interval& part, std::int64_t move, int region);
  const ExtractedContribution& contribution_of(const symbolic::ComposedTerm& term) const;
  std::string foreign_words(const ExtractedContribution& contribution, int parameter) const;
  std::string unsaid_words(std::uint32_t axes) const;
  Term other_term(const ExtractedResult& result, const symbolic::ComposedTerm& term,
                  const ExtractedContribution& contribution, std::int64_t move) const;

  const Extraction& extraction_;
  const CapturedRun& run_;
  const RunFormulas& formulas_;
  const std::map<int, Expected>& expected_;
  const symbolic::ProgramForms& forms_;
  const ExtractedContributions& contributions_;
  RegionOverlaps& overlaps_;
  std::map<std::pair<int, std::vector<int>>, std::unique_ptr<Contributing>> contributing_;  // by parameter and groups
  int step_ = 0;
};

}  // namespace lockstep::live
