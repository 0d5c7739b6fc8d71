// SPDX-License-Identifier: Apache-2.0
#include "src/device/gpu_replay.h"

#include <algorithm>

#include "src/device/packed_program.h"

namespace lockstep::device {

GpuReplay::Found GpuReplay::run(const numeric::Plan& plan, const numeric::ReplayOptions& options,
                                const Intervals& elements, std::int64_t most, const StreamOrder& order,
                                const Ways& ways) {
  const GpuLayout layout(plan);
  const kernels::Domain domain = domain_of(options.arithmetic);
  // In order: the blocks with all steps in one kernel, then the others. All steps in one kernel. On streams.
  const std::size_t count = 3 + ways.on_streams;
  const std::uint64_t result_bytes = layout.results() * sizeof(std::uint64_t);
  auto* const results = static_cast<std::uint64_t*>(results_.at_least(count * result_bytes));
  const auto results_of = [&](std::size_t number) { return results + number * layout.results(); };
  gpu_.clear(results, count * result_bytes);
  // A step has many instructions, in every block.
  std::vector<std::string> names(plan.events.size());
  const auto describe = [&](const kernels::Instruction& instruction) {
    std::string& name = names[instruction.event];
    if (name.empty()) name = step_of(plan, instruction.event);
    gpu_.describe(name);
  };
  const std::vector<Block> blocks = cut_into_blocks(elements, most, 1);
  for (const Block& block : blocks) {
    const GpuProgram program = make_gpu_program(model_, plan, options, layout, block);
    if (program.instructions.empty()) continue;
    const PackedProgram packed(program);
    auto* const at = static_cast<unsigned char*>(tables_.at_least(packed.bytes().size()));
    gpu_.upload(at, packed.bytes().data(), packed.bytes().size());
    const bool at_an_end = &block == &blocks.front() || &block == &blocks.back();
    const bool fused = ways.fused == Fused::always || (ways.fused == Fused::at_both_ends && at_an_end);
    const std::uint64_t stride = stride_of(block.count()), size_of_one = bytes_of(options.arithmetic);
    GpuBuffers buffers{nullptr, stride, packed.tables(at), results_of(fused ? 0 : 1)};
    buffers.data = buffers_.at_least(layout.slots() * stride * size_of_one);
    gpu_.clear(buffers.data, layout.nodes() * stride * size_of_one);
    for (const kernels::Instruction& instruction : program.instructions) {
      describe(instruction);
      gpu_.perform(domain, instruction, buffers);
    }
    if (fused) {
      gpu_.describe("all steps in one kernel");
      gpu_.perform_fused(domain, {packed.instructions(at), program.instructions.size(), packed.tables(at),
                                  layout.slots(), block.count(), layout.results(), results_of(2)});
    }
    for (std::size_t number = 0; number < ways.on_streams; ++number) {
      buffers.results = results_of(3 + number);
      gpu_.clear(buffers.data, layout.nodes() * stride * size_of_one);
      order.launch(gpu_, domain, program, buffers, number, describe);
    }
  }
  std::vector<std::uint64_t> all(count * layout.results());
  gpu_.download(all.data(), results, count * result_bytes);
  const auto of = [&](std::size_t number) {
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(number * layout.results());
    return std::vector<std::uint64_t>(begin, begin + static_cast<std::ptrdiff_t>(layout.results()));
  };
  Found found{of(1), of(0), of(2), {}};
  for (std::size_t i = 0; i < found.in_order.size(); ++i) found.in_order[i] += found.in_order_where_fused[i];
  for (std::size_t number = 0; number < ways.on_streams; ++number) found.on_streams.push_back(of(3 + number));
  return found;
}

numeric::Findings GpuReplay::replay(const numeric::Plan& plan, const numeric::ReplayOptions& options,
                                    const Intervals& elements, std::int64_t most, const StreamOrder& order) {
  constexpr unsigned enough_packs = 128;
  const GpuLayout layout(plan);
  const unsigned packs = can_be_fused(plan) ? fused_packs(gpu_.facts(), layout.slots(), layout.results()) : 0;
  Ways ways;
  if (packs > 0) ways.fused = packs < enough_packs ? Fused::at_both_ends : Fused::always;
  ways.on_streams = order.is_asynchronous() ? 1 : 0;
  const Found found = run(plan, options, elements, most, order, ways);
  const bool lost = found.in_order[kernels::lost_result] != 0;  // as often as values are stored, which differs
  if (!lost && ways.fused != Fused::never && found.in_order_where_fused != found.fused) {
    throw InternalError(
        "on the GPU the steps on buffers in its memory and all steps in one kernel give different results");
  }
  if (!lost && ways.on_streams > 0 && found.in_order != found.on_streams.front()) {
    throw InternalError(
        "on the GPU the steps side by side on streams, held back by the schedule's waits alone, and the steps in order "
        "give different results, although no race was found");
  }
  return layout.findings(plan, options, found.in_order);
}

void GpuReplay::race(const numeric::Plan& plan, const numeric::ReplayOptions& options, const Intervals& elements,
                     std::int64_t most, const StreamOrder& order, std::vector<int>& different) {
  if (!order.is_asynchronous()) return;
  const Found found = run(plan, options, elements, most, order, {Fused::never, different.size()});
  for (std::size_t number = 0; number < different.size(); ++number) {
    // What 16 bits could not hold on the way is no gradient.
    const bool same = std::equal(found.in_order.begin() + kernels::lost_result + 1, found.in_order.end(),
                                 found.on_streams[number].begin() + kernels::lost_result + 1);
    different[number] += same ? 0 : 1;
  }
}

}  // namespace lockstep::device
