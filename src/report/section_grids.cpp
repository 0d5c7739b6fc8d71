// SPDX-License-Identifier: Apache-2.0
#include "src/report/section_grids.h"

#include <fmt/format.h>

#include <set>

#include "src/report/parameter_grid.h"

namespace lockstep::report {

namespace {

// Candidates are replayed; of those, the first few that look different are shown.
constexpr std::size_t most_candidates = 8, most_grids = 2, most_tables = 6, most_ranks_of_grid = 8;
constexpr std::size_t grid_indent = 4;

std::string indented(const std::string& text) {
  std::string result;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = text.find('\n', begin);
    if (end > begin) result += std::string(grid_indent, ' ') + text.substr(begin, end - begin);
    result += '\n';
    begin = end + 1;
  }
  return result;
}

std::string draw(const CheckResult& result, ParameterGrids& grids, std::size_t request,
                 std::optional<std::size_t> event, const ReportOptions& options, const Style& style) {
  const Schedule& schedule = *result.scenario->schedule;
  std::vector<Snapshot> snapshots = grids.snapshots(request);
  std::string text;
  std::vector<GridCell> all;
  const std::size_t most = options.verbose ? snapshots.size() : most_tables;
  for (const std::size_t index : telling_snapshots(result, snapshots, event, most)) {
    Snapshot& snapshot = snapshots[index];
    grids.fill(request, snapshot);
    const std::string title =
        fmt::format("{}, elements {}", snapshot_title(schedule, snapshot), interval_text(grids.elements(request)));
    text += "\n" + draw_grid(style.bold(title), grids.plan(request), snapshot.cells, style,
                             options.verbose ? unlimited_width : page_width - grid_indent);
    for (const auto& block : snapshot.cells) {
      for (const auto& row : block) all.insert(all.end(), row.begin(), row.end());
    }
  }
  const std::string legend = grid_legend(all);
  if (!legend.empty()) text += style.faint(legend) + "\n";
  if (!grids.plan(request).omitted.empty()) text += style.faint("not shown: " + grids.plan(request).omitted) + "\n";
  return indented(text);
}

}  // namespace

std::map<std::size_t, std::string> draw_section_grids(const CheckResult& result, const std::vector<Section>& sections,
                                                      const ReportOptions& options, const Style& style) {
  std::map<std::size_t, std::string> drawn;
  const Model& model = result.scenario->schedule->model;
  std::vector<GridRequest> requests;
  std::vector<std::size_t> section_of;
  std::set<std::pair<int, std::int64_t>> seen;
  for (std::size_t index = 0; index < sections.size(); ++index) {
    if (requests.size() == most_candidates && !options.verbose) break;
    for (const RankGroup& group : sections[index].finding->groups) {
      const PieceResult* piece = first_wrong_piece(group);
      if (piece == nullptr) continue;
      // A tied parameter's grid shows the ranks of all its names; so one grid tells of them all.
      if (!seen.emplace(model.logical_of(sections[index].finding->parameter), piece->elements.begin).second) break;
      GridRequest request{group.ranks.front(), group.buffer, piece->elements, std::nullopt};
      const BufferDivergence* divergence = sections[index].divergence;
      if (divergence != nullptr && !divergence->point.step.empty()) request.event = divergence->point.event;
      requests.push_back(request);
      section_of.push_back(index);
      break;
    }
  }
  if (requests.empty() || result.timeline == nullptr || result.scenario->schedule->mesh.world() == 1) return drawn;
  ParameterGrids grids(result, requests, options.verbose ? 64 : most_ranks_of_grid,
                       options.verbose ? unlimited_width : widest_cell);
  std::set<std::string> texts;
  for (std::size_t request = 0; request < requests.size(); ++request) {
    if (drawn.size() == most_grids && !options.verbose) break;
    std::string text = draw(result, grids, request, requests[request].event, options, style);
    if (texts.insert(text).second) drawn[section_of[request]] = std::move(text);
  }
  return drawn;
}

}  // namespace lockstep::report
