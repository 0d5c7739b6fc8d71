// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cmath>

#include "lockstep/report.h"
#include "src/base/at.h"
#include "src/report/json_report.h"
#include "src/report/run_words.h"

namespace lockstep {

namespace {

void text(JsonWriter& json, const char* key, std::string_view value) {
  json.key(key);
  json.string(value);
}

void text_or_null(JsonWriter& json, const char* key, std::string_view value) {
  json.key(key);
  json.string_or_null(value);
}

void number(JsonWriter& json, const char* key, std::int64_t value) {
  json.key(key);
  json.number(value);
}

void real(JsonWriter& json, const char* key, double value) {
  json.key(key);
  std::isfinite(value) ? json.value(Json::number(fmt::format("{:.17g}", value))) : json.null();
}

void numbers(JsonWriter& json, const char* key, const std::vector<int>& values) {
  json.key(key);
  json.numbers(values);
}

void piece_json(JsonWriter& json, const VerifyResult& result, const VerifiedPiece& piece) {
  const VerifiedParameter& parameter = result.parameters[at(piece.parameter)];
  json.begin_object();
  number(json, "step", piece.step);
  text(json, "parameter", parameter.name);
  number(json, "piece", piece.piece);
  text_or_null(json, "elements", parameter.pieces[at(piece.piece)]);
  numbers(json, "ranks", piece.ranks);
  text(json, "verdict", name_of(piece.verdict));
  text_or_null(json, "formula", piece.formula);
  text_or_null(json, "expected", piece.expected);
  text_or_null(json, "difference", piece.difference);
  text_or_null(json, "why", piece.why);
  json.key("finding");
  piece.finding < 0 ? json.null() : json.number(piece.finding);
  real(json, "unexplained", piece.unexplained);
  real(json, "noise", piece.noise);
  json.key("from_others");
  json.boolean(piece.from_others);
  json.key("coefficients");
  json.begin_array();
  for (const RecoveredCoefficient& one : piece.coefficients) {
    json.begin_object(true);
    number(json, "rank", one.rank);
    number(json, "step", one.step);
    number(json, "micro_batch", one.micro_batch);
    numbers(json, "alike", one.alike);
    real(json, "value", one.value);
    real(json, "error", one.error);
    text_or_null(json, "exact", one.exact ? one.exact->to_string() : "");
    text_or_null(json, "expected", one.expected ? one.expected->to_string() : "");
    json.end_object();
  }
  json.end_array();
  json.end_object();
}

void reference_json(JsonWriter& json, const VerifyResult& result) {
  json.key("reference");
  if (!result.reference) return json.null();
  const VerifiedReference& reference = *result.reference;
  json.begin_object();
  text(json, "run", reference.run);
  text_or_null(json, "loss", reference.loss ? name_of(*reference.loss) : "");
  json.key("step");
  reference.step ? json.number(*reference.step) : json.null();
  number(json, "micro_batches", reference.micro_batches);
  json.key("parameters");
  json.begin_array();
  for (const ReferencedParameter& one : reference.parameters) {
    json.begin_object();
    text(json, "parameter", result.parameters[at(one.parameter)].name);
    text(json, "contributions", name_of(one.contributions));
    text(json, "result", name_of(one.result));
    text_or_null(json, "what", one.what);
    text_or_null(json, "part", one.part ? one.part->to_string() : "");
    text_or_null(json, "formula", one.formula);
    real(json, "difference", one.difference);
    real(json, "roundings", one.roundings);
    real(json, "result_roundings", one.result_roundings);
    text(json, "dtype", one.dtype);
    json.end_object();
  }
  json.end_array();
  json.end_object();
}

}  // namespace

void write_json_run(const VerifyResult& result, JsonWriter& json) {
  json.begin_object();
  number(json, "lockstep", 1);
  text(json, "run", result.run);
  text(json, "verdict", verdict_word(result.verdict()));
  json.key("complete");
  json.boolean(result.gaps.empty());
  number(json, "world", result.world);
  json.key("mesh");
  json.begin_object(true);
  for (const auto& [axis, size] : result.axes) number(json, axis.c_str(), size);
  json.end_object();
  numbers(json, "ranks", result.ranks);
  text_or_null(json, "adapter", result.adapter);
  json.key("versions");
  json.begin_object(true);
  for (const auto& [name, version] : result.versions) text(json, name.c_str(), version);
  json.end_object();
  text_or_null(json, "loss", result.loss ? name_of(*result.loss) : "");
  number(json, "sums", result.sums);
  numbers(json, "steps", result.steps);
  number(json, "micro_batches", result.micro_batches);
  std::vector<std::string> collectives;
  collectives.reserve(result.collectives.size());
  for (const VerifiedCollective& one : result.collectives) collectives.push_back(one.what);
  json.key("collectives");
  json.strings(collectives);
  json.key("gaps");
  json.strings(result.gaps);
  json.key("notes");
  json.strings(result.notes);
  reference_json(json, result);
  json.key("counts");
  json.begin_object(true);
  for (const VerifiedPiece::Verdict verdict :
       {VerifiedPiece::Verdict::right, VerifiedPiece::Verdict::wrong, VerifiedPiece::Verdict::undecided}) {
    json.key(name_of(verdict));
    json.number(static_cast<std::int64_t>(result.count(verdict)));
  }
  json.end_object();
  json.key("findings");
  json.begin_array();
  for (const VerifyFinding& finding : result.findings) {
    json.begin_object();
    text(json, "verdict", name_of(finding.verdict));
    text(json, "what", finding.what);
    json.key("parameters");
    json.begin_array();
    for (const int parameter : finding.parameters) json.string(result.parameters[at(parameter)].name);
    json.end_array();
    numbers(json, "ranks", finding.ranks);
    numbers(json, "steps", finding.steps);
    number(json, "results", static_cast<std::int64_t>(finding.pieces));
    number(json, "first", static_cast<std::int64_t>(finding.first));
    json.end_object();
  }
  json.end_array();
  json.key("blame");
  json.begin_array();
  for (const StepAtFault& one : result.blame) {
    json.begin_object();
    text(json, "step", one.step);
    text(json, "why", one.why);
    json.end_object();
  }
  json.end_array();
  json.key("repair");
  json.begin_array();
  for (const Json& edit : result.repair) json.value(edit, true);
  json.end_array();
  text_or_null(json, "not_blamed", result.not_blamed);
  json.key("results");
  json.begin_array();
  for (const VerifiedPiece& piece : result.pieces) piece_json(json, result, piece);
  json.end_array();
  json.end_object();
}

void verify_json(const VerifyResult& result, const Write& write) {
  JsonWriter json(write);
  write_json_run(result, json);
  json.finish();
}

}  // namespace lockstep
