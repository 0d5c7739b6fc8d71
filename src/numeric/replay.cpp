// SPDX-License-Identifier: Apache-2.0
#include "src/numeric/replay.h"

#include "src/numeric/block_replay.h"

namespace lockstep::numeric {

Intervals within(const Intervals& set, const Interval& block) {
  Intervals result = intersect(set, block);
  for (Interval& interval : result) interval = {interval.begin - block.begin, interval.end - block.begin};
  return result;
}

namespace {

// A sample has thousands of short intervals: the memory of one serves all.
template <class Value>
void replay_blocks(const Model& model, const Plan& plan, const ReplayOptions& options, const Intervals& elements,
                   std::int64_t block, Findings& findings) {
  std::int64_t longest = 0;
  for (const Interval& interval : elements) longest = std::max(longest, interval.size());
  BlockReplay<Value> replay(model, plan, options, std::min(block, longest), findings);
  for (const Interval& interval : elements) {
    for (std::int64_t begin = interval.begin; begin < interval.end; begin += block)
      replay.run({begin, std::min(begin + block, interval.end)});
  }
}

}  // namespace

Findings replay(const Model& model, const Plan& plan, const ReplayOptions& options, const Intervals& elements,
                std::int64_t block) {
  Findings findings;
  findings.checks.resize(static_cast<std::size_t>(plan.checks));
  const std::size_t steps = plan.pieces.empty() ? 0 : plan.pieces.front().expected.size();
  findings.reference.assign(steps, std::vector<GradientHash>(plan.pieces.size()));
  switch (options.arithmetic) {
    case Arithmetic::bfloat16:
    case Arithmetic::float16:
    case Arithmetic::float32:
      replay_blocks<float>(model, plan, options, elements, block, findings);
      break;
    case Arithmetic::float64:
      replay_blocks<double>(model, plan, options, elements, block, findings);
      break;
    case Arithmetic::prime61:
      replay_blocks<std::uint64_t>(model, plan, options, elements, block, findings);
      break;
  }
  return findings;
}

}  // namespace lockstep::numeric
