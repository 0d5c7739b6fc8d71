// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <string>

#include "src/device/board.h"
#include "src/device/gpu_network.h"
#include "src/device/messenger.h"

namespace lockstep::device {

/// What a network of GPUs is made with. Messenger and board must outlive it.
struct NetworkSettings {
  Messenger& messenger;
  Board& board;  ///< its entries of this process are written
  int gpu = 0;   ///< number of this process's GPU on this machine
  /// For how long nobody may move while this process waits for others.
  std::chrono::milliseconds patience{60'000};
};

// What the module that speaks NCCL exports.

/// Joins the GPUs of all processes; all processes. The caller owns the result. Throws GpuFailure.
using OpenGpuNetwork = GpuNetwork*(const NetworkSettings&);
inline constexpr const char* open_gpu_network_name = "lockstep_open_gpu_network";

/// The GPUs of this machine; where that cannot be known, 0 and in `why` what CUDA says.
using CountGpus = int(std::string& why);
inline constexpr const char* count_gpus_name = "lockstep_count_gpus";

}  // namespace lockstep::device
