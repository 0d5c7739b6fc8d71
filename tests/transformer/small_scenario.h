// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "lockstep/scenario.h"
#include "lockstep/symbolic.h"
#include "lockstep/transformer.h"

namespace lockstep::transformer::test {

/// Sizes of a small preset, as keys of "model".
inline const std::string gpt2 =
    R"("preset": "gpt2", "layers": 2, "hidden": 16, "heads": 4, "vocab": 32, "positions": 64)";
inline const std::string llama =
    R"("preset": "llama", "layers": 2, "hidden": 16, "heads": 4, "query_groups": 2, "ffn": 24, "vocab": 32)";
inline const std::string moe = R"("preset": "moe", "layers": 2, "hidden": 16, "heads": 4, "query_groups": 2, "ffn": 24,
  "moe_ffn": 8, "experts": 4, "vocab": 32)";

/// The same with more layers.
inline std::string deep(std::string preset, int layers) {
  const std::string two = R"("layers": 2)";
  return preset.replace(preset.find(two), two.size(), R"("layers": )" + std::to_string(layers));
}

struct Run {
  Run(const std::string& layout, const std::string& model, const std::string& schedule,
      const std::string& batch = R"("micro_batches": 2)")
      : Run(R"({ "lockstep": 1, "layout": {)" + layout + R"(}, "model": {)" + model + R"(}, "batch": {)" + batch +
            R"(}, "schedule": {)" + schedule + "} }") {}
  explicit Run(const std::string& text)
      : scenario(read_scenario(std::make_shared<Source>(Source{"test.json", text}))),
        timeline(walk(*scenario.schedule)),
        engine(*scenario.schedule, timeline),
        symbolic(engine.run()),
        result(run_transformer(scenario, timeline)) {}

  std::string name_of(int rank, int buffer) const {
    const Model& model = scenario.schedule->model;
    const int parameter = model.local(rank).buffers[static_cast<std::size_t>(buffer)].parameters.front();
    return model.parameters()[static_cast<std::size_t>(parameter)].name + " on rank " + std::to_string(rank);
  }

  Scenario scenario;
  Timeline timeline;
  SymbolicEngine engine;
  SymbolicResult symbolic;
  TransformerResult result;
};

/// A schedule of Megatron that is right with uneven token counts.
inline const std::string megatron =
    R"("framework": "megatron", "options": { "calculate_per_token_loss": true, "use_distributed_optimizer": true })";

}  // namespace lockstep::transformer::test
