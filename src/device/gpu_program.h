// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "kernels/arithmetic.h"
#include "kernels/program.h"
#include "src/device/block.h"
#include "src/numeric/replay.h"

namespace lockstep::device {

/// What a GPU does to one block of elements of a plan, with the tables that it reads.
struct GpuProgram {
  std::vector<kernels::Instruction> instructions;
  std::vector<kernels::Span> spans;
  std::vector<kernels::Addend> addends;
  std::vector<std::uint32_t> members;
};

/// How the buffers of a plan are numbered on a GPU, and the sums that it hands back.
class GpuLayout {
 public:
  explicit GpuLayout(const numeric::Plan& plan);

  /// Gradient buffers come first, then the reference of each piece, then what collectives need besides.
  std::uint32_t slot_of_node(int node) const { return static_cast<std::uint32_t>(node); }
  std::uint32_t slot_of_piece(int piece) const { return nodes_ + static_cast<std::uint32_t>(piece); }
  std::uint32_t scratch_slot(std::size_t number) const { return nodes_ + pieces_ + static_cast<std::uint32_t>(number); }
  std::uint32_t slots() const { return slots_; }
  /// Slots that begin as zeros.
  std::uint32_t nodes() const { return nodes_; }

  std::uint64_t result_of_check(int check) const;
  std::uint64_t result_of_reference(int optimizer_step, int piece) const;
  std::uint64_t results() const { return results_; }

  /// What the sums mean. Throws InternalError where a value was rounded.
  numeric::Findings findings(const numeric::Plan& plan, const numeric::ReplayOptions& options,
                             const std::vector<std::uint64_t>& results) const;

 private:
  std::uint32_t nodes_, pieces_, slots_;
  int checks_;
  std::uint64_t results_;
};

/// Whether an element never leaves its place, so that a thread can take it through the whole program.
bool can_be_fused(const numeric::Plan& plan);

/// The kind of number that stands for an arithmetic, and its bytes.
kernels::Domain domain_of(Arithmetic arithmetic);
std::uint64_t bytes_of(Arithmetic arithmetic);

GpuProgram make_gpu_program(const Model& model, const numeric::Plan& plan, const numeric::ReplayOptions& options,
                            const GpuLayout& layout, const Block& block);

}  // namespace lockstep::device
