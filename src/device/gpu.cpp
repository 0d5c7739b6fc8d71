// SPDX-License-Identifier: Apache-2.0
#include "src/device/gpu.h"

#include "kernels/fused.h"

namespace lockstep::device {

unsigned fused_packs(const GpuFacts& facts, std::uint64_t slots, std::uint64_t results) {
  unsigned best = 0;
  std::uint64_t most = 0;
  for (const unsigned packs : {256u, 128u, 64u, 32u}) {
    const std::uint64_t together = facts.block_memory / kernels::fused_bytes(slots, results, packs) * packs;
    if (together <= most) continue;
    best = packs;
    most = together;
  }
  return best;
}

}  // namespace lockstep::device
