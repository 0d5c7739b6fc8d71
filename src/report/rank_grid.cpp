// SPDX-License-Identifier: Apache-2.0
#include "src/report/rank_grid.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "src/base/at.h"
#include "src/base/counted.h"

namespace lockstep::report {

namespace {

/// The first `most` of `all`, with `must` in the place of the last if it is not among them.
std::vector<int> first_of(const std::vector<int>& all, int must, std::size_t most) {
  std::vector<int> some(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(std::min(all.size(), most)));
  if (std::find(some.begin(), some.end(), must) == some.end() && std::find(all.begin(), all.end(), must) != all.end()) {
    some.back() = must;
  }
  return some;
}

int block_of(const Mesh& mesh, int rank, const std::vector<Axis>& axes) {
  int block = 0;
  for (const Axis axis : axes) block = block * mesh.size(axis) + mesh.coordinate(rank, axis);
  return block;
}

std::string marked(const GridCell& cell) {
  if (!cell.held) return "·";
  std::string text = cell.formula;
  if (cell.stale) text += " ~";
  if (cell.owner) text += " *";
  if (cell.wrong) text += " ✗";
  return text;
}

std::string trimmed(std::string line) {
  while (!line.empty() && line.back() == ' ') line.pop_back();
  return line;
}

}  // namespace

GridAxes grid_axes(const Mesh& mesh) {
  std::vector<Axis> others;
  for (const Axis axis : {Axis::sp, Axis::cp, Axis::tp}) {
    if (mesh.size(axis) > 1) others.push_back(axis);
  }
  Axis columns = Axis::dp, rows = Axis::pp;
  if (mesh.size(columns) == 1 && !others.empty()) {
    columns = others.front();
    others.erase(others.begin());
  }
  if (mesh.size(rows) == 1 && !others.empty()) {
    rows = others.back();
    others.pop_back();
  }
  return {rows, columns, others};
}

GridPlan plan_grid(const Mesh& mesh, const std::vector<bool>& holds, int must, std::size_t most) {
  const auto [row_axis, column_axis, block_axes] = grid_axes(mesh);
  // Which rank stands where; and which rows, columns and blocks hold the parameter at all.
  std::map<std::tuple<int, int, int>, int> rank_at;
  std::vector<int> rows, columns, blocks;
  for (int rank = 0; rank < mesh.world(); ++rank) {
    if (!holds[at(rank)]) continue;
    const int row = mesh.coordinate(rank, row_axis), column = mesh.coordinate(rank, column_axis);
    const int block = block_of(mesh, rank, block_axes);
    rank_at[{block, row, column}] = rank;
    rows.push_back(row);
    columns.push_back(column);
    blocks.push_back(block);
  }
  for (std::vector<int>* list : {&rows, &columns, &blocks}) {
    std::sort(list->begin(), list->end());
    list->erase(std::unique(list->begin(), list->end()), list->end());
  }
  const std::vector<int> shown_rows = first_of(rows, mesh.coordinate(must, row_axis), most);
  const std::vector<int> shown_columns = first_of(columns, mesh.coordinate(must, column_axis), most);
  const std::vector<int> shown_blocks =
      first_of(blocks, block_of(mesh, must, block_axes), std::max<std::size_t>(1, most / 2));

  GridPlan plan;
  for (const int row : shown_rows) plan.rows.push_back(fmt::format("{} {}", name_of(row_axis), row));
  for (const int column : shown_columns) plan.columns.push_back(fmt::format("{} {}", name_of(column_axis), column));
  for (const int block : shown_blocks) {
    GridPlan::Block shown;
    int rest = block;
    for (auto axis = block_axes.rbegin(); axis != block_axes.rend(); ++axis) {
      const std::string part = fmt::format("{} {}", name_of(*axis), rest % mesh.size(*axis));
      shown.title = shown.title.empty() ? part : part + " " + shown.title;
      rest /= mesh.size(*axis);
    }
    for (const int row : shown_rows) {
      std::vector<int>& line = shown.ranks.emplace_back();
      for (const int column : shown_columns) {
        const auto rank = rank_at.find({block, row, column});
        line.push_back(rank == rank_at.end() ? -1 : rank->second);
      }
    }
    plan.blocks.push_back(std::move(shown));
  }
  std::vector<std::string> omitted;
  if (rows.size() > shown_rows.size()) {
    omitted.push_back(counted(rows.size() - shown_rows.size(), fmt::format("more {} row", name_of(row_axis))));
  }
  if (columns.size() > shown_columns.size()) {
    omitted.push_back(
        counted(columns.size() - shown_columns.size(), fmt::format("more {} column", name_of(column_axis))));
  }
  if (blocks.size() > shown_blocks.size())
    omitted.push_back(counted(blocks.size() - shown_blocks.size(), "more block"));
  plan.omitted = fmt::format("{}", fmt::join(omitted, ", "));
  return plan;
}

std::string draw_grid(const std::string& title, const GridPlan& plan,
                      const std::vector<std::vector<std::vector<GridCell>>>& cells, const Style& style) {
  std::string text = title + "\n";
  std::size_t label_width = 0;
  for (const std::string& row : plan.rows) label_width = std::max(label_width, text_width(row));
  std::vector<std::size_t> widths;
  for (const std::string& column : plan.columns) widths.push_back(text_width(column));
  for (const auto& block : cells) {
    for (const auto& row : block) {
      for (std::size_t column = 0; column < row.size(); ++column) {
        widths[column] = std::max(widths[column], text_width(marked(row[column])));
      }
    }
  }
  for (std::size_t block = 0; block < plan.blocks.size(); ++block) {
    std::string head = padded(plan.blocks[block].title, label_width);
    const std::size_t first_width = std::max(label_width, text_width(plan.blocks[block].title));
    for (std::size_t column = 0; column < plan.columns.size(); ++column)
      head += "   " + padded(plan.columns[column], widths[column]);
    text += trimmed(head) + "\n";
    for (std::size_t row = 0; row < plan.rows.size(); ++row) {
      std::string line = padded(plan.rows[row], first_width);
      std::string spaces;
      for (std::size_t column = 0; column < plan.columns.size(); ++column) {
        const GridCell& cell = cells[block][row][column];
        const std::string content = marked(cell);
        line += "   " + spaces +
                (cell.wrong                 ? style.bad(content)
                 : cell.stale || !cell.held ? style.faint(content)
                                            : content);
        spaces = std::string(widths[column] - text_width(content), ' ');
      }
      text += line + "\n";
    }
  }
  return text;
}

std::string grid_legend(const std::vector<GridCell>& cells) {
  bool stale = false, owner = false, wrong = false;
  for (const GridCell& cell : cells) {
    stale = stale || cell.stale;
    owner = owner || cell.owner;
    wrong = wrong || cell.wrong;
  }
  std::vector<std::string> marks;
  if (owner) marks.push_back("* handed to this rank's optimizer");
  if (wrong) marks.push_back("✗ wrong");
  if (stale) marks.push_back("~ stale: another rank owns it");
  return fmt::format("{}", fmt::join(marks, "   "));
}

}  // namespace lockstep::report
