// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/job.h"
#include "src/device/board.h"

namespace lockstep::device {

/// What a process that lockstep itself has started for a GPU is told in its environment.
struct GpuJobPlace {
  int process = 0, processes = 1;
  int board = -1;            ///< file of the Board
  std::vector<int> sockets;  ///< of SocketMessenger

  std::string text() const;
};
inline constexpr const char* gpu_job_variable = "LOCKSTEP_GPU_JOB";

/// Nothing where this process was not started so.
std::optional<GpuJobPlace> gpu_job_place();

/// For how long nobody may move before a process that waits gives up: LOCKSTEP_NCCL_TIMEOUT in seconds, or a minute;
/// ten where processes do not `see` each other, and each takes its own wait for all. Throws InputError where that is no
/// number above 0.
std::chrono::milliseconds nccl_patience(bool see = true);

/// The job of the processes that were started together, and the board that they share. Throws GpuFailure.
struct GpuJob {
  explicit GpuJob(const GpuJobPlace& place);
  std::shared_ptr<Board> board;
  std::unique_ptr<Job> job;
};

}  // namespace lockstep::device
