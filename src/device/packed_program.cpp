// SPDX-License-Identifier: Apache-2.0
#include "src/device/packed_program.h"

#include <fmt/format.h>

#include <cstring>

namespace lockstep::device {

PackedProgram::PackedProgram(const GpuProgram& program) {
  instructions_ = add(program.instructions);
  spans_ = add(program.spans);
  addends_ = add(program.addends);
  members_ = add(program.members);
}

template <class Row>
std::size_t PackedProgram::add(const std::vector<Row>& rows) {
  constexpr std::size_t alignment = 16;
  const std::size_t begin = (bytes_.size() + alignment - 1) / alignment * alignment;
  bytes_.resize(begin + rows.size() * sizeof(Row));
  if (!rows.empty()) std::memcpy(bytes_.data() + begin, rows.data(), rows.size() * sizeof(Row));
  return begin;
}

std::string step_of(const numeric::Plan& plan, std::size_t event) {
  const numeric::PlannedEvent& planned = plan.events[event];
  if (planned.event == nullptr) return fmt::format("the comparison after optimizer step {}", planned.optimizer_step);
  return fmt::format("step \"{}\" ({})", planned.event->calls.front().step->name, operation(planned.event->op).name);
}

}  // namespace lockstep::device
