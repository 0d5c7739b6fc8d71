// SPDX-License-Identifier: Apache-2.0
#include "src/numeric/replay.h"

#include "src/numeric/block_replay.h"

namespace lockstep::numeric {

Intervals within(const Intervals& set, const Interval& block) {
  Intervals result = intersect(set, block);
  for (Interval& interval : result) interval = {interval.begin - block.begin, interval.end - block.begin};
  return result;
}

void Findings::add(const Findings& other) {
  for (std::size_t i = 0; i < checks.size(); ++i) {
    checks[i].right = checks[i].right && other.checks[i].right;
    checks[i].got += other.checks[i].got;
    checks[i].expected += other.checks[i].expected;
  }
  for (std::size_t step = 0; step < reference.size(); ++step) {
    for (std::size_t piece = 0; piece < reference[step].size(); ++piece)
      reference[step][piece] += other.reference[step][piece];
  }
}

namespace {

template <class Value>
void replay_blocks(const Model& model, const Plan& plan, const ReplayOptions& options, const Interval& elements,
                   std::int64_t block, Findings& findings) {
  BlockReplay<Value> replay(model, plan, options, std::min(block, elements.size()), findings);
  for (std::int64_t begin = elements.begin; begin < elements.end; begin += block) {
    replay.run({begin, std::min(begin + block, elements.end)});
  }
}

}  // namespace

Findings replay(const Model& model, const Plan& plan, const ReplayOptions& options, const Interval& elements,
                std::int64_t block) {
  Findings findings;
  findings.checks.resize(static_cast<std::size_t>(plan.checks));
  const std::size_t steps = plan.pieces.empty() ? 0 : plan.pieces.front().expected.size();
  findings.reference.assign(steps, std::vector<GradientHash>(plan.pieces.size()));
  if (elements.empty()) return findings;
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
