// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "src/device/gpu_program.h"

namespace lockstep::device {

namespace {

LocalPlan whole(const numeric::Plan& plan) {
  int ranks = 1;
  for (const numeric::PlannedNode& node : plan.nodes) ranks = std::max(ranks, node.node.rank + 1);
  return {plan, Folding(ranks, 1), 0};
}

}  // namespace

GpuLayout::GpuLayout(const numeric::Plan& plan) : GpuLayout(plan, whole(plan), Network::none) {}

GpuLayout::GpuLayout(const numeric::Plan& plan, LocalPlan local, Network network)
    : local_(std::move(local)),
      network_(network),
      nodes_(static_cast<std::uint32_t>(local_.slots)),
      pieces_(static_cast<std::uint32_t>(plan.pieces.size())),
      first_stretch_(nodes_ + static_cast<std::uint32_t>(local_.piece_slots)),
      slots_(first_stretch_),
      checks_(plan.checks) {
  std::size_t stretches = 0;
  for (std::size_t i = 0; !plan.aligned && i < plan.events.size(); ++i) {
    if (!plan.events[i].views.empty()) stretches = std::max(stretches, local_.meetings[i].members.size());
  }
  slots_ += static_cast<std::uint32_t>(stretches) + (network == Network::none ? 0 : slots_for_network);
  const std::size_t steps = plan.pieces.empty() ? 0 : plan.pieces.front().expected.size();
  results_ = result_of_reference(static_cast<int>(steps), 0);
}

bool GpuLayout::is_called(const LocalPlan::Meeting& meeting) const {
  return network_ == Network::always || (network_ == Network::between && meeting.processes.size() > 1);
}

std::uint64_t GpuLayout::result_of_check(int check) const {
  return 1 + static_cast<std::uint64_t>(check) * kernels::check_results;
}

std::uint64_t GpuLayout::result_of_reference(int optimizer_step, int piece) const {
  return result_of_check(checks_) +
         (static_cast<std::uint64_t>(optimizer_step) * pieces_ + static_cast<std::uint64_t>(piece)) *
             kernels::hash_results;
}

numeric::Findings GpuLayout::findings(const numeric::Plan& plan, const numeric::ReplayOptions& options,
                                      const std::vector<std::uint64_t>& results) const {
  if (results[kernels::lost_result] != 0) throw InternalError("a value was rounded to 16 bits in an exact replay");
  numeric::Findings findings;
  for (int check = 0; check < checks_; ++check) {
    const std::uint64_t* sums = results.data() + result_of_check(check);
    numeric::Findings::Check& found = findings.checks.emplace_back();
    found.right = sums[0] == 0;
    if (!options.hashes) continue;
    found.got = {{sums[1], sums[2]}};
    found.expected = {{sums[3], sums[4]}};
  }
  const std::size_t steps = plan.pieces.empty() ? 0 : plan.pieces.front().expected.size();
  for (std::size_t step = 0; step < steps; ++step) {
    std::vector<GradientHash>& hashes = findings.reference.emplace_back(plan.pieces.size());
    for (std::size_t piece = 0; piece < hashes.size(); ++piece) {
      const std::uint64_t* sums = results.data() + result_of_reference(static_cast<int>(step), static_cast<int>(piece));
      hashes[piece] = {{sums[0], sums[1]}};
    }
  }
  return findings;
}

bool can_be_fused(const numeric::Plan& plan) {
  if (plan.aligned) return true;
  return std::none_of(plan.events.begin(), plan.events.end(), [](const numeric::PlannedEvent& planned) {
    return planned.event != nullptr && !planned.views.empty() && operation(planned.event->op).collective;
  });
}

kernels::Domain domain_of(Arithmetic arithmetic) {
  switch (arithmetic) {
    case Arithmetic::bfloat16:
      return kernels::Domain::bfloat16;
    case Arithmetic::float16:
      return kernels::Domain::float16;
    case Arithmetic::float32:
      return kernels::Domain::float32;
    case Arithmetic::float64:
      return kernels::Domain::float64;
    case Arithmetic::prime61:
      break;
  }
  return kernels::Domain::prime61;
}

std::uint64_t bytes_of(Arithmetic arithmetic) {
  switch (arithmetic) {
    case Arithmetic::bfloat16:
    case Arithmetic::float16:
      return 2;
    case Arithmetic::float32:
      return 4;
    case Arithmetic::float64:
    case Arithmetic::prime61:
      break;
  }
  return 8;
}

}  // namespace lockstep::device
