// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>
#include <vector>

#include "src/device/gpu_program.h"

namespace lockstep::device {

/// Writes the instructions of a program, one after the other.
class ProgramWriter {
 public:
  explicit ProgramWriter(int bits) : bits_(bits) {}

  /// What is begun from here on belongs to this event of the plan.
  void at_event(std::size_t number) { event_ = static_cast<std::uint32_t>(number); }
  std::uint32_t event() const { return event_; }

  /// An instruction, to be completed and ended.
  kernels::Instruction& begin(kernels::Kind kind, std::uint32_t target);
  void add_span(const Interval& place, std::uint64_t other = 0, std::uint64_t what = 0) {
    program.spans.push_back(
        {static_cast<std::uint64_t>(place.begin), static_cast<std::uint64_t>(place.end), other, what});
  }
  /// Spans added out of order since begin() become ascending.
  void sort_spans();
  /// The instruction that was begun; without spans there is none.
  void end();
  /// The same, but for an instruction that stands outside of the list.
  kernels::Instruction end_outside();

  /// target at places = from at other places, of equal lengths.
  void move(std::uint32_t target, std::uint32_t from, const std::vector<std::pair<Interval, std::int64_t>>& places);

  kernels::Instruction& instruction() { return instruction_; }

  GpuProgram program;

 private:
  int bits_;
  std::uint32_t event_ = 0;
  kernels::Instruction instruction_;
};

}  // namespace lockstep::device
