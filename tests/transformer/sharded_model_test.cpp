// SPDX-License-Identifier: Apache-2.0
#include "src/transformer/sharded_model.h"

#include "src/transformer/recognize.h"
#include "tests/catch.h"
#include "tests/transformer/small_scenario.h"

using namespace lockstep;
using namespace lockstep::transformer;
using namespace lockstep::transformer::test;

namespace {

using Gradients = std::vector<std::vector<LocalGradients>>;

Scenario scenario_of(const std::string& layout, const std::string& model, int micro_batches) {
  return read_scenario(std::make_shared<Source>(
      Source{"test.json", R"({ "lockstep": 1, "layout": {)" + layout + R"(}, "model": {)" + model +
                              R"(}, "batch": { "micro_batches": )" + std::to_string(micro_batches) +
                              R"(}, "schedule": { "steps": [ { "name": "m", "op": "each", "steps": [
        { "name": "backward", "op": "backward" } ] } ] } })"}));
}

Gradients gradients_of(const Scenario& scenario, PipelineOrder order, std::uint64_t scheduler_seed,
                       const std::string& use = "main") {
  const Config config = recognize(scenario);
  const Data data(config, *scenario.schedule, 0, scenario.preset->place);
  ShardedRun run;
  run.order = order;
  run.scheduler_seed = scheduler_seed;
  return run_sharded(
      config, *scenario.schedule, data, 0, use, [](int rank, int m) { return 1 + 0.25 * rank + m; }, run);
}

/// Whether two runs computed the same, bit for bit.
bool same(const Gradients& a, const Gradients& b) {
  for (std::size_t rank = 0; rank < a.size(); ++rank) {
    for (std::size_t m = 0; m < a[rank].size(); ++m) {
      if (a[rank][m] != b[rank][m]) return false;
    }
  }
  return a.size() == b.size();
}

}  // namespace

TEST_CASE("whichever rank runs next, the gradients are the same bit for bit") {
  const std::string ring = R"(, "cp_comm_type": "p2p")";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"("tp": 2, "dp": 2, "sequence_parallel": true)", llama},
      {R"("pp": 2, "virtual_stages": 2, "dp": 2)", deep(gpt2, 4)},
      {R"("cp": 3, "dp": 2)", gpt2 + ring},
      {R"("cp": 2, "tp": 2, "pp": 2, "sequence_parallel": true)", llama + ring},
      {R"("tp": 2, "ep": 2, "dp": 2, "sequence_parallel": true)", moe}};
  for (const auto& [layout, model] : cases) {
    const Scenario scenario = scenario_of(layout, model, 2);
    const Gradients first = gradients_of(scenario, PipelineOrder::one_forward_one_backward, 0);
    for (std::uint64_t seed = 1; seed < 6; ++seed) {
      INFO(layout << ", scheduler seed " << seed);
      CHECK(same(first, gradients_of(scenario, PipelineOrder::one_forward_one_backward, seed)));
    }
  }
}

TEST_CASE("GPipe, 1F1B and interleaved 1F1B give the same gradients bit for bit") {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"("pp": 2, "dp": 2)", gpt2},
      {R"("pp": 4, "tp": 2, "sequence_parallel": true)", deep(llama, 4)},
      {R"("pp": 2, "cp": 2)", deep(gpt2, 4) + R"(, "cp_comm_type": "p2p")"},
      {R"("pp": 2, "virtual_stages": 2, "dp": 2)", deep(gpt2, 4)},
      {R"("pp": 3, "virtual_stages": 2)", deep(llama, 6)}};
  for (const auto& [layout, model] : cases) {
    for (const int micro_batches : {1, 4, 6}) {
      INFO(layout << ", " << micro_batches << " micro-batches");
      const Scenario scenario = scenario_of(layout, model, micro_batches);
      const Gradients gpipe = gradients_of(scenario, PipelineOrder::gpipe, 0);
      CHECK(same(gpipe, gradients_of(scenario, PipelineOrder::one_forward_one_backward, 1)));
      CHECK(same(gpipe, gradients_of(scenario, PipelineOrder::interleaved, 2)));
    }
  }
}
