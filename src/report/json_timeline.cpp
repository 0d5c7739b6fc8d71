// SPDX-License-Identifier: Apache-2.0
#include "lockstep/operation.h"
#include "src/diagnosis/small_replay.h"
#include "src/report/fault_marks.h"
#include "src/report/json_sections.h"
#include "src/report/parameter_history.h"
#include "src/report/rank_summary.h"
#include "src/report/text_report.h"

namespace lockstep::report {

namespace {

constexpr std::size_t most_timelines = 4, most_names_of_ranks = 12, most_text = 1 << 16;

/// Ascending numbers as half-open runs.
Intervals runs_of(const std::vector<int>& numbers) {
  Intervals runs;
  for (const int number : numbers) {
    if (!runs.empty() && runs.back().end == number) {
      ++runs.back().end;
    } else {
      runs.push_back({number, number + 1});
    }
  }
  return runs;
}

void write_grid(const RankSummary& summary, JsonWriter& json) {
  json.begin_object();
  json.key("rows").strings(summary.rows, true);
  json.key("columns").strings(summary.columns, true);
  json.key("folded").string_or_null(summary.folded);
  json.key("sampled").boolean(summary.sampled);
  json.key("cells").begin_array();
  for (const RankSummary::Cell& cell : summary.cells) {
    json.begin_object(true);
    json.key("ranks").intervals(runs_of(cell.ranks));
    json.key("wrong").intervals(runs_of(cell.wrong));
    json.key("holds").number(cell.holding);
    json.key("owned");
    if (cell.owned) {
      json.number(*cell.owned);
    } else {
      json.null();
    }
    json.end_object();
  }
  json.end_array();
  json.key("holdings").begin_array();
  for (const RankSummary::Holding& holding : summary.holdings) {
    json.begin_object(true);
    json.key("buffers").number(holding.buffers);
    json.key("elements").number(holding.elements);
    json.key("names");
    std::vector<std::string> names = holding.names;
    if (names.size() > most_names_of_ranks) names.resize(most_names_of_ranks);
    json.strings(names, true);
    json.key("names_left_out").number(holding.names.size() - names.size());
    json.end_object();
  }
  json.end_array();
  json.end_object();
}

void write_entry(const ParameterHistory::Entry& entry, JsonWriter& json) {
  json.begin_object(true);
  json.key("step").string(entry.step->name);
  json.key("op").string(operation(entry.step->op).name);
  json.key("micro_batch");
  if (entry.micro_batch < 0)
    json.null();
  else
    json.number(entry.micro_batch);
  json.key("buffer").string(entry.step->buffer);
  json.key("changed").boolean(entry.changed);
  json.key("groups").begin_array();
  for (const std::vector<int>& group : entry.groups) json.numbers(group);
  json.end_array();
  json.key("cells").begin_array();
  for (const ParameterHistory::Change& change : entry.changes) {
    json.begin_array(true);
    json.number(change.rank);
    json.number(change.range);
    json.number(change.formula);
    json.string(change.marks);
    json.end_array();
  }
  json.end_array();
  json.end_object();
}

void write_history(const ParameterHistory& history, JsonWriter& json) {
  json.begin_object();
  json.key("parameter").string(history.parameter);
  json.key("buffer_elements").number(history.elements);
  json.key("ranges").intervals(history.ranges);
  json.key("ranges_left_out").number(history.ranges_left_out);
  json.key("expected").strings(history.expected, true);
  json.key("rows").strings(history.plan.rows, true);
  json.key("columns").strings(history.plan.columns, true);
  json.key("blocks").begin_array();
  for (const GridPlan::Block& block : history.plan.blocks) {
    json.begin_object(true);
    json.key("title").string_or_null(block.title);
    json.key("ranks").begin_array();
    for (const std::vector<int>& row : block.ranks) json.numbers(row);
    json.end_array();
    json.end_object();
  }
  json.end_array();
  json.key("ranks_left_out").string_or_null(history.plan.omitted);
  json.key("ranks").numbers(history.ranks);
  json.key("formulas").strings(history.formulas, true);
  json.key("steps").begin_array();
  for (const ParameterHistory::Entry& entry : history.entries) write_entry(entry, json);
  json.end_array();
  json.key("steps_left_out").number(history.entries_left_out);
  json.end_object();
}

}  // namespace

void write_json_timeline(const CheckResult& result, JsonWriter& json) {
  const Scenario* scenario = result.scenario.get();
  const bool replayed = scenario != nullptr && scenario->schedule != nullptr;
  json.key("title").string_or_null(scenario == nullptr ? "" : scenario->title);
  json.key("summary").string_or_null(scenario == nullptr ? "" : layout_text(*scenario));
  json.key("text");
  const std::string* text = scenario_text(result);
  json.string_or_null(text == nullptr || text->size() > most_text ? "" : *text);
  json.key("marks").begin_array();
  for (const FaultMark& mark : fault_marks(result)) {
    json.begin_object(true);
    json.key("line").number(mark.line);
    json.key("last_line").number(mark.last_line);
    json.key("what").string(mark.what);
    json.end_object();
  }
  json.end_array();
  json.key("unmet").strings(
      scenario == nullptr || !scenario->expect ? std::vector<std::string>{} : unmet_expectations(result), true);
  json.key("grid");
  if (replayed) {
    write_grid(rank_summary(result), json);
  } else {
    json.null();
  }
  // Of a large layout no rank was replayed: its steps are shown at a small one.
  const std::optional<CheckResult> small = diagnosis::small_replay(result);
  json.key("timelines_at").string_or_null(small ? layout_text(*small->scenario) : "");
  json.key("timelines").begin_array();
  if (replayed) {
    for (const ParameterHistory& history : parameter_histories(small ? *small : result, most_timelines))
      write_history(history, json);
  }
  json.end_array();
}

}  // namespace lockstep::report
