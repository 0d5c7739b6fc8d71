// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "src/device/gpu_program.h"

namespace lockstep::device {

/// The tables of a program, one behind the other, as they are copied to the GPU.
class PackedProgram {
 public:
  explicit PackedProgram(const GpuProgram& program);

  const std::vector<unsigned char>& bytes() const { return bytes_; }
  // Where they are in a copy that begins at `at`.
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
  std::size_t add(const std::vector<Row>& rows);

  std::vector<unsigned char> bytes_;
  std::size_t instructions_ = 0, spans_ = 0, addends_ = 0, members_ = 0;
};

/// The step of an event, for sentences: "step "mean" (reduce_scatter)".
std::string step_of(const numeric::Plan& plan, std::size_t event);

}  // namespace lockstep::device
