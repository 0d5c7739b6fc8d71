// SPDX-License-Identifier: Apache-2.0
#include "src/device/network_replay.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "src/device/packed_program.h"

namespace lockstep::device {

namespace {

constexpr std::size_t launches_at_most = 256;  ///< before the GPU is waited for

}  // namespace

/// One block of a plan.
struct NetworkReplay::Work {
  const numeric::Plan& plan;
  std::uint64_t task = 0, block = 0;
  kernels::Domain domain = kernels::Domain::float32;
  GpuBuffers buffers;

  void* at(const NetworkCall::Place& place) const {
    return static_cast<unsigned char*>(buffers.data) + (place.slot * buffers.stride + place.begin) * bytes_of(domain);
  }
};

NetworkReplay::NetworkReplay(Gpu& gpu, GpuNetwork& network, const Model& model, std::uint64_t buffer_bytes,
                             int processes)
    : gpu_(gpu), network_(network), model_(model), processes_(processes), buffers_(gpu), tables_(gpu), results_(gpu) {
  buffers_.at_least(buffer_bytes);
}

numeric::Findings NetworkReplay::replay(std::uint64_t task, const numeric::Plan& plan,
                                        const numeric::ReplayOptions& options, LocalPlan local,
                                        const Intervals& elements, std::int64_t most) {
  const GpuLayout layout(plan, std::move(local), processes_ == 1 ? Network::always : Network::between);
  const std::uint64_t result_bytes = layout.results() * sizeof(std::uint64_t);
  auto* const results = static_cast<std::uint64_t*>(results_.at_least(result_bytes));
  gpu_.clear(results, result_bytes);
  Work work{plan, task, 0, domain_of(options.arithmetic), {}};
  for (const Block& block : cut_into_blocks(elements, most, plan.aligned ? processes_ : 1)) {
    ++work.block;
    // Uploads wait for what was launched before, and nobody would see that this process works.
    network_.go_to({task, work.block, 0, fmt::format("block {} of set {} of buffers", work.block, task + 1)});
    network_.finish_own();
    const GpuProgram program = make_gpu_program(model_, plan, options, layout, block);
    const PackedProgram packed(program);
    auto* const at = static_cast<unsigned char*>(tables_.at_least(packed.bytes().size()));
    gpu_.upload(at, packed.bytes().data(), packed.bytes().size());
    const std::uint64_t stride = stride_of(block.count() + more_for_network(processes_)), size = bytes_of(work.domain);
    work.buffers = {nullptr, stride, packed.tables(at), results};
    work.buffers.data = buffers_.at_least(layout.slots() * stride * size);
    gpu_.clear(work.buffers.data, layout.nodes() * stride * size);
    perform(work, program);
  }
  network_.finish_own();
  std::vector<std::uint64_t> found(layout.results());
  gpu_.download(found.data(), results, result_bytes);
  return layout.findings(plan, options, found);
}

void NetworkReplay::perform(const Work& work, const GpuProgram& program) {
  auto call = program.calls.begin();
  std::map<std::size_t, std::string> names;  // an event has as many instructions as stretches and buffers
  const auto make_calls_before = [&](std::size_t instruction) {
    for (; call != program.calls.end() && call->before == instruction; ++call) make(work, *call);
  };
  for (std::size_t i = 0; i < program.instructions.size(); ++i) {
    make_calls_before(i);
    std::string& name = names[program.instructions[i].event];
    if (name.empty()) name = step_of(work.plan, program.instructions[i].event);
    gpu_.describe(name);
    gpu_.perform(work.domain, program.instructions[i], work.buffers);
    // A full queue of launches would hold this process up unseen.
    if (i % launches_at_most == launches_at_most - 1) network_.finish_own();
  }
  make_calls_before(program.instructions.size());
}

void NetworkReplay::make(const Work& work, const NetworkCall& call) {
  const numeric::PlannedEvent& planned = work.plan.events[call.event];
  const std::string what =
      fmt::format("{} of optimizer step {}", step_of(work.plan, call.event), planned.event->optimizer_step);
  gpu_.describe(what);
  network_.go_to({work.task, work.block, call.event, what});
  void* const from = work.at(call.from);
  void* const to = work.at(call.to);
  switch (call.kind) {
    case NetworkCall::Kind::all_reduce:
      return network_.all_reduce(call.group, work.domain, from, to, call.counts.front(), call.factor);
    case NetworkCall::Kind::reduce:
      return network_.reduce(call.group, work.domain, from, to, call.counts.front(), call.root, call.factor);
    case NetworkCall::Kind::reduce_scatter:
      return network_.reduce_scatter(call.group, work.domain, from, to, call.counts, call.factor);
    case NetworkCall::Kind::all_gather:
      return network_.all_gather(call.group, work.domain, from, to, call.counts);
    case NetworkCall::Kind::broadcast:
      return network_.broadcast(call.group, work.domain, to, call.counts.front(), call.root);
    case NetworkCall::Kind::exchange:
      break;
  }
  network_.exchange(call.group, work.domain, from, to, call.counts, call.stride);
  GpuBuffers parts = work.buffers;
  parts.data = to;
  parts.stride = call.stride;
  if (call.sum.spans > 0) gpu_.perform(work.domain, call.sum, parts);
}

}  // namespace lockstep::device
