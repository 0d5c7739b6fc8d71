// SPDX-License-Identifier: Apache-2.0
#include "src/report/json_report.h"

#include <fmt/format.h>

#include <algorithm>

#include "lockstep/cuda.h"
#include "lockstep/numeric.h"
#include "src/base/at.h"
#include "src/report/blame_text.h"
#include "src/report/json_sections.h"
#include "src/report/transformer_report.h"

namespace lockstep::report {

namespace {

void write_engine(const EngineResult& engine, JsonWriter& json) {
  const std::string_view verdict = name_of(engine.verdict);
  const HostResult* numbers = engine.numbers.get();
  const RaceReplays* race = race_of(engine);
  const bool sampled = numbers != nullptr && numbers->sampled, raced = race != nullptr && race->replays > 0;
  json.key(engine.name);
  if (!sampled && !raced) return json.string(verdict);
  json.begin_object(true);
  json.key("verdict").string(verdict);
  if (sampled) {
    json.key("elements").number(numbers->elements);
    json.key("of").number(numbers->of);
  }
  if (raced) {
    json.key("replays").number(race->replays);
    json.key("different").number(race->different);
  }
  json.end_object();
}

void write_engines(const CheckResult& result, JsonWriter& json) {
  json.begin_object(true);
  for (const EngineResult& engine : result.engines) {
    if (engine.ran()) write_engine(engine, json);
  }
  json.end_object();
}

void write_norm(const CheckResult& result, JsonWriter& json) {
  json.begin_array();
  const SymbolicResult* exact = exact_of(result);
  if (exact != nullptr && result.verdict == Verdict::mismatch) {
    const std::vector<Parameter>& parameters = result.scenario->schedule->model.parameters();
    for (const NormResult& norm : exact->norm) {
      json.begin_object(true);
      json.key("parameter").string(parameters[at(norm.parameter)].name);
      json.key("rank").number(norm.rank);
      json.key("counted").string(norm.counted);
      json.key("expected").string(norm.expected);
      json.end_object();
    }
  }
  json.end_array();
}

void write_stuck(const CheckResult& result, JsonWriter& json) {
  json.begin_array();
  const bool structural = result.verdict == Verdict::deadlock || result.verdict == Verdict::invalid_collective ||
                          result.verdict == Verdict::race;
  if (structural && result.timeline != nullptr) {
    const Outcome& outcome = result.timeline->outcome;
    for (const Outcome::Stuck& stuck : outcome.stuck) {
      json.begin_object(true);
      json.key("rank").number(stuck.rank);
      json.key("waits_in").string(stuck.waits_in);
      json.key("for").numbers(stuck.for_ranks);
      json.end_object();
    }
    for (const Outcome::MemberCall& call : outcome.member_calls) {
      json.begin_object(true);
      json.key("rank").number(call.rank);
      json.key("calls").string(call.calls);
      json.key("with").numbers(call.with);
      json.key("brings").string(call.brings);
      json.end_object();
    }
    for (const Outcome::Race& race : outcome.races) {
      json.begin_object(true);
      json.key("rank").number(race.rank);
      json.key("step").string(race.step);
      json.key("touches").string(race.touches);
      json.key("in_flight").string(race.in_flight);
      json.end_object();
    }
  }
  json.end_array();
}

void write_errors(const CheckResult& result, JsonWriter& json) {
  json.begin_array();
  for (const Diagnostic& error : result.errors) {
    const LineColumn at = line_column(error.place);
    json.begin_object(true);
    json.key("line").number(at.line);
    json.key("column").number(at.column);
    json.key("pointer").string(error.place.pointer);
    if (error.place.source && error.place.source->name != result.file) {
      json.key("file");  // a framework or model file of the user's
      json.string(error.place.source->name);
    }
    json.key("message").string(error.message);
    json.end_object();
  }
  json.end_array();
}

void write_diagnosis(const CheckResult& result, JsonWriter& json) {
  json.begin_object();
  json.key("blame").begin_array();
  for (const Blame& blame : result.blame) {
    json.begin_object(true);
    json.key("step").string(blame.step);
    json.key("why").string(blame.why);
    json.end_object();
  }
  json.end_array();
  json.key("repairs").begin_array();
  for (const Repair& repair : result.repairs) write_json_repair(repair, json);
  json.end_array();
  if (!result.unnoticed.empty()) {
    json.key("unnoticed").strings(result.unnoticed);
  }
  json.end_object();
}

}  // namespace

void write_json_layout(const Layout& layout, JsonWriter& json) {
  json.begin_object(true);
  const auto axis = [&](Axis which, int size) {
    json.key(name_of(which));
    if (std::find(layout.any.begin(), layout.any.end(), which) != layout.any.end()) {
      json.string("any");
    } else {
      json.number(size);
    }
  };
  axis(Axis::tp, layout.tp);
  axis(Axis::cp, layout.cp);
  axis(Axis::sp, layout.sp);
  axis(Axis::dp, layout.dp);
  axis(Axis::dp_shard, layout.dp_shard);
  axis(Axis::dp_replicate, layout.dp_replicate);
  axis(Axis::pp, layout.pp);
  axis(Axis::ep, layout.ep);
  axis(Axis::etp, layout.etp);
  json.key("edp");
  if (layout.any.empty()) {
    json.number(layout.edp());
  } else {
    json.null();
  }
  json.key("world");
  if (layout.any.empty()) {
    json.number(layout.world());
  } else {
    json.null();
  }
  json.end_object();
}

void write_json_result(const CheckResult& result, bool all, JsonWriter& json, bool timeline) {
  const Scenario* scenario = result.scenario.get();
  json.begin_object();
  json.key("lockstep").number(1);
  json.key("scenario").string_or_null(scenario == nullptr ? "" : scenario->name);
  json.key("file").string_or_null(result.file);
  json.key("source").string_or_null(scenario == nullptr ? "" : scenario->source_reference);
  json.key("layout");
  if (scenario == nullptr) {
    json.null();
  } else {
    write_json_layout(scenario->layout, json);
  }
  json.key("verdict").string(name_of(result.verdict));
  json.key("step").number(result.step);
  json.key("engines");
  write_engines(result, json);
  json.key("expected");
  if (scenario == nullptr || !scenario->expect) {
    json.null();
  } else {
    json.boolean(unmet_expectations(result).empty());
  }
  json.key("parameters");
  write_json_parameters(result, all, json);
  json.key("norm");
  write_norm(result, json);
  const SymbolicResult* symbolic = symbolic_of(result);
  if (symbolic != nullptr && result.verdict == Verdict::mismatch && symbolic->norm_squared_factor) {
    json.key("norm_squared_factor").string(std::to_string(*symbolic->norm_squared_factor));
  }
  if (transformer_of(result) != nullptr) {
    json.key("transformer");
    write_json_transformer(result, json);
  }
  json.key("stuck");
  write_stuck(result, json);
  json.key("errors");
  write_errors(result, json);
  json.key("diagnosis");
  write_diagnosis(result, json);
  json.key("time").begin_object(true);
  for (const EngineResult& engine : result.engines) {
    if (engine.ran()) json.key(fmt::format("{}_s", engine.name)).seconds(engine.seconds);
  }
  json.end_object();
  std::vector<std::string> notes = result.notes;
  if (const HostResult* numbers = numbers_of(result); numbers != nullptr)
    notes.insert(notes.end(), numbers->notes.begin(), numbers->notes.end());
  for (const EngineResult& engine : result.engines) {
    if (!engine.ran()) notes.push_back(engine.left_out);
  }
  if (!notes.empty()) {
    json.key("notes").strings(notes);
  }
  if (!result.disagreement.empty()) {
    json.key("disagreement").string(result.disagreement);
  }
  if (timeline) write_json_timeline(result, json);
  json.end_object();
}

void JsonReporter::add(const CheckResult& result) {
  if (options_.several && !open_) json_.begin_array();
  open_ = true;
  write_json_result(result, options_.all, json_, options_.timeline);
}

void JsonReporter::finish() {
  if (options_.several) {
    if (!open_) json_.begin_array();
    json_.end_array();
  }
  json_.finish();
}

}  // namespace lockstep::report
