// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <stdexcept>
#include <string>

#include "lockstep/job.h"
#include "lockstep/numeric.h"

namespace lockstep {

namespace device {
class Board;
class Gpu;
class GpuNetwork;
}  // namespace device

/// Why the nccl engine cannot go on, as a sentence: no GPU, no NCCL, a call that failed, or a process that did not
/// come.
class NcclFailure : public std::runtime_error {
 public:
  /// `heard`: another process of the job met the failure, and this one was told.
  explicit NcclFailure(const std::string& sentence, bool heard = false) : std::runtime_error(sentence), heard_(heard) {}
  bool heard() const { return heard_; }

 private:
  bool heard_;
};

/// Whether the module that speaks NCCL is there: it is built by itself, when it is asked for.
bool nccl_is_built();

/// GPUs of this machine, at least one. Throws NcclFailure where there is none, or no NCCL, with a sentence that says
/// what works instead.
int count_gpus();

/// The GPUs of a job's processes, one each, joined by NCCL. Of one thread.
class NcclJob {
 public:
  /// All processes of `job`, which must outlive it; GPUs are shared out in the order of the processes of each machine.
  /// Board: where the processes of a machine look up what became of the others; null: each knows of itself alone.
  /// Throws NcclFailure.
  static std::unique_ptr<NcclJob> join(Job& job, std::shared_ptr<device::Board> board);
  /// Works with something else that runs kernels and joins processes.
  NcclJob(Job& job, std::shared_ptr<device::Board> board, std::unique_ptr<device::Gpu> gpu,
          std::unique_ptr<device::GpuNetwork> network);
  /// Leaves the network; all processes.
  ~NcclJob();
  NcclJob(const NcclJob&) = delete;
  NcclJob& operator=(const NcclJob&) = delete;

  Job& job() { return job_; }
  device::Board& board() { return *board_; }
  device::Gpu& gpu() { return *gpu_; }
  device::GpuNetwork& network() { return *network_; }

 private:
  Job& job_;
  std::shared_ptr<device::Board> board_;
  std::unique_ptr<device::Gpu> gpu_;
  std::unique_ptr<device::GpuNetwork> network_;
};

/// Replays a timeline as run_host does, on the same numbers, with the buffers of each process's ranks, an equal share
/// of all, on its GPU: ranks of one GPU meet in its memory, and what they have is joined with the other GPUs by NCCL.
/// In a job of one process all collectives go through NCCL. All processes, with the same scenario and options; what is
/// found is returned in process 0, and elsewhere an empty result.
///
/// Memory of a GPU for buffers: as for run_cuda, of the process that holds most, and on the GPU that has least.
/// HostOptions::threads and progress are not used. Throws NcclFailure where this process cannot go on; then the job
/// must be aborted.
HostResult run_nccl(const Schedule& schedule, const Timeline& timeline, const HostOptions& options, NcclJob& job);

}  // namespace lockstep
