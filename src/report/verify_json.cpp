// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cmath>

#include "lockstep/report.h"
#include "src/base/at.h"
#include "src/report/json_report.h"
#include "src/report/run_words.h"

namespace lockstep {

namespace {

void real(report::JsonWriter& json, const char* key, double value) {
  json.key(key);
  std::isfinite(value) ? json.value(Json::number(fmt::format("{:.17g}", value))) : json.null();
}

void piece_json(report::JsonWriter& json, const VerifyResult& result, const VerifiedPiece& piece) {
  const VerifiedParameter& parameter = result.parameters[at(piece.parameter)];
  json.begin_object();
  json.key("step").number(piece.step);
  json.key("parameter").string(parameter.name);
  json.key("piece").number(piece.piece);
  json.key("elements").string_or_null(parameter.pieces[at(piece.piece)]);
  json.key("ranks").numbers(piece.ranks);
  json.key("verdict").string(name_of(piece.verdict));
  json.key("formula").string_or_null(piece.formula);
  json.key("expected").string_or_null(piece.expected);
  json.key("difference").string_or_null(piece.difference);
  json.key("why").string_or_null(piece.why);
  json.key("finding");
  piece.finding < 0 ? json.null() : json.number(piece.finding);
  real(json, "unexplained", piece.unexplained);
  real(json, "noise", piece.noise);
  json.key("from_others").boolean(piece.from_others);
  json.key("coefficients").begin_array();
  for (const RecoveredCoefficient& one : piece.coefficients) {
    json.begin_object(true);
    json.key("rank").number(one.rank);
    json.key("step").number(one.step);
    json.key("micro_batch").number(one.micro_batch);
    json.key("alike").numbers(one.alike);
    real(json, "value", one.value);
    real(json, "error", one.error);
    json.key("exact").string_or_null(one.exact ? one.exact->to_string() : "");
    json.key("expected").string_or_null(one.expected ? one.expected->to_string() : "");
    json.end_object();
  }
  json.end_array();
  json.end_object();
}

void reference_json(report::JsonWriter& json, const VerifyResult& result) {
  json.key("reference");
  if (!result.reference) return json.null();
  const VerifiedReference& reference = *result.reference;
  json.begin_object();
  json.key("run").string(reference.run);
  json.key("loss").string_or_null(reference.loss ? name_of(*reference.loss) : "");
  json.key("step");
  reference.step ? json.number(*reference.step) : json.null();
  json.key("micro_batches").number(reference.micro_batches);
  json.key("parameters").begin_array();
  for (const ReferencedParameter& one : reference.parameters) {
    json.begin_object();
    json.key("parameter").string(result.parameters[at(one.parameter)].name);
    json.key("contributions").string(name_of(one.contributions));
    json.key("result").string(name_of(one.result));
    json.key("what").string_or_null(one.what);
    json.key("part").string_or_null(one.part ? one.part->to_string() : "");
    json.key("formula").string_or_null(one.formula);
    real(json, "difference", one.difference);
    real(json, "roundings", one.roundings);
    real(json, "result_roundings", one.result_roundings);
    json.key("dtype").string(one.dtype);
    json.end_object();
  }
  json.end_array();
  json.end_object();
}

}  // namespace

namespace report {

void write_json_run(const VerifyResult& result, JsonWriter& json) {
  json.begin_object();
  json.key("lockstep").number(1);
  json.key("run").string(result.run);
  json.key("verdict").string(verdict_word(result.verdict()));
  json.key("complete").boolean(result.gaps.empty());
  json.key("world").number(result.world);
  json.key("mesh").begin_object(true);
  for (const auto& [axis, size] : result.axes) json.key(axis).number(size);
  json.end_object();
  json.key("ranks").numbers(result.ranks);
  json.key("adapter").string_or_null(result.adapter);
  json.key("versions").begin_object(true);
  for (const auto& [name, version] : result.versions) json.key(name).string(version);
  json.end_object();
  json.key("loss").string_or_null(result.loss ? name_of(*result.loss) : "");
  if (result.played) {
    json.key("played").numbers(*result.played);
  } else {
    json.key("sums").number(result.sums);
    json.key("one_of").number(result.one_of);
  }
  json.key("steps").numbers(result.steps);
  json.key("micro_batches").number(result.micro_batches);
  std::vector<std::string> collectives;
  collectives.reserve(result.collectives.size());
  for (const VerifiedCollective& one : result.collectives) collectives.push_back(one.what);
  json.key("collectives").strings(collectives);
  json.key("gaps").strings(result.gaps);
  json.key("notes").strings(result.notes);
  reference_json(json, result);
  json.key("counts").begin_object(true);
  for (const VerifiedPiece::Verdict verdict :
       {VerifiedPiece::Verdict::right, VerifiedPiece::Verdict::wrong, VerifiedPiece::Verdict::undecided}) {
    json.key(name_of(verdict)).number(result.count(verdict));
  }
  json.end_object();
  json.key("findings").begin_array();
  for (const VerifyFinding& finding : result.findings) {
    json.begin_object();
    json.key("verdict").string(name_of(finding.verdict));
    json.key("what").string(finding.what);
    json.key("parameters").begin_array();
    for (const int parameter : finding.parameters) json.string(result.parameters[at(parameter)].name);
    json.end_array();
    json.key("ranks").numbers(finding.ranks);
    json.key("steps").numbers(finding.steps);
    json.key("results").number(finding.pieces);
    json.key("first").number(finding.first);
    json.end_object();
  }
  json.end_array();
  json.key("blame").begin_array();
  for (const StepAtFault& one : result.blame) {
    json.begin_object();
    json.key("step").string(one.step);
    json.key("why").string(one.why);
    json.end_object();
  }
  json.end_array();
  json.key("repair").begin_array();
  for (const Edit& edit : result.repair) json.value(to_json(edit), true);
  json.end_array();
  json.key("not_blamed").string_or_null(result.not_blamed);
  json.key("results").begin_array();
  for (const VerifiedPiece& piece : result.pieces) piece_json(json, result, piece);
  json.end_array();
  json.end_object();
}

}  // namespace report

void verify_json(const VerifyResult& result, const Write& write) {
  report::JsonWriter json(write);
  report::write_json_run(result, json);
  json.finish();
}

}  // namespace lockstep
