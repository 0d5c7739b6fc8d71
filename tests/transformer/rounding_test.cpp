// SPDX-License-Identifier: Apache-2.0
#include "src/transformer/rounding.h"

#include <cmath>

#include "src/transformer/data.h"
#include "src/transformer/generator.h"
#include "src/transformer/recognize.h"
#include "tests/catch.h"
#include "tests/transformer/small_scenario.h"

using namespace lockstep;
using namespace lockstep::transformer;
using namespace lockstep::transformer::test;

// docs/transformer.md rests on this: four samples may be low by that factor. How much room there is follows from the
// number of operations alone, which grows with the model and its sequences: these are the smallest.
TEST_CASE("the square root of the number of operations leaves room of a factor of a hundred") {
  struct Row {
    std::string model;
    double documented;
  };
  for (const auto& [model, documented] : {Row{gpt2, 405}, Row{llama, 325}, Row{moe, 301}}) {
    const Scenario scenario = read_scenario(std::make_shared<Source>(
        Source{"test.json", R"({ "lockstep": 1, "layout": {}, "model": {)" + model + R"(}, "schedule": { "steps": [
          { "name": "m", "op": "each", "steps": [ { "name": "backward", "op": "backward" } ] } ] } })"}));
    const Config config = recognize(scenario);
    const Data data(config, *scenario.schedule, 0, scenario.preset->place);
    const RoundedGradient rounded = rounded_gradient(config, initial_parameters(config, 0), data.sequences(0));
    INFO(model);
    CHECK(rounded.worst(1) > 100);
    // Operations that are no longer counted are a mistake, long before there is no room left.
    CHECK(std::abs(rounded.worst(1) / documented - 1) < 0.02);
  }
}
