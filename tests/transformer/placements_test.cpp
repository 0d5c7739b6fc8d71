// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "tests/cases.h"
#include "tests/catch.h"
#include "tests/transformer/small_scenario.h"

using namespace lockstep;
using namespace lockstep::transformer::test;

namespace {

Scenario scenario_of(const std::string& layout, const std::string& model, const std::string& edits = "[]") {
  return read_scenario(std::make_shared<Source>(
      Source{"test.json", R"({ "lockstep": 1, "layout": {)" + layout + R"(}, "model": {)" + model +
                              R"(}, "schedule": { "steps": [ { "name": "m", "op": "each", "steps": [
        { "name": "backward", "op": "backward" } ] } ], "edits": )" +
                              edits + "} }"}));
}

std::string disagreements(const Scenario& scenario, const PlacementReport& report) {
  std::string text;
  for (const ObservedPlacement& row : report.placements) {
    if (row.agrees) continue;
    text += scenario.schedule->model.parameters()[static_cast<std::size_t>(row.parameter)].name + " on " +
            std::string(name_of(row.axis)) + ": claimed " + row.claimed + ", observed " + row.observed + "\n";
  }
  for (const std::string& name : report.incomplete) text += name + " does not add up\n";
  return text;
}

}  // namespace

TEST_CASE("what the presets claim is what the model does, on every axis") {
  std::size_t number = 0;
  const std::vector<std::string> dense = {
      gpt2,
      llama,
      gpt2 + R"(, "tied_embeddings": false)",
      llama + R"(, "qk_layernorm": true, "qkv_bias": true)",
      llama + R"(, "mtp_num_layers": 2)",
      gpt2 + R"(, "mtp_num_layers": 1)",
      R"("preset": "gpt", "layers": 2, "hidden": 16, "heads": 4, "vocab": 32, "positions": 64, "qk_layernorm": true,
         "swiglu": true, "position_embedding": "rope")"};
  const std::vector<std::string> layouts = {R"("tp": 2, "dp": 2)", R"("tp": 2, "sequence_parallel": true)",
                                            R"("cp": 2, "tp": 2)", R"("sp": 2)", R"("pp": 2, "dp": 2)"};
  for (const std::string& model : dense) {
    for (const std::string& layout : layouts) {
      if (!lockstep::test::is_tried(number++)) continue;
      INFO(layout << "; " << model);
      const Scenario scenario = scenario_of(layout, model);
      CHECK(disagreements(scenario, observe_placements(scenario)).empty());
    }
  }
  for (const std::string& model : {moe, moe + R"(, "shared_expert_ffn": 8, "shared_expert_gate": true)",
                                   moe + R"(, "moe_aux_loss_coeff": 0.5, "moe_expert_capacity_factor": 1)"}) {
    for (const char* layout :
         {R"("ep": 2, "dp": 4)", R"("ep": 2, "etp": 2, "tp": 2, "dp": 2, "sequence_parallel": true)",
          R"("ep": 2, "cp": 2)", R"("ep": 4, "tp": 2, "dp": 2, "sequence_parallel": true)"}) {
      if (!lockstep::test::is_tried(number++)) continue;
      INFO(layout << "; " << model);
      const Scenario scenario = scenario_of(layout, model);
      CHECK(disagreements(scenario, observe_placements(scenario)).empty());
    }
  }
}

TEST_CASE("a placement that is claimed and not true is seen") {
  const Scenario replicated = scenario_of(R"("tp": 2, "sequence_parallel": true)", llama,
                                          R"([ { "parameter": "*input_layernorm.weight", "partial": [] } ])");
  CHECK(disagreements(replicated, observe_placements(replicated)) ==
        "decoder.layers.0.input_layernorm.weight on tp: claimed R, observed P\n"
        "decoder.layers.1.input_layernorm.weight on tp: claimed R, observed P\n");
  const Scenario partial =
      scenario_of(R"("tp": 2)", gpt2, R"([ { "parameter": "*linear_proj.bias", "partial": ["tp"] } ])");
  CHECK(disagreements(partial, observe_placements(partial)) ==
        "decoder.layers.0.self_attention.linear_proj.bias on tp: claimed P, observed R\n"
        "decoder.layers.1.self_attention.linear_proj.bias on tp: claimed P, observed R\n");
}
