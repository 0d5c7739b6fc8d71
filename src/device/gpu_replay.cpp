// SPDX-License-Identifier: Apache-2.0
#include "src/device/gpu_replay.h"

#include <algorithm>

#include "src/device/packed_program.h"

namespace lockstep::device {

std::vector<std::vector<std::uint64_t>> GpuReplay::run(const numeric::Plan& plan, const numeric::ReplayOptions& options,
                                                       const Intervals& elements, std::int64_t most,
                                                       const StreamOrder& order, const Ways& ways) {
  const GpuLayout layout(plan);
  const kernels::Domain domain = domain_of(options.arithmetic);
  const std::size_t count = 1 + (ways.in_one_kernel ? 1 : 0) + ways.on_streams;
  const std::uint64_t result_bytes = layout.results() * sizeof(std::uint64_t);
  auto* const results = static_cast<std::uint64_t*>(results_.at_least(count * result_bytes));
  gpu_.clear(results, count * result_bytes);
  const auto describe = [&](const kernels::Instruction& instruction) {
    gpu_.describe(step_of(plan, instruction.event));
  };
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
      describe(instruction);
      gpu_.perform(domain, instruction, buffers);
    }
    if (ways.in_one_kernel) {
      buffers.results += layout.results();
      gpu_.describe("all steps in one kernel");
      gpu_.perform_fused(domain, {packed.instructions(at), program.instructions.size(), packed.tables(at),
                                  layout.slots(), block.count(), layout.results(), buffers.results});
    }
    for (std::size_t number = 0; number < ways.on_streams; ++number) {
      buffers.results += layout.results();
      gpu_.clear(buffers.data, layout.nodes() * stride * size_of_one);
      order.launch(gpu_, domain, program, buffers, number, describe);
    }
  }
  std::vector<std::uint64_t> all(count * layout.results());
  gpu_.download(all.data(), results, count * result_bytes);
  std::vector<std::vector<std::uint64_t>> found;
  for (std::size_t number = 0; number < count; ++number) {
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(number * layout.results());
    found.emplace_back(begin, begin + static_cast<std::ptrdiff_t>(layout.results()));
  }
  return found;
}

numeric::Findings GpuReplay::replay(const numeric::Plan& plan, const numeric::ReplayOptions& options,
                                    const Intervals& elements, std::int64_t most, const StreamOrder& order) {
  const GpuLayout layout(plan);
  Ways ways;
  ways.in_one_kernel = can_be_fused(plan) && fused_threads(gpu_.facts(), layout.slots(), layout.results()) > 0;
  ways.on_streams = order.is_asynchronous() ? 1 : 0;
  const auto found = run(plan, options, elements, most, order, ways);
  const bool lost = found.front()[kernels::lost_result] != 0;  // as often as values are stored, which differs
  if (!lost && ways.in_one_kernel && found[0] != found[1]) {
    throw InternalError(
        "on the GPU the steps on buffers in its memory and all steps in one kernel give different results");
  }
  if (!lost && ways.on_streams > 0 && found.front() != found.back()) {
    throw InternalError(
        "on the GPU the steps side by side on streams, held back by the schedule's waits alone, and the steps in order "
        "give different results, although no race was found");
  }
  return layout.findings(plan, options, found.front());
}

void GpuReplay::race(const numeric::Plan& plan, const numeric::ReplayOptions& options, const Intervals& elements,
                     std::int64_t most, const StreamOrder& order, std::vector<int>& different) {
  if (!order.is_asynchronous()) return;
  const auto found = run(plan, options, elements, most, order, {false, different.size()});
  for (std::size_t number = 0; number < different.size(); ++number) {
    // What 16 bits could not hold on the way is no gradient.
    const bool same = std::equal(found.front().begin() + kernels::lost_result + 1, found.front().end(),
                                 found[1 + number].begin() + kernels::lost_result + 1);
    different[number] += same ? 0 : 1;
  }
}

}  // namespace lockstep::device
