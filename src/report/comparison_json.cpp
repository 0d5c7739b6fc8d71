// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comparison.h"
#include "lockstep/operation.h"
#include "lockstep/report.h"
#include "src/diagnosis/outcome_verdict.h"
#include "src/report/differing_gradients.h"
#include "src/report/json_writer.h"
#include "src/report/text_report.h"

namespace lockstep {

namespace {

void side_json(report::JsonWriter& json, const ComparedSchedule& side) {
  json.begin_object();
  json.key("file").string(side.scenario->file + report::changes_text(*side.scenario));
  json.key("outcome").string(diagnosis::name_of(side.outcome));
  json.key("calls").number(side.communication.calls);
  json.key("bytes").number(side.communication.bytes);
  json.key("most_bytes_of_a_rank").number(side.communication.most_bytes_of_a_rank);
  json.end_object();
}

void step_json(report::JsonWriter& json, const StepCommunication* step) {
  if (step == nullptr) return json.null();
  json.begin_object(true);
  json.key("op").string(operation(step->step->op).name);
  json.key("reduce").string(step->step->reduction == Reduction::average ? "avg" : "sum");
  json.key("calls").number(step->calls);
  json.key("smallest_group").number(step->smallest_group);
  json.key("largest_group").number(step->largest_group);
  json.key("bytes").number(step->bytes);
  json.end_object();
}

void every_size_json(report::JsonWriter& json, const std::optional<EverySize>& every) {
  if (!every) return json.null();
  const SameProof& proof = every->proof;
  json.begin_object();
  json.key("verdict").string(proof.verdict == SameProof::Verdict::same    ? "same"
                             : proof.verdict == SameProof::Verdict::other ? "other"
                                                                          : "undecided");
  json.key("statement").string(proof.statement);
  json.key("open").begin_array(true);
  for (const Axis axis : proof.axes) json.string(name_of(axis));
  if (proof.micro_batches) json.string("micro_batches");
  json.end_array();
  json.key("parameters").strings(proof.parameters);
  json.key("smallest");
  if (every->smallest) {
    json.begin_object();
    json.key("sizes").begin_object(true);
    for (const auto& [axis, size] : every->smallest->axes) {
      json.key(name_of(axis)).number(size);
    }
    if (every->smallest->micro_batches) {
      json.key("micro_batches").number(*every->smallest->micro_batches);
    }
    json.end_object();
    json.key("parameter").string(every->difference.parameter);
    report::differing_elements(every->difference.where.front(), false, json);
    json.key("old").string(every->difference.before);
    json.key("new").string(every->difference.after);
    json.end_object();
  } else {
    json.null();
  }
  json.key("refused").begin_array();
  for (const SameProof::RefusedBy& one : proof.refused) {
    json.begin_object();
    json.key("by").string(one.side);
    json.key("axis").string(name_of(one.refused.axis));
    json.key("size").number(one.refused.sizes.front());
    json.key("why").string(one.refused.why);
    json.end_object();
  }
  json.end_array();
  json.key("undecided").begin_array();
  for (const Proof::Limit& limit : proof.limits) {
    json.begin_object();
    json.key("sizes").string(limit.sizes);
    json.key("step").string_or_null(limit.step);
    json.key("why").string(limit.why);
    json.end_object();
  }
  json.end_array();
  json.end_object();
}

}  // namespace

void comparison_json(const ScheduleComparison& comparison, const Write& write) {
  report::JsonWriter json(write);
  json.begin_object();
  json.key("lockstep").number(1);
  json.key("same_gradients");
  comparison.apart.empty() ? json.boolean(comparison.same_gradients()) : json.null();
  json.key("apart").strings(comparison.apart);
  json.key("old");
  side_json(json, comparison.before);
  json.key("new");
  side_json(json, comparison.after);
  json.key("every_size");
  every_size_json(json, comparison.every_size);
  json.key("step").number(comparison.step);
  json.key("plain").boolean(comparison.plain);
  report::differing_gradients(comparison.gradients, json);
  json.key("norms").begin_array();
  for (const NormDifference& each : comparison.norms) {
    json.begin_object(true);
    json.key("parameter").string_or_null(each.parameter);
    json.key("rank").number(each.rank);
    json.key("old").string(each.before);
    json.key("new").string(each.after);
    json.end_object();
  }
  json.end_array();
  json.key("ownership").begin_array();
  for (const OwnershipDifference& each : comparison.ownership) {
    json.begin_object();
    json.key("parameter").string(each.parameter);
    json.key("ranks").number(each.ranks);
    json.key("rank").number(each.rank);
    json.key("old").intervals(each.before);
    json.key("new").intervals(each.after);
    json.end_object();
  }
  json.end_array();
  json.key("steps").begin_array();
  for (const StepDifference& each : step_differences(comparison)) {
    json.begin_object();
    json.key("name").string((each.after != nullptr ? each.after : each.before)->step->name);
    json.key("moved").boolean(each.moved);
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
