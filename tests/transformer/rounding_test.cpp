// SPDX-License-Identifier: Apache-2.0
#include "src/transformer/rounding.h"

#include "src/transformer/data.h"
#include "src/transformer/generator.h"
#include "src/transformer/recognize.h"
#include "tests/catch.h"
#include "tests/transformer/small_scenario.h"

using namespace lockstep;
using namespace lockstep::transformer;
using namespace lockstep::transformer::test;

// docs/transformer.md rests on this: four samples may be low by that factor.
TEST_CASE("the square root of the number of operations leaves room of a factor of a hundred") {
  for (const std::string& model : {gpt2, llama, moe}) {
    const Scenario scenario = read_scenario(std::make_shared<Source>(
        Source{"test.json", R"({ "lockstep": 1, "layout": {}, "model": {)" + model + R"(}, "schedule": { "steps": [
          { "name": "m", "op": "each", "steps": [ { "name": "backward", "op": "backward" } ] } ] } })"}));
    const Config config = recognize(scenario);
    const Data data(config, *scenario.schedule, 0, scenario.preset->place);
    const RoundedGradient rounded = rounded_gradient(config, initial_parameters(config, 0), data.sequences(0));
    INFO(model);
    CHECK(rounded.worst(1) > 300);
    CHECK(rounded.worst(1) < 500);
  }
}
