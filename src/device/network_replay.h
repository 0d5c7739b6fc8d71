// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/device/gpu_memory.h"
#include "src/device/gpu_network.h"
#include "src/device/gpu_program.h"
#include "src/numeric/replay.h"

namespace lockstep::device {

/// Replays plans on the GPU of one process of a job, one after the other: the buffers of its ranks, with collectives
/// over the network to those of the other processes.
class NetworkReplay {
 public:
  /// Allocates memory for its largest block.
  NetworkReplay(Gpu& gpu, GpuNetwork& network, const Model& model, std::uint64_t buffer_bytes, int processes);

  /// Replays `elements` of the buffers that this process holds, `most` at a time. All processes for which
  /// LocalPlan::takes_part() make this call, with the same arguments but `local`; `task` numbers the calls.
  ///
  /// The findings are those of this process, as those of replay_in_process().
  numeric::Findings replay(std::uint64_t task, const numeric::Plan& plan, const numeric::ReplayOptions& options,
                           LocalPlan local, const Intervals& elements, std::int64_t most);

 private:
  struct Work;
  void perform(const Work& work, const GpuProgram& program);
  void make(const Work& work, const NetworkCall& call);

  Gpu& gpu_;
  GpuNetwork& network_;
  const Model& model_;
  int processes_;
  GpuMemory buffers_, tables_, results_;
};

}  // namespace lockstep::device
