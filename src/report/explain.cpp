// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <functional>
#include <numeric>

#include "lockstep/report.h"
#include "src/report/element_ranges.h"
#include "src/report/elide.h"
#include "src/report/findings.h"
#include "src/report/json_writer.h"
#include "src/report/parameter_grid.h"
#include "src/report/text_report.h"

namespace lockstep {

namespace {

[[noreturn]] void fail(std::string message) { throw InputError({Diagnostic{{}, std::move(message)}}); }

/// A buffer that goes by the parameter's name.
GridRequest request_for(const CheckResult& result, int parameter) {
  const Schedule& schedule = *result.scenario->schedule;
  const int logical = schedule.model.logical_of(parameter);
  for (int rank = 0; rank < schedule.mesh.world(); ++rank) {
    const int buffer = schedule.model.buffer_of(rank, logical);
    if (buffer < 0) continue;
    const LocalBuffer& local = schedule.model.local(rank).buffers[static_cast<std::size_t>(buffer)];
    const bool named = std::find(local.parameters.begin(), local.parameters.end(), parameter) != local.parameters.end();
    if (named && local.numel > 0) return {rank, buffer, {0, local.numel}, std::nullopt};
  }
  fail(fmt::format("no rank holds a gradient of {}: it is frozen or empty",
                   schedule.model.parameters()[static_cast<std::size_t>(parameter)].name));
}

/// The first wrong piece of the parameter, if there is one: that is what its reader looks for.
GridRequest wrong_request(const ParameterFinding& finding, GridRequest otherwise) {
  for (const RankGroup& group : finding.groups) {
    if (group.symbolic == nullptr) continue;
    for (const PieceResult& piece : group.symbolic->pieces) {
      if (!piece.right) return {group.ranks.front(), group.buffer, piece.elements, std::nullopt};
    }
  }
  return otherwise;
}

/// The parameters that a name or a selector means: one, or all that it fits.
std::vector<int> parameters_named(const Model& model, const std::string& name) {
  std::vector<std::string> names;
  std::vector<int> fitting;
  const bool readable = !Selectors::check(name);
  const Selectors selectors(std::vector<std::string>{name});
  for (std::size_t index = 0; index < model.parameters().size(); ++index) {
    const Parameter& parameter = model.parameters()[index];
    if (parameter.name == name) return {static_cast<int>(index)};
    if (readable && selectors.chooses(parameter, std::accumulate(parameter.shape.begin(), parameter.shape.end(),
                                                                 std::int64_t{1}, std::multiplies<>())))
      fitting.push_back(static_cast<int>(index));
    names.push_back(parameter.name);
  }
  if (!fitting.empty()) return fitting;
  const std::string near = did_you_mean(name, names);
  fail(fmt::format("the scenario has no parameter \"{}\"{}", name,
                   near.empty() ? "; `lockstep show` lists them, and a glob or tag:NAME is taken too" : near));
}

/// "STEP" or "STEP[N]", N a micro-batch, from the end where it is negative; also first and last.
struct StepChoice {
  std::string name;
  std::optional<int> micro_batch;

