// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "lockstep/check.h"
#include "src/report/rank_grid.h"
#include "src/report/subject.h"

namespace lockstep::report {

/// What became of one parameter on the ranks that hold it, step by step, in the reported optimizer step. Only changes
/// are kept: a cell that no step names holds what it held.
struct ParameterHistory {
  /// After a step, `ranges[range]` of the buffer on `ranks[rank]` is `formulas[formula]`.
  struct Change {
    int rank = 0, range = 0, formula = 0;
    std::string marks;  ///< as in tables: "~" stale, "*" handed to the optimizer, "✗" wrong
  };
  struct Entry {
    const Step* step = nullptr;
    int micro_batch = -1;                  ///< counted from 0 in the optimizer step; -1 outside `each`
    bool changed = false;                  ///< some cell holds another formula than before
    std::vector<std::vector<int>> groups;  ///< ranks that communicate in it, those of `ranks` only; roots first
    std::vector<Change> changes;
  };
  std::string parameter;
  std::int64_t elements = 0;  ///< of the largest buffer
  std::vector<Interval> ranges;
  std::size_t ranges_left_out = 0, entries_left_out = 0;
  std::vector<std::string> expected;  ///< by range: what one device has
  GridPlan plan;                      ///< of `ranks`
  std::vector<int> ranks;             ///< ascending
  std::vector<std::string> formulas;
  std::vector<Entry> entries;
};

/// The histories of a parameter of each section that is wrong, at most `most` of them; where none is wrong, of a tied
/// parameter, else of the first. Each with at most eight rows and columns of ranks (four in a world of more than 32)
/// and four ranges of elements. Empty where the schedule was not replayed, or does nothing to gradients. Complexity: a
/// run of the symbolic engine per parameter, and one more.
std::vector<ParameterHistory> parameter_histories(const CheckResult& result, std::size_t most);

/// The histories of these parameters, without those that no step acts on.
std::vector<ParameterHistory> histories_of(const CheckResult& result, const std::vector<Subject>& subjects);

}  // namespace lockstep::report
