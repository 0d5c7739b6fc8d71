// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "lockstep/check.h"
#include "lockstep/symbolic.h"
#include "src/diagnosis/engine_details.h"
#include "src/diagnosis/outcome_verdict.h"

namespace lockstep {

namespace diagnosis {

Verdict verdict_of(Outcome::Kind kind) {
  switch (kind) {
    case Outcome::Kind::deadlock:
      return Verdict::deadlock;
    case Outcome::Kind::invalid_collective:
      return Verdict::invalid_collective;
    case Outcome::Kind::race:
      return Verdict::race;
    case Outcome::Kind::complete:
      break;
  }
  return Verdict::match;
}

Verdict replayed_verdict(const Schedule& schedule) {
  const Timeline timeline = walk(schedule);
  const bool wrong = !timeline.step_ends.empty() && !SymbolicEngine(schedule, timeline).run().match;
  return wrong ? Verdict::mismatch : verdict_of(timeline.outcome.kind);
}

}  // namespace diagnosis

std::string_view name_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::match:
      return "match";
    case Verdict::mismatch:
      return "mismatch";
    case Verdict::deadlock:
      return "deadlock";
    case Verdict::invalid_collective:
      return "invalid_collective";
    case Verdict::race:
      return "race";
    case Verdict::error:
      break;
  }
  return "error";
}

namespace diagnosis {

std::string_view name_of(Outcome::Kind kind) {
  return kind == Outcome::Kind::complete ? "complete" : name_of(verdict_of(kind));
}

}  // namespace diagnosis

const EngineResult* engine_of(const CheckResult& result, std::string_view name) {
  const auto place = std::find_if(result.engines.begin(), result.engines.end(),
                                  [&](const EngineResult& engine) { return engine.name == name; });
  return place == result.engines.end() ? nullptr : &*place;
}

const SymbolicResult* symbolic_of(const CheckResult& result) {
  return diagnosis::found_of(diagnosis::detail_of<diagnosis::SymbolicDetail>(result));
}

const ParametricResult* parametric_of(const CheckResult& result) {
  return diagnosis::found_of(diagnosis::detail_of<diagnosis::ParametricDetail>(result));
}

ParametricEngine* parametric_engine_of(const CheckResult& result) {
  const auto* detail = diagnosis::detail_of<diagnosis::ParametricDetail>(result);
  return detail == nullptr ? nullptr : detail->engine.get();
}

const ParametricSample* sample_of(const CheckResult& result) {
  const auto* detail = diagnosis::detail_of<diagnosis::ParametricDetail>(result);
  return detail == nullptr || !detail->sample ? nullptr : &*detail->sample;
}

const TransformerResult* transformer_of(const CheckResult& result) {
  return diagnosis::found_of(diagnosis::detail_of<diagnosis::TransformerDetail>(result));
}

const RaceReplays* race_of(const EngineResult& engine) {
  const auto* detail = diagnosis::detail_of<diagnosis::CudaDetail>(engine);
  return detail == nullptr ? nullptr : &detail->race;
}

const SymbolicResult* exact_of(const CheckResult& result) {
  if (const SymbolicResult* symbolic = symbolic_of(result); symbolic != nullptr) return symbolic;
  const ParametricSample* sample = sample_of(result);
  return sample == nullptr ? nullptr : &sample->found;
}

FormReader* forms_of(const CheckResult& result) {
  if (const auto* symbolic = diagnosis::detail_of<diagnosis::SymbolicDetail>(result); symbolic != nullptr)
    return symbolic->engine.get();
  return sample_of(result) == nullptr ? nullptr : parametric_engine_of(result);
}

const HostResult* numbers_of(const CheckResult& result) {
  for (const EngineResult& engine : result.engines) {
    if (engine.numbers) return engine.numbers.get();
  }
  return nullptr;
}

const HostResult* numbers_of(const CheckResult& result, std::string_view engine) {
  const EngineResult* found = engine_of(result, engine);
  return found == nullptr ? nullptr : found->numbers.get();
}

}  // namespace lockstep
