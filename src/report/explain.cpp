// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <functional>
#include <numeric>

#include "lockstep/report.h"
#include "src/base/at.h"
#include "src/base/counted.h"
#include "src/base/refuse.h"
#include "src/report/element_ranges.h"
#include "src/report/elide.h"
#include "src/report/findings.h"
#include "src/report/json_writer.h"
#include "src/report/parameter_grid.h"
#include "src/report/subject.h"
#include "src/report/text_report.h"

namespace lockstep {

namespace {

/// "STEP" or "STEP[N]", N a micro-batch, from the end where it is negative; also first and last.
struct StepChoice {
  std::string name;
  std::optional<int> micro_batch;

  bool takes(const report::Snapshot& snapshot) const {
    return (name.empty() || snapshot.step->name == name) && (!micro_batch || *micro_batch == snapshot.micro_batch);
  }
};

StepChoice step_choice(const std::string& text, int micro_batches) {
  const std::size_t open = text.find('[');
  if (open == std::string::npos) return {text, std::nullopt};
  const std::string index = text.substr(open + 1, text.size() - open - 2);
  int number = index == "last" ? -1 : 0;
  const bool named = index == "first" || index == "last";
  const auto [end, error] = std::from_chars(index.data(), index.data() + index.size(), number);
  const bool whole = named || (error == std::errc() && end == index.data() + index.size());
  if (number < 0) number += micro_batches;
  if (text.back() != ']' || !whole || number < 0 || number >= micro_batches) {
    refuse(fmt::format("expected STEP or STEP[MICRO_BATCH] with a micro-batch below {}, first or last, found \"{}\"",
                       micro_batches, text));
  }
  return {text.substr(0, open), number};
}

void check_step(const std::vector<Step>& steps, const std::string& name) {
  std::vector<std::string> names;
  const auto collect = [&](const auto& self, const std::vector<Step>& list) -> void {
    for (const Step& step : list) {
      names.push_back(step.name);
      self(self, step.steps);
    }
  };
  collect(collect, steps);
  if (std::find(names.begin(), names.end(), name) == names.end()) {
    refuse(fmt::format("the schedule has no step \"{}\"{}", name, did_you_mean(name, names)));
  }
}

/// Which marks the tables carried, as one cell.
struct Marks {
  bool any = false;
  report::GridCell cell;