  bool takes(const Snapshot& snapshot) const {
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
    fail(fmt::format("expected STEP or STEP[MICRO_BATCH] with a micro-batch below {}, first or last, found \"{}\"",
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
    fail(fmt::format("the schedule has no step \"{}\"{}", name, did_you_mean(name, names)));
  }
}

/// What is explained: the parameter asked for, else the first wrong one, else the first that
/// someone holds.
struct Subject {
  int parameter = 0;
  GridRequest request;
};

Subject subject_of(const CheckResult& result, const ExplainOptions& options) {
  const Model& model = result.scenario->schedule->model;
  const std::vector<ParameterFinding> wrong = collect_findings(result, false);
  if (!options.parameter.empty()) {
    const std::vector<int> parameters = parameters_named(model, options.parameter);
    for (const ParameterFinding& finding : wrong) {
      if (std::find(parameters.begin(), parameters.end(), finding.parameter) == parameters.end()) continue;
      return {finding.parameter, wrong_request(finding, request_for(result, finding.parameter))};
    }
    return {parameters.front(), request_for(result, parameters.front())};
  }
  for (const ParameterFinding& finding : wrong) {
    const GridRequest request = request_for(result, finding.parameter);
    return {finding.parameter, wrong_request(finding, request)};
  }
  for (std::size_t index = 0; index < model.parameters().size(); ++index) {
    if (!model.parameters()[index].frozen)
      return {static_cast<int>(index), request_for(result, static_cast<int>(index))};
  }
  fail("every parameter of the scenario is frozen: there is no gradient to explain");
}

constexpr std::size_t most_ranges = 4;

/// A request per range, by a rank that holds it: the subject's own where that does.
std::vector<GridRequest> requests_for(const CheckResult& result, const Subject& subject,
                                      const std::vector<Interval>& ranges) {
  const Model& model = result.scenario->schedule->model;
  const int logical = model.logical_of(subject.parameter);
  const auto holds = [&](int rank, std::int64_t element) {
    const int buffer = model.buffer_of(rank, logical);
    return buffer >= 0 && model.local(rank).buffers[static_cast<std::size_t>(buffer)].numel > element;
  };
  std::vector<GridRequest> requests;
  for (const Interval& range : ranges) {
    int rank = subject.request.rank;
    for (int other = 0; !holds(rank, range.begin); ++other) rank = other;
    requests.push_back({rank, model.buffer_of(rank, logical), range, std::nullopt});
  }
  return requests;
}

/// The first ranges, and in any case the one with the element that the reader looks for.
void keep_telling(std::vector<GridRequest>& requests, std::int64_t element) {
  if (requests.size() <= most_ranges) return;
  const auto wanted = std::find_if(requests.begin(), requests.end(), [&](const GridRequest& request) {
    return request.elements.begin <= element && element < request.elements.end;
  });
  if (wanted - requests.begin() >= static_cast<std::ptrdiff_t>(most_ranges)) requests[most_ranges - 1] = *wanted;
  requests.resize(most_ranges);
}

/// Which marks the tables carried, as one cell.
struct Marks {
  bool any = false;
  GridCell cell;

  void add(const Snapshot& snapshot) {
    any = true;
    for (const auto& block : snapshot.cells) {
      for (const auto& row : block) {
        for (const GridCell& other : row) {
          cell.stale = cell.stale || other.stale;
          cell.owner = cell.owner || other.owner;
          cell.wrong = cell.wrong || other.wrong;
        }
      }
    }
  }
};

/// Of many micro-batches the first two and the last tell the story.
bool in_the_middle(const Snapshot& snapshot, int micro_batches) {
  return micro_batches > 4 && snapshot.micro_batch >= 2 && snapshot.micro_batch < micro_batches - 1;
}

void write_tables(const CheckResult& result, const ExplainOptions& options, const StepChoice& step,
                  ParameterGrids& grids, std::size_t request, const Style& style, const Write& write, Marks& marks) {
  const Schedule& schedule = *result.scenario->schedule;
  const int micro_batches = schedule.batch.micro_batches(result.step);
  const bool every = options.all || options.verbose || step.micro_batch;
  bool left_out = false;
  for (Snapshot& snapshot : grids.snapshots(request)) {
    if (!step.takes(snapshot)) continue;
    if (!every && in_the_middle(snapshot, micro_batches)) {
      if (!left_out) {
        write(fmt::format("\n… micro-batches 2 to {}; --all or -v shows them\n", micro_batches - 2));
      }
      left_out = true;
      continue;
    }
    const std::string title = snapshot_title(schedule, snapshot);
    if (!snapshot.changed && options.step.empty()) {
      write(fmt::format("\n{}: unchanged\n", title));
      continue;
    }
    grids.fill(request, snapshot);
    write("\n" + draw_grid(style.bold(title), grids.plan(request), snapshot.cells, style));
    marks.add(snapshot);
    snapshot.cells.clear();
  }
}

}  // namespace

void explain_text(const CheckResult& result, const ExplainOptions& options, const Write& write) {
  const Schedule& schedule = *result.scenario->schedule;
  const Style style(options.color);
  const StepChoice step = step_choice(options.step, schedule.batch.micro_batches(result.step));
  if (!step.name.empty()) check_step(schedule.steps, step.name);
  const Subject subject = subject_of(result, options);
  const std::vector<Interval> ranges = element_ranges(result, schedule.model.logical_of(subject.parameter));
  std::vector<GridRequest> requests = requests_for(result, subject, ranges);
  const bool every = options.all || options.verbose;
  if (!every) keep_telling(requests, subject.request.elements.begin);
  ParameterGrids grids(result, requests, options.verbose ? 64 : 8, options.verbose ? unlimited_width : widest_cell);
  write(verdict_line(result, style));
  write(fmt::format("  {}\n  {}, elements {}", layout_text(*result.scenario),
                    style.bold(schedule.model.parameters()[static_cast<std::size_t>(subject.parameter)].name),
                    interval_text({ranges.front().begin, ranges.back().end})));
  write(ranges.size() == 1 ? "\n" : fmt::format(", cut into {} ranges\n", ranges.size()));
  Marks marks;
  for (std::size_t request = 0; request < requests.size(); ++request) {
    if (ranges.size() > 1) write("\n" + style.bold("elements " + interval_text(requests[request].elements)) + "\n");
    write_tables(result, options, step, grids, request, style, write, marks);
  }
  if (ranges.size() > requests.size()) {
    const std::size_t more = ranges.size() - requests.size();
    write(fmt::format("\n… {} more {}; --all or -v shows them\n", more, more == 1 ? "range" : "ranges"));
  }
  if (!marks.any)
    write("\nno step of this schedule acts on it" + std::string(options.step.empty() ? "" : " in that step") + "\n");
  const std::string legend = grid_legend({marks.cell});
  if (!legend.empty()) write("\n" + style.faint(legend) + "\n");
  if (!grids.plan(0).omitted.empty()) write(style.faint("not shown: " + grids.plan(0).omitted) + "\n");
  ReportOptions report;
  report.verbose = options.verbose;
  const std::string outcome = outcome_text(result, report);
  if (!outcome.empty()) write("\n" + outcome);
  const std::string norm = norm_text(result, report);
  if (!norm.empty()) write("\n" + norm);
}

void explain_json(const CheckResult& result, const ExplainOptions& options, const Write& write) {
  const Schedule& schedule = *result.scenario->schedule;
  const StepChoice step = step_choice(options.step, schedule.batch.micro_batches(result.step));
  if (!step.name.empty()) check_step(schedule.steps, step.name);
  const Subject subject = subject_of(result, options);
  // Machines get every rank.
  ParameterGrids grids(result, {subject.request}, static_cast<std::size_t>(-1));
  JsonWriter json(write);
  json.begin_object();
  json.key("lockstep");
  json.number(1);
  json.key("scenario");
  json.string_or_null(result.scenario->name);
  json.key("file");
  json.string_or_null(result.file);
  json.key("verdict");
  json.string(name_of(result.verdict));
  json.key("parameter");
  json.string(schedule.model.parameters()[static_cast<std::size_t>(subject.parameter)].name);
  std::vector<Snapshot> snapshots = grids.snapshots(0);
  json.key("elements");
  json.interval(grids.elements(0));
  json.key("steps");
  json.begin_array();
  for (Snapshot& snapshot : snapshots) {
    if (!step.takes(snapshot)) continue;
    grids.fill(0, snapshot);
    json.begin_object();
    json.key("after");
    json.string(snapshot.step->name);
    json.key("micro_batch");
    if (snapshot.micro_batch < 0)
      json.null();
    else
      json.number(snapshot.micro_batch);
    json.key("buffer");
    json.string(snapshot.step->buffer);
    json.key("changed");
    json.boolean(snapshot.changed);
    json.key("ranks");
    json.begin_array();
    for (std::size_t block = 0; block < snapshot.cells.size(); ++block) {
      for (std::size_t row = 0; row < snapshot.cells[block].size(); ++row) {
        for (std::size_t column = 0; column < snapshot.cells[block][row].size(); ++column) {
          const GridCell& cell = snapshot.cells[block][row][column];
          if (!cell.held) continue;
          json.begin_object(true);
          json.key("rank");
          json.number(grids.plan(0).blocks[block].ranks[row][column]);
          json.key("formula");
          json.string(cell.formula);
          json.key("stale");
          json.boolean(cell.stale);
          json.key("owner");
          json.boolean(cell.owner);
          json.key("wrong");
          json.boolean(cell.wrong);
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
