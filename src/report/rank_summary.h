// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/check.h"

namespace lockstep::report {

/// All ranks of a layout as one table: rows are pipeline stages, columns dp coordinates, the other axes are folded into
/// the cells. Where pp or dp is 1, another axis takes its place. Where there are more than 64 rows or columns,
/// neighbours share one.
struct RankSummary {
  struct Cell {
    int row = 0, column = 0;
    std::vector<int> ranks;  ///< ascending
    std::vector<int> wrong;  ///< of them: those that own a wrong element or are stuck
    int holding = -1;        ///< index into `holdings`, of the first rank
    /// Elements that the first rank hands to its optimizer; nothing where no engine says so.
    std::optional<std::int64_t> owned;
  };
  /// What a rank holds.
  struct Holding {
    std::size_t buffers = 0;
    std::int64_t elements = 0;
    std::vector<std::string> names;  ///< "decoder.layers.*.mlp.weight (12)", in model order
  };
  std::vector<std::string> rows, columns;  ///< "pp 0", "dp 0-3"
  std::string folded;                      ///< "tp 8 × cp 2": the axes within a cell; "" where there are none
  std::vector<Cell> cells;                 ///< by row, then column
  std::vector<Holding> holdings;
  /// `wrong` has ranks that stand for all that are wrong, or none, and not every one.
  bool sampled = false;
};

/// `result` must have a schedule. Where the parametric engine alone ran, it is asked for what the ranks have.
RankSummary rank_summary(const CheckResult& result);

}  // namespace lockstep::report
