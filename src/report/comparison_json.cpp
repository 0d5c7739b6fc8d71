// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comparison.h"
#include "lockstep/operation.h"
#include "lockstep/report.h"
#include "src/diagnosis/outcome_verdict.h"
#include "src/report/json_writer.h"

namespace lockstep {

namespace {

void side_json(JsonWriter& json, const ComparedSchedule& side) {
  json.begin_object();
  json.key("file");
  json.string(side.scenario->file);
  json.key("outcome");
  json.string(name_of(side.outcome));
  json.key("calls");
  json.number(side.communication.calls);
  json.key("bytes");
  json.number(side.communication.bytes);
  json.key("most_bytes_of_a_rank");
  json.number(side.communication.most_bytes_of_a_rank);
  json.end_object();
}

void step_json(JsonWriter& json, const StepCommunication* step) {
  if (step == nullptr) return json.null();
  json.begin_object(true);
  json.key("op");
  json.string(operation(step->step->op).name);
  json.key("reduce");
  json.string(step->step->reduction == Reduction::average ? "avg" : "sum");
  json.key("calls");
  json.number(step->calls);
  json.key("smallest_group");
  json.number(step->smallest_group);
  json.key("largest_group");
  json.number(step->largest_group);
  json.key("bytes");
  json.number(step->bytes);
  json.end_object();
}

void every_size_json(JsonWriter& json, const std::optional<EverySize>& every) {
  if (!every) return json.null();
  const SameProof& proof = every->proof;
  json.begin_object();
  json.key("verdict");
  json.string(proof.verdict == SameProof::Verdict::same    ? "same"
              : proof.verdict == SameProof::Verdict::other ? "other"
                                                           : "undecided");
  json.key("statement");
  json.string(proof.statement);
  json.key("open");
  json.begin_array(true);
  for (const Axis axis : proof.axes) json.string(name_of(axis));
  if (proof.micro_batches) json.string("micro_batches");
  json.end_array();
  json.key("parameters");
  json.begin_array();
  for (const std::string& name : proof.parameters) json.string(name);
  json.end_array();
  json.key("smallest");
  if (every->smallest) {
    json.begin_object();
    json.key("sizes");
    json.begin_object(true);
    for (const auto& [axis, size] : every->smallest->axes) {
      json.key(name_of(axis));
      json.number(size);
    }
    if (every->smallest->micro_batches) {
      json.key("micro_batches");
      json.number(*every->smallest->micro_batches);
    }
    json.end_object();
    json.key("parameter");
    json.string(every->difference.parameter);
    json.key("ranks");
    json.numbers(every->difference.ranks);
    json.key("old");
    json.string(every->difference.before);
    json.key("new");
    json.string(every->difference.after);
    json.end_object();
  } else {
    json.null();
  }
  json.key("refused");
  json.begin_array();
  for (const SameProof::RefusedBy& one : proof.refused) {
    json.begin_object();
    json.key("by");
    json.string(one.side);
    json.key("axis");
    json.string(name_of(one.refused.axis));
    json.key("size");
    json.number(one.refused.sizes.front());
    json.key("why");
    json.string(one.refused.why);
    json.end_object();
  }
  json.end_array();
  json.key("undecided");
  json.begin_array();
  for (const Proof::Limit& limit : proof.limits) {
    json.begin_object();
    json.key("sizes");
    json.string(limit.sizes);
    json.key("step");
    json.string_or_null(limit.step);
    json.key("why");
    json.string(limit.why);
    json.end_object();
  }
  json.end_array();
  json.end_object();
}

}  // namespace

void comparison_json(const ScheduleComparison& comparison, const Write& write) {
  JsonWriter json(write);
  json.begin_object();
  json.key("lockstep");
  json.number(1);
  json.key("same_gradients");
  comparison.apart.empty() ? json.boolean(comparison.same_gradients()) : json.null();
  json.key("apart");
  json.begin_array();
  for (const std::string& reason : comparison.apart) json.string(reason);
  json.end_array();
  json.key("old");
  side_json(json, comparison.before);
  json.key("new");
  side_json(json, comparison.after);
  json.key("every_size");
  every_size_json(json, comparison.every_size);
  json.key("step");
  json.number(comparison.step);
  json.key("plain");
  json.boolean(comparison.plain);
  json.key("gradients");
  json.begin_array();
  for (const GradientDifference& each : comparison.gradients) {
    json.begin_object();
    json.key("parameter");
    json.string(each.parameter);
    json.key("ranks");
    json.numbers(each.ranks);
    json.key("elements");
    json.interval(each.elements);
    json.key("old");
    json.string(each.before);
    json.key("new");
    json.string(each.after);
    json.end_object();
  }
  json.end_array();
  json.key("norms");
  json.begin_array();
  for (const NormDifference& each : comparison.norms) {
    json.begin_object(true);
    json.key("parameter");
    json.string_or_null(each.parameter);
    json.key("rank");
    json.number(each.rank);
    json.key("old");
    json.string(each.before);
    json.key("new");
    json.string(each.after);
    json.end_object();
  }
  json.end_array();
  json.key("ownership");
  json.begin_array();
  for (const OwnershipDifference& each : comparison.ownership) {
    json.begin_object();
    json.key("parameter");
    json.string(each.parameter);
    json.key("ranks");
    json.number(each.ranks);
    json.key("rank");
    json.number(each.rank);
    json.key("old");
    json.intervals(each.before);
    json.key("new");
    json.intervals(each.after);
    json.end_object();
  }
  json.end_array();
  json.key("steps");
  json.begin_array();
  for (const StepDifference& each : step_differences(comparison)) {
    json.begin_object();
    json.key("name");
    json.string((each.after != nullptr ? each.after : each.before)->step->name);
    json.key("moved");
    json.boolean(each.moved);
    json.key("old");
    step_json(json, each.before);
    json.key("new");
    step_json(json, each.after);
    json.end_object();
  }
  json.end_array();
  json.end_object();
  json.finish();
}

}  // namespace lockstep
