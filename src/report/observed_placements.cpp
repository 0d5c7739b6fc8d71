// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "lockstep/report.h"
#include "lockstep/transformer.h"
#include "src/base/at.h"
#include "src/diagnosis/fold_names.h"
#include "src/report/clean_text.h"
#include "src/report/json_writer.h"
#include "src/report/style.h"
#include "src/report/text_report.h"

namespace lockstep {

namespace {

using Cells = std::map<Axis, std::string>;

/// "P", or "R, is P" where a claim is not true.
std::string cell_of(const ObservedPlacement& placement) {
  if (placement.agrees) return placement.claimed;
  return fmt::format("{}, is {}", placement.claimed, placement.observed);
}

/// Parameters with the same placements whose names differ in numbers alone, by their first.
std::vector<std::pair<std::string, Cells>> folded_rows(const Scenario& scenario, const PlacementReport& report) {
  std::vector<std::pair<std::string, Cells>> rows;
  std::vector<Cells> of_parameter(scenario.schedule->model.parameters().size());
  for (const ObservedPlacement& placement : report.placements)
    of_parameter[at(placement.parameter)][placement.axis] = cell_of(placement);
  for (std::size_t i = 0; i < of_parameter.size(); ++i) {
    if (of_parameter[i].empty()) continue;
    std::pair row(diagnosis::folded_name(scenario.schedule->model.parameters()[i].name), of_parameter[i]);
    if (std::find(rows.begin(), rows.end(), row) == rows.end()) rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace

void placements_text(const Scenario& scenario, const PlacementReport& report, bool color, const Write& write) {
  const report::Style style(color);
  const auto rows = folded_rows(scenario, report);
  std::vector<Axis> axes;
  std::size_t name_width = 9;
  std::map<Axis, std::size_t> widths;
  for (const auto& [name, cells] : rows) {
    name_width = std::max(name_width, name.size());
    for (const auto& [axis, text] : cells) {
      if (std::find(axes.begin(), axes.end(), axis) == axes.end()) axes.push_back(axis);
      widths[axis] = std::max({widths[axis], text.size(), name_of(axis).size()});
    }
  }
  write(fmt::format("{}  {}\n\n", style.bold(report::one_line_text(scenario.file)), report::layout_text(scenario)));
  std::string head = "  " + report::padded("parameter", name_width);
  for (const Axis axis : axes) head += "  " + report::padded(name_of(axis), widths[axis]);
  write(head.substr(0, head.find_last_not_of(' ') + 1) + "\n");
  for (const auto& [name, cells] : rows) {
    std::string line = "  " + report::padded(name, name_width);
    for (const Axis axis : axes) {
      const auto cell = cells.find(axis);
      const std::string text = report::padded(cell == cells.end() ? "" : cell->second, widths[axis]);
      line += "  " + (text.find("is ") != std::string::npos ? style.bad(text) : text);
    }
    write(line.substr(0, line.find_last_not_of(' ') + 1) + "\n");
  }
  const auto wrong = std::count_if(report.placements.begin(), report.placements.end(),
                                   [](const ObservedPlacement& placement) { return !placement.agrees; });
  if (wrong == 0)
    write(fmt::format("\n  All {} placements are as claimed", report.placements.size()));
  else
    write(fmt::format("\n  {} of {} placements are {}", wrong, report.placements.size(), style.bad("not as claimed")));
  if (report.incomplete.empty())
    write(", and the gradients add up to those of one device.\n");
  else
    write(fmt::format("; what was observed does {} to the gradient of one device for {}.\n", style.bad("not add up"),
                      fmt::join(report.incomplete, ", ")));
}

void placements_json(const Scenario& scenario, const PlacementReport& report, const Write& write) {
  report::JsonWriter json(write);
  json.begin_object();
  json.key("lockstep").number(1);
  json.key("file").string(scenario.file);
  json.key("agrees").boolean(report.agrees());
  json.key("placements").begin_array();
  for (const ObservedPlacement& placement : report.placements) {
    json.begin_object(true);
    json.key("parameter").string(scenario.schedule->model.parameters()[at(placement.parameter)].name);
    json.key("axis").string(name_of(placement.axis));
    json.key("claimed").string(placement.claimed);
    json.key("observed").string(placement.observed);
    json.key("agrees").boolean(placement.agrees);
    json.end_object();
  }
  json.end_array();
  json.key("incomplete").strings(report.incomplete);
  json.end_object();
  json.finish();
}

}  // namespace lockstep