  void add(const report::Snapshot& snapshot) {
    any = true;
    for (const auto& block : snapshot.cells) {
      for (const auto& row : block) {
        for (const report::GridCell& other : row) {
          cell.stale = cell.stale || other.stale;
          cell.owner = cell.owner || other.owner;
          cell.wrong = cell.wrong || other.wrong;
        }
      }
    }
  }
};

void write_tables(const CheckResult& result, const ExplainOptions& options, const StepChoice& step,
                  report::ParameterGrids& grids, std::size_t request, const report::Style& style, const Write& write,
                  Marks& marks) {
  const Schedule& schedule = *result.scenario->schedule;
  const int micro_batches = schedule.batch.micro_batches(result.step);
  const bool every = options.all || options.verbose || step.micro_batch;
  bool left_out = false;
  for (report::Snapshot& snapshot : grids.snapshots(request)) {
    if (!step.takes(snapshot)) continue;
    if (!every && report::in_the_middle(snapshot, micro_batches)) {
      if (!left_out) {
        write(fmt::format("\n… micro-batches 2 to {}; --all or -v shows them\n", micro_batches - 2));
      }
      left_out = true;
      continue;
    }
    const std::string title = report::snapshot_title(schedule, snapshot);
    if (!snapshot.changed && options.step.empty()) {
      write(fmt::format("\n{}: unchanged\n", title));
      continue;
    }
    grids.fill(request, snapshot);
    write("\n" + report::draw_grid(style.bold(title), grids.plan(request), snapshot.cells, style,
                                   options.verbose ? report::unlimited_width : report::page_width));
    marks.add(snapshot);
    snapshot.cells.clear();
  }
}

}  // namespace

void explain_text(const CheckResult& result, const ExplainOptions& options, const Write& write) {
  const Schedule& schedule = *result.scenario->schedule;
  const report::Style style(options.color);
  const StepChoice step = step_choice(options.step, schedule.batch.micro_batches(result.step));
  if (!step.name.empty()) check_step(schedule.steps, step.name);
  const report::Subject subject = report::subject_of(result, options.parameter);
  const std::vector<Interval> ranges = report::element_ranges(result, schedule.model.logical_of(subject.parameter));
  std::vector<report::GridRequest> requests = report::requests_for(result, subject, ranges);
  const bool every = options.all || options.verbose;
  if (!every) report::keep_telling(requests, subject.request.elements.begin);
  report::ParameterGrids grids(result, requests, options.verbose ? 64 : 8,
                               options.verbose ? report::unlimited_width : report::widest_cell);
  write(report::verdict_line(result, style));
  write(fmt::format("  {}\n  {}, elements {}", report::layout_text(*result.scenario),
                    style.bold(schedule.model.parameters()[at(subject.parameter)].name),
                    report::interval_text({ranges.front().begin, ranges.back().end})));
  write(ranges.size() == 1 ? "\n" : fmt::format(", cut into {} ranges\n", ranges.size()));
  Marks marks;
  for (std::size_t request = 0; request < requests.size(); ++request) {
    if (ranges.size() > 1)
      write("\n" + style.bold("elements " + report::interval_text(requests[request].elements)) + "\n");
    write_tables(result, options, step, grids, request, style, write, marks);
  }
  if (ranges.size() > requests.size()) {
    const std::size_t more = ranges.size() - requests.size();
    write(fmt::format("\n… {}; --all or -v shows {}\n", counted(more, "more range"), more == 1 ? "it" : "them"));
  }
  if (!marks.any)
    write("\nno step of this schedule acts on it" + std::string(options.step.empty() ? "" : " in that step") + "\n");
  const std::string legend = report::grid_legend({marks.cell});
  if (!legend.empty()) write("\n" + style.faint(legend) + "\n");
  if (!grids.plan(0).omitted.empty()) write(style.faint("not shown: " + grids.plan(0).omitted) + "\n");
  ReportOptions report;
  report.verbose = options.verbose;
  const std::string outcome = report::outcome_text(result, report);
  if (!outcome.empty()) write("\n" + outcome);
  const std::string norm = report::norm_text(result, report);
  if (!norm.empty()) write("\n" + norm);
}

void explain_json(const CheckResult& result, const ExplainOptions& options, const Write& write) {
  const Schedule& schedule = *result.scenario->schedule;
  const StepChoice step = step_choice(options.step, schedule.batch.micro_batches(result.step));
  if (!step.name.empty()) check_step(schedule.steps, step.name);
  const report::Subject subject = report::subject_of(result, options.parameter);
  // Machines get every rank.
  report::ParameterGrids grids(result, {subject.request}, static_cast<std::size_t>(-1));
  report::JsonWriter json(write);
  json.begin_object();
  json.key("lockstep").number(1);
  json.key("scenario").string_or_null(result.scenario->name);
  json.key("file").string_or_null(result.file);
  json.key("verdict").string(name_of(result.verdict));
  json.key("parameter").string(schedule.model.parameters()[at(subject.parameter)].name);
  std::vector<report::Snapshot> snapshots = grids.snapshots(0);
  json.key("elements").interval(grids.elements(0));
  json.key("steps").begin_array();
  for (report::Snapshot& snapshot : snapshots) {
    if (!step.takes(snapshot)) continue;
    grids.fill(0, snapshot);
    json.begin_object();
    json.key("after").string(snapshot.step->name);
    json.key("micro_batch");
    if (snapshot.micro_batch < 0)
      json.null();
    else
      json.number(snapshot.micro_batch);
    json.key("buffer").string(snapshot.step->buffer);
    json.key("changed").boolean(snapshot.changed);
    json.key("ranks").begin_array();
    for (std::size_t block = 0; block < snapshot.cells.size(); ++block) {
      for (std::size_t row = 0; row < snapshot.cells[block].size(); ++row) {
        for (std::size_t column = 0; column < snapshot.cells[block][row].size(); ++column) {
          const report::GridCell& cell = snapshot.cells[block][row][column];
          if (!cell.held) continue;
          json.begin_object(true);
          json.key("rank").number(grids.plan(0).blocks[block].ranks[row][column]);
          json.key("formula").string(cell.formula);
          json.key("stale").boolean(cell.stale);
          json.key("owner").boolean(cell.owner);
          json.key("wrong").boolean(cell.wrong);
          json.end_object();
        }
      }
    }
    json.end_array();
    json.end_object();
    snapshot.cells.clear();
  }
  json.end_array();
  json.end_object();
  json.finish();
}

}  // namespace lockstep
