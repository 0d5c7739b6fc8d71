// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "lockstep/check.h"
#include "src/diagnosis/content_history.h"
#include "src/diagnosis/formulas.h"
#include "src/report/elide.h"
#include "src/report/rank_grid.h"

namespace lockstep::report {

/// One parameter whose grids are wanted, by a rank that holds it and elements of its buffer there.
struct GridRequest {
  int rank = 0;
  int buffer = 0;                    ///< index into the rank's LocalModel
  Interval elements;                 ///< narrowed to where every shown cell is of one formula
  std::optional<std::size_t> event;  ///< its step is shown in any case: the first divergence
};

/// What the ranks hold after one step.
struct Snapshot {
  int time = 0;  ///< Event::time
  const Step* step = nullptr;
  int optimizer_step = 0;
  int micro_batch = -1;                                   ///< counted from 0 in the optimizer step
  bool changed = false;                                   ///< some cell is another than before
  bool last = false;                                      ///< carries the final marks
  std::vector<std::vector<std::vector<GridCell>>> cells;  ///< by block, row, column of the plan
};

/// Replays a schedule once for several parameters and tells what every shown rank held after each
/// step of the reported optimizer step.
class ParameterGrids {
 public:
  /// At most `most` rows and columns are shown, and of each formula at most `widest` columns.
  /// `result` must outlive it and have a timeline.
  ParameterGrids(const CheckResult& result, std::vector<GridRequest> requests, std::size_t most,
                 std::size_t widest = unlimited_width);

  const GridPlan& plan(std::size_t request) const { return plans_[request]; }
  /// In the order of the steps, without cells: a formula may have thousands of terms, and few tables are shown.
  std::vector<Snapshot> snapshots(std::size_t request) const;
  /// Fills in the cells of one of them.
  void fill(std::size_t request, Snapshot& snapshot);
  /// The formula that one device has for these elements, as read by the rank of the request.
  std::string expected(std::size_t request);
  /// The elements for which the snapshots hold: those of the request, less what is cut off anywhere.
  Interval elements(std::size_t request) const;

 private:
  struct Cell {
    std::size_t watch = 0;
    int rank = 0, buffer = 0;
  };
  using CellMap = std::vector<std::vector<std::vector<std::optional<Cell>>>>;

  const diagnosis::HistoryEntry* entry_at(std::size_t watch, const std::string& name, int time) const;
  const std::string& formula_of(const Cell& cell, int form);
  GridCell cell_at(const Cell& cell, const Snapshot& snapshot);
  bool owns(const Cell& cell, const diagnosis::HistoryEntry* until, std::int64_t element) const;
  bool hands_over(const Cell& cell, std::int64_t element) const;

  const CheckResult& result_;
  const Schedule& schedule_;
  std::vector<GridRequest> requests_;
  std::vector<GridPlan> plans_;
  std::vector<CellMap> cells_;                                  // by request
  std::vector<std::vector<const OwnershipChange*>> ownership_;  // by watch, in order of event
  std::vector<diagnosis::Watch> watches_;
  diagnosis::ContentHistory history_;
  std::optional<diagnosis::Formulas> formulas_;
  std::size_t widest_;
  std::unordered_map<const std::string*, std::string> elided_;  // by the formula in `formulas_`
};

/// "after dp_reduce_scatter, micro-batch 1", and the buffer where it is not the result.
std::string snapshot_title(const Schedule& schedule, const Snapshot& snapshot);

/// The tables that tell the story in a check: before the first reduction, the last ones, and the
/// first divergence.
std::vector<std::size_t> telling_snapshots(const CheckResult& result, const std::vector<Snapshot>& snapshots,
                                           std::optional<std::size_t> divergence_event, std::size_t most);

}  // namespace lockstep::report
