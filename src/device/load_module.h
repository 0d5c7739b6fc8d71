// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "src/device/gpu.h"
#include "src/device/nccl_module.h"
#include "src/device/transport.h"

namespace lockstep::device {

// Modules are searched beside the program, in ../lib/lockstep of its folder, and where `cmake --install` puts them.

/// Loads the module that speaks MPI and joins the job. Throws MpiFailure with a sentence that says what is missing.
std::unique_ptr<Transport> open_transport();

/// Loads the module that speaks CUDA and opens a GPU, counted from 0. Throws CudaFailure likewise.
std::unique_ptr<Gpu> open_gpu(int number);

// Load the module that speaks NCCL. Throw NcclFailure likewise.
std::unique_ptr<GpuNetwork> open_gpu_network(const NetworkSettings& settings);
/// GPUs of this machine; in `why` what CUDA says where that cannot be known.
int count_gpus(std::string& why);

}  // namespace lockstep::device
