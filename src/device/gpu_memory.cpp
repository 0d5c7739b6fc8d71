// SPDX-License-Identifier: Apache-2.0
#include "src/device/gpu_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "src/base/at.h"
#include "src/base/bytes_text.h"
#include "src/device/gpu_program.h"

namespace lockstep::device {

namespace {

/// Large enough to keep a GPU busy with each step, small enough to leave room for whoever else uses it: 4 GiB, and
/// where there are many slots 64 MiB for each. With less of a slot the launch of a step takes longer than the step.
constexpr std::uint64_t most_buffer_bytes(std::uint64_t slots) {
  return std::max(std::uint64_t{4} << 30, slots * (std::uint64_t{64} << 20));
}

/// Of the free memory; the rest is for tables, sums, and for what CUDA itself takes.
constexpr double share_for_buffers = 0.75;

/// Of the process that has most: buffers, references, and what collectives need besides.
std::uint64_t slots_of(const Schedule& schedule, const numeric::Component& component, const Folding* folding) {
  std::map<int, std::uint64_t> nodes;
  std::map<int, std::set<std::pair<int, int>>> pieces;
  for (const numeric::BufferNode& node : component.nodes) {
    const LocalBuffer& buffer = schedule.model.local(node.rank).buffers[at(node.buffer)];
    const int process = folding != nullptr ? folding->process_of(node.rank) : 0;
    ++nodes[process];
    pieces[process].emplace(buffer.logical, buffer.piece);
  }
  std::uint64_t most = 0;
  for (const auto& [process, count] : nodes)
    most = std::max<std::uint64_t>(most, count * (component.aligned ? 1 : 2) + pieces[process].size());
  return most + (folding != nullptr ? slots_for_network : 0);
}

}  // namespace

GpuMemory::~GpuMemory() {
  if (memory_ != nullptr) gpu_.release(memory_);
}

void* GpuMemory::at_least(std::uint64_t bytes) {
  if (bytes <= bytes_ && memory_ != nullptr) return memory_;
  if (memory_ != nullptr) gpu_.release(memory_);
  memory_ = nullptr;
  bytes_ = std::max<std::uint64_t>(bytes, 256);
  memory_ = gpu_.allocate(bytes_);
  return memory_;
}

GpuMemoryPlan::GpuMemoryPlan(const GpuFacts& facts, const Schedule& schedule, const numeric::Preparation& preparation,
                             const std::vector<numeric::Task>& tasks, std::int64_t most_elements,
                             const Folding* folding) {
  const int processes = folding != nullptr ? folding->processes() : 1;
  const std::uint64_t for_network = folding != nullptr ? more_for_network(processes) : 0;
  std::set<std::size_t> in_one_block;
  const auto budget = static_cast<std::uint64_t>(static_cast<double>(facts.free_memory) * share_for_buffers);
  for (const numeric::Task& task : tasks) {
    const numeric::Component& component = preparation.components().list[task.component];
    const Arithmetic arithmetic =
        task.in_field ? Arithmetic::prime61 : preparation.prepared()[task.component].choice.arithmetic;
    const std::uint64_t slots = slots_of(schedule, component, folding), element = slots * bytes_of(arithmetic);
    const auto all = static_cast<std::uint64_t>(!component.aligned  ? component.numel
                                                : most_elements > 0 ? std::min(size(task.elements), most_elements)
                                                                    : size(task.elements));
    if (!component.aligned && most_elements > 0 && component.numel > most_elements) in_one_block.insert(task.component);
    // A block that is cut for several processes may have an element more for each but one (cut_into_blocks).
    const std::uint64_t more = for_network + (component.aligned ? static_cast<std::uint64_t>(processes) - 1 : 0);
    const std::uint64_t least = stride_of(more + (component.aligned ? 1 : all));
    const std::uint64_t most = component.aligned ? std::min(budget, most_buffer_bytes(slots)) : budget;
    if (least * element > most) {
      throw GpuTooSmall(fmt::format(
          "{}: {} of it needs {}, and of its {} of memory {} are free, of which the {} engine takes {}. {}; "
          "--engine host replays it in the machine's memory",
          facts.name, preparation.name_of(component), bytes_text(least * element), bytes_text(facts.memory),
          bytes_text(facts.free_memory), folding != nullptr ? "nccl" : "cuda", bytes_text(budget),
          component.aligned ? "Not even the smallest block of elements fits"
                            : "Its collectives move elements to other places, so that it is replayed in one block"));
    }
    const std::uint64_t stride =
        std::min(stride_of(all + more), std::max(most / element / 512 * 512, stride_of(1 + more)));
    for_buffers = std::max(for_buffers, stride * element);
    block_elements.push_back(static_cast<std::int64_t>(component.aligned ? std::min(all, stride - more) : stride));
  }
  if (in_one_block.empty()) return;
  const numeric::Component& first = preparation.components().list[*in_one_block.begin()];
  const std::string others = in_one_block.size() > 1 ? fmt::format(" (and {} more)", in_one_block.size() - 1) : "";
  note = fmt::format(
      "{}{} has all its {} elements in the GPU's memory at once, not {}: its collectives move elements to other "
      "places.",
      preparation.name_of(first), others, first.numel, most_elements);
}

}  // namespace lockstep::device
