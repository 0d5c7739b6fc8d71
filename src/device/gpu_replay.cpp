// SPDX-License-Identifier: Apache-2.0
#include "src/device/gpu_replay.h"

#include <algorithm>

#include "src/device/packed_program.h"

namespace lockstep::device {

numeric::Findings GpuReplay::replay(const numeric::Plan& plan, const numeric::ReplayOptions& options,
                                    const Intervals& elements, std::int64_t most) {
  const GpuLayout layout(plan);
  const kernels::Domain domain = domain_of(options.arithmetic);
  const bool fuses = can_be_fused(plan) && fused_threads(gpu_.facts(), layout.slots(), layout.results()) > 0;
  const std::uint64_t result_bytes = layout.results() * sizeof(std::uint64_t);
  auto* const results = static_cast<std::uint64_t*>(results_.at_least(2 * result_bytes));
  gpu_.clear(results, 2 * result_bytes);
  for (const Block& block : cut_into_blocks(elements, most, 1)) {
    const GpuProgram program = make_gpu_program(model_, plan, options, layout, block);
    if (program.instructions.empty()) continue;
    const PackedProgram packed(program);
    auto* const at = static_cast<unsigned char*>(tables_.at_least(packed.bytes().size()));
    gpu_.upload(at, packed.bytes().data(), packed.bytes().size());
    const std::uint64_t stride = stride_of(block.count()), size_of_one = bytes_of(options.arithmetic);
    GpuBuffers buffers{nullptr, stride, packed.tables(at), results};
    buffers.data = buffers_.at_least(layout.slots() * stride * size_of_one);
    gpu_.clear(buffers.data, layout.nodes() * stride * size_of_one);
    for (const kernels::Instruction& instruction : program.instructions) {
      gpu_.describe(step_of(plan, instruction.event));
      gpu_.perform(domain, instruction, buffers);
    }
    if (!fuses) continue;
    gpu_.describe("all steps in one kernel");
    gpu_.perform_fused(domain, {packed.instructions(at), program.instructions.size(), packed.tables(at), layout.slots(),
                                block.count(), layout.results(), results + layout.results()});
  }
  std::vector<std::uint64_t> found(2 * layout.results());
  gpu_.download(found.data(), results, 2 * result_bytes);
  const auto middle = found.begin() + static_cast<std::ptrdiff_t>(layout.results());
  if (fuses && found[kernels::lost_result] == 0 && !std::equal(found.begin(), middle, middle)) {
    throw InternalError(
        "on the GPU the steps on buffers in its memory and all steps in one kernel give different results");
  }
  return layout.findings(plan, options, found);
}

}  // namespace lockstep::device
