// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "kernels/arithmetic.h"
#include "kernels/program.h"
#include "src/base/at.h"
#include "src/device/block.h"
#include "src/device/local_plan.h"
#include "src/device/network_call.h"
#include "src/numeric/replay.h"

namespace lockstep::device {

/// What a GPU does to one block of elements of a plan, with the tables that it reads.
struct GpuProgram {
  std::vector<kernels::Instruction> instructions;
  std::vector<NetworkCall> calls;  ///< in order; none where all ranks are on one GPU
  std::vector<kernels::Span> spans;
  std::vector<kernels::Addend> addends;
  std::vector<std::uint32_t> members;
};

/// What joins the GPUs of a job.
enum class Network {
  none,     ///< there is one, and all meet in its memory
  between,  ///< what processes have to tell each other goes over the network
  always,   ///< every collective does, even of the ranks of one process: to try a network on one GPU
};

/// Slots that collectives over a network need besides.
inline constexpr std::uint32_t slots_for_network = 3;

/// How the buffers of a process are numbered on its GPU, and the sums that it hands back. The plan must outlive it.
class GpuLayout {
 public:
  /// All ranks on one GPU.
  explicit GpuLayout(const numeric::Plan& plan);
  /// Those of one process.
  GpuLayout(const numeric::Plan& plan, LocalPlan local, Network network);

  const LocalPlan& local() const { return local_; }
  bool is_here(int node) const { return local_.slot[at(node)] >= 0; }
  /// Whether a collective goes over the network.
  bool is_called(const LocalPlan::Meeting& meeting) const;

  /// Gradient buffers come first, then the reference of each piece, then what collectives need besides: stretches of
  /// unequal places, and for the network a sum, elements moved together, and parts of other processes.
  std::uint32_t slot_of_node(int node) const { return static_cast<std::uint32_t>(local_.slot[at(node)]); }
  std::uint32_t slot_of_piece(int piece) const {
    return nodes_ + static_cast<std::uint32_t>(local_.piece_slot[at(piece)]);
  }
  std::uint32_t stretch_slot(std::size_t number) const { return first_stretch_ + static_cast<std::uint32_t>(number); }
  std::uint32_t sum_slot() const { return slots_ - 3; }
  std::uint32_t packed_slot() const { return slots_ - 2; }
  std::uint32_t exchange_slot() const { return slots_ - 1; }
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
  LocalPlan local_;
  Network network_;
  std::uint32_t nodes_, pieces_, first_stretch_, slots_;
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
