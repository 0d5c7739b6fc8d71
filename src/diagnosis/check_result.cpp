// SPDX-License-Identifier: Apache-2.0
#include "lockstep/check.h"
#include "src/diagnosis/outcome_verdict.h"

namespace lockstep {

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

std::string_view name_of(Outcome::Kind kind) {
  return kind == Outcome::Kind::complete ? "complete" : name_of(verdict_of(kind));
}

Verdict engine_verdict(const CheckResult& result, bool match) {
  if (result.timeline == nullptr) return Verdict::error;
  if (!match && !result.timeline->step_ends.empty()) return Verdict::mismatch;
  return verdict_of(result.timeline->outcome.kind);
}

Verdict verdict_of(const ParametricResult& result) {
  switch (result.verdict) {
    case ParametricResult::Verdict::mismatch:
      return Verdict::mismatch;
    case ParametricResult::Verdict::race:
      return Verdict::race;
    case ParametricResult::Verdict::match:
    case ParametricResult::Verdict::undecided:
      break;
  }
  return result.verdict == ParametricResult::Verdict::match ? Verdict::match : Verdict::error;
}

const SymbolicResult* exact_of(const CheckResult& result) {
  if (result.symbolic) return &*result.symbolic;
  return result.sample ? &result.sample->found : nullptr;
}

FormReader* forms_of(const CheckResult& result) {
  if (result.symbolic) return result.engine.get();
  return result.sample ? result.parametric_engine.get() : nullptr;
}

const HostResult* numbers_of(const CheckResult& result) {
  if (result.host) return &*result.host;
  if (result.mpi) return &*result.mpi;
  if (result.cuda) return &*result.cuda;
  return result.nccl ? &*result.nccl : nullptr;
}

}  // namespace lockstep
