// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "lockstep/mesh.h"
#include "src/report/style.h"

namespace lockstep::report {

/// What one rank holds at some moment.
struct GridCell {
  std::string formula;
  bool held = false;   ///< the rank has the parameter
  bool stale = false;  ///< the rank does not own this element at that moment
  bool owner = false;  ///< the rank hands it to its optimizer
  bool wrong = false;  ///< and it is not what one device computes
};

/// Rows are pipeline stages, columns dp coordinates, further axes are blocks. Where pp or dp is 1, another axis takes
/// its place.
struct GridAxes {
  Axis rows = Axis::pp, columns = Axis::dp;
  std::vector<Axis> blocks;
};
GridAxes grid_axes(const Mesh& mesh);

/// The ranks of a grid.
struct GridPlan {
  struct Block {
    std::string title;                    ///< "tp 0"; "" where there is one block
    std::vector<std::vector<int>> ranks;  ///< by row and column
  };
  std::vector<std::string> rows, columns;  ///< "pp 0", "dp 1"
  std::vector<Block> blocks;
  std::string omitted;  ///< what is not shown, in words; "" where all is
};

/// Plans a grid of the ranks for which `holds` is true, at most `most` rows and columns and half as
/// many blocks, always with `must` in it. Rows in which nobody holds it are left out.
GridPlan plan_grid(const Mesh& mesh, const std::vector<bool>& holds, int must, std::size_t most);

/// Draws one table: a title line, then a table per block. `cells` are by block, row and column. Where a line would have
/// more than `widest` columns, neighbouring columns that are alike become one, "dp 0-3"; what is still too wide is
/// drawn in several parts, one below the other.
std::string draw_grid(const std::string& title, const GridPlan& plan,
                      const std::vector<std::vector<std::vector<GridCell>>>& cells, const Style& style,
                      std::size_t widest);

/// What the marks in these tables mean, one line; "" where none occurs.
std::string grid_legend(const std::vector<GridCell>& cells);

}  // namespace lockstep::report
