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

constexpr std::size_t column_gap = 3;  // between columns

using Cells = std::vector<std::vector<std::vector<GridCell>>>;  // by block, row and column

/// A column of a table; one for several that are alike.
struct Column {
  std::string title;
  std::size_t index = 0, width = 0;
};

std::vector<Column> columns_of(const GridPlan& plan, const Cells& cells) {
  std::vector<Column> columns;
  for (const std::string& title : plan.columns) columns.push_back({title, columns.size(), text_width(title)});
  for (const auto& block : cells) {
    for (const auto& row : block) {
      for (std::size_t index = 0; index < row.size(); ++index)
        columns[index].width = std::max(columns[index].width, text_width(marked(row[index])));
    }
  }
  return columns;
}

std::size_t width_of(std::size_t label_width, const std::vector<Column>& columns) {
  std::size_t width = label_width;
  for (const Column& column : columns) width += column_gap + column.width;
  return width;
}

/// The number in "dp 3".
int coordinate_of(const std::string& title) { return std::stoi(title.substr(title.rfind(' ') + 1)); }

void merge_alike(std::vector<Column>& columns, const Cells& cells) {
  std::vector<Column> merged;
  std::size_t last = 0;  // of those that are one
  for (const Column& column : columns) {
    const auto alike = [&](const std::vector<GridCell>& row) { return marked(row[column.index]) == marked(row[last]); };
    const bool is_next = !merged.empty() && coordinate_of(column.title) == coordinate_of(columns[last].title) + 1 &&
                         std::all_of(cells.begin(), cells.end(),
                                     [&](const auto& block) { return std::all_of(block.begin(), block.end(), alike); });
    last = column.index;
    if (!is_next) {
      merged.push_back(column);
      continue;
    }
    Column& one = merged.back();
    one.title = fmt::format("{}-{}", columns[one.index].title, coordinate_of(column.title));
    one.width = std::max({one.width, column.width, text_width(one.title)});
  }
  columns = std::move(merged);
}

/// At least one column each, and as many as fit.
std::vector<std::vector<Column>> parts_of(std::size_t label_width, const std::vector<Column>& columns,
                                          std::size_t widest) {
  std::vector<std::vector<Column>> parts;
  std::size_t width = 0;
  for (const Column& column : columns) {
    width += column_gap + column.width;
    if (parts.empty() || width > widest) {
      parts.emplace_back();
      width = label_width + column_gap + column.width;
    }
    parts.back().push_back(column);
  }
  return parts;
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
                      const std::vector<std::vector<std::vector<GridCell>>>& cells, const Style& style,
                      std::size_t widest) {
  std::size_t label_width = 0;
  for (const std::string& row : plan.rows) label_width = std::max(label_width, text_width(row));
  for (const GridPlan::Block& block : plan.blocks) label_width = std::max(label_width, text_width(block.title));
  std::vector<Column> columns = columns_of(plan, cells);
  if (width_of(label_width, columns) > widest) merge_alike(columns, cells);
  const std::vector<std::vector<Column>> parts = parts_of(label_width, columns, widest);
  std::string text = title + "\n";
  for (std::size_t block = 0; block < plan.blocks.size(); ++block) {
    for (const std::vector<Column>& part : parts) {
      std::string head = padded(plan.blocks[block].title, label_width);
      for (const Column& column : part) head += std::string(column_gap, ' ') + padded(column.title, column.width);
      text += trimmed(head) + "\n";
      for (std::size_t row = 0; row < plan.rows.size(); ++row) {
        std::string line = padded(plan.rows[row], label_width);
        std::size_t spaces = column_gap;
        for (const Column& column : part) {
          const GridCell& cell = cells[block][row][column.index];
          const std::string content = marked(cell);
          line += std::string(spaces, ' ') + (cell.wrong                 ? style.bad(content)
                                              : cell.stale || !cell.held ? style.faint(content)
                                                                         : content);
          spaces = column_gap + column.width - text_width(content);
        }
        text += line + "\n";
      }
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
  if (owner) marks.push_back("* handed to the optimizer of this cell's rank");
  if (wrong) marks.push_back("✗ wrong");
  if (stale) marks.push_back("~ stale: another rank owns it");
  return fmt::format("{}", fmt::join(marks, "   "));
}

}  // namespace lockstep::report
