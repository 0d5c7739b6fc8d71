// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>

#include "lockstep/check.h"
#include "lockstep/cuda.h"
#include "lockstep/parametric.h"
#include "lockstep/symbolic.h"
#include "lockstep/transformer.h"

namespace lockstep::diagnosis {

struct SymbolicDetail final : EngineDetail {
  std::unique_ptr<SymbolicEngine> engine;  ///< owner of the forms in `found`
  SymbolicResult found;
};

struct ParametricDetail final : EngineDetail {
  std::unique_ptr<ParametricEngine> engine;  ///< owner of the forms in `sample`
  ParametricResult found;
  std::optional<ParametricSample> sample;
};

struct CudaDetail final : EngineDetail {
  RaceReplays race;
};

struct TransformerDetail final : EngineDetail {
  TransformerResult found;
};

template <class Detail>
Detail* detail_of(const EngineResult& engine) {
  return dynamic_cast<Detail*>(engine.detail.get());
}

/// What it found; null where there is none.
template <class Detail>
auto* found_of(const Detail* detail) {
  return detail == nullptr ? nullptr : &detail->found;
}

/// That of the engine that has one of this kind; null where it did not run.
template <class Detail>
Detail* detail_of(const CheckResult& result) {
  for (const EngineResult& engine : result.engines) {
    if (Detail* detail = detail_of<Detail>(engine); detail != nullptr) return detail;
  }
  return nullptr;
}

}  // namespace lockstep::diagnosis
