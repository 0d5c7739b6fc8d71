// SPDX-License-Identifier: Apache-2.0
#include "src/device/gpu_replay.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "src/device/gpu_program.h"

namespace lockstep::device {

namespace {

/// The tables of a program, one behind the other, as they are copied to the GPU.
class Packed {
 public:
  explicit Packed(const GpuProgram& program) {
    instructions_ = add(program.instructions);
    spans_ = add(program.spans);
    addends_ = add(program.addends);
    members_ = add(program.members);
  }
  const std::vector<unsigned char>& bytes() const { return bytes_; }
  const kernels::Instruction* instructions(const unsigned char* at) const {
    return reinterpret_cast<const kernels::Instruction*>(at + instructions_);
  }
  kernels::Tables tables(const unsigned char* at) const {
    return {reinterpret_cast<const kernels::Span*>(at + spans_),
            reinterpret_cast<const kernels::Addend*>(at + addends_),
            reinterpret_cast<const std::uint32_t*>(at + members_)};
  }

 private:
  template <class Row>
  std::size_t add(const std::vector<Row>& rows) {
    constexpr std::size_t alignment = 16;
    const std::size_t begin = (bytes_.size() + alignment - 1) / alignment * alignment;
    bytes_.resize(begin + rows.size() * sizeof(Row));
    if (!rows.empty()) std::memcpy(bytes_.data() + begin, rows.data(), rows.size() * sizeof(Row));
    return begin;
  }
  std::vector<unsigned char> bytes_;
  std::size_t instructions_ = 0, spans_ = 0, addends_ = 0, members_ = 0;
};

std::string step_of(const numeric::Plan& plan, const kernels::Instruction& instruction) {
  const numeric::PlannedEvent& planned = plan.events[instruction.event];
  if (planned.event == nullptr) return fmt::format("the comparison after optimizer step {}", planned.optimizer_step);
  return fmt::format("step \"{}\" ({})", planned.event->calls.front().step->name, operation(planned.event->op).name);
}

}  // namespace

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
    const Packed packed(program);
    auto* const at = static_cast<unsigned char*>(tables_.at_least(packed.bytes().size()));
    gpu_.upload(at, packed.bytes().data(), packed.bytes().size());
    const std::uint64_t stride = stride_of(block.count()), size_of_one = bytes_of(options.arithmetic);
    GpuBuffers buffers{nullptr, stride, packed.tables(at), results};
    buffers.data = buffers_.at_least(layout.slots() * stride * size_of_one);
    gpu_.clear(buffers.data, layout.nodes() * stride * size_of_one);
    for (const kernels::Instruction& instruction : program.instructions) {
      gpu_.describe(step_of(plan, instruction));
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
