// SPDX-License-Identifier: Apache-2.0
#include "src/transformer/pipeline.h"

#include <algorithm>

#include "tests/catch.h"

using namespace lockstep::transformer;

namespace {

std::string print(const std::vector<Pass>& passes) {
  std::string text;
  for (const Pass& pass : passes) {
    text += text.empty() ? "" : " ";
    text += (pass.forward ? "F" : "B") + std::to_string(pass.chunk) + "." + std::to_string(pass.micro_batch);
  }
  return text;
}

/// The most forward passes whose backward is still to come.
int most_in_flight(const std::vector<Pass>& passes) {
  int now = 0, most = 0;
  for (const Pass& pass : passes) most = std::max(most, now += pass.forward ? 1 : -1);
  return most;
}

}  // namespace

TEST_CASE("GPipe goes forward with all micro-batches, then backward") {
  CHECK(print(pipeline_passes(PipelineOrder::gpipe, 4, 1, 1, 3)) == "F0.0 F0.1 F0.2 B0.0 B0.1 B0.2");
  CHECK(print(pipeline_passes(PipelineOrder::gpipe, 2, 0, 2, 2)) == "F0.0 F0.1 F1.0 F1.1 B1.0 B1.1 B0.0 B0.1");
  CHECK(most_in_flight(pipeline_passes(PipelineOrder::gpipe, 4, 0, 1, 8)) == 8);
}

TEST_CASE("1F1B holds as many micro-batches as there are stages from here to the end") {
  const PipelineOrder order = PipelineOrder::one_forward_one_backward;
  CHECK(print(pipeline_passes(order, 2, 0, 1, 3)) == "F0.0 F0.1 B0.0 F0.2 B0.1 B0.2");
  CHECK(print(pipeline_passes(order, 2, 1, 1, 3)) == "F0.0 B0.0 F0.1 B0.1 F0.2 B0.2");
  for (int stage = 0; stage < 4; ++stage) CHECK(most_in_flight(pipeline_passes(order, 4, stage, 1, 8)) == 4 - stage);
}

TEST_CASE("interleaved 1F1B changes the chunk after as many micro-batches as there are stages") {
  const std::vector<Pass> passes = pipeline_passes(PipelineOrder::interleaved, 2, 1, 2, 4);
  CHECK(print(passes).substr(0, 40) == "F0.0 F0.1 F1.0 B1.0 F1.1 B1.1 F0.2 B0.0 ");
}

TEST_CASE("every order goes forward and backward once through each chunk with each micro-batch") {
  for (const PipelineOrder order :
       {PipelineOrder::gpipe, PipelineOrder::one_forward_one_backward, PipelineOrder::interleaved}) {
    for (int stage = 0; stage < 3; ++stage) {
      const std::vector<Pass> passes = pipeline_passes(order, 3, stage, 2, 6);
      CHECK(passes.size() == 2 * 2 * 6);
      for (int chunk = 0; chunk < 2; ++chunk) {
        for (int m = 0; m < 6; ++m) {
          const auto forward = std::find(passes.begin(), passes.end(), Pass{true, chunk, m});
          const auto backward = std::find(passes.begin(), passes.end(), Pass{false, chunk, m});
          CHECK(forward < backward);
          CHECK(backward != passes.end());
        }
      }
    }
  }
}
