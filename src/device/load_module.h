// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "src/device/gpu.h"
#include "src/device/transport.h"

namespace lockstep::device {

// Modules are searched beside the program, in ../lib/lockstep of its folder, and where `cmake --install` puts them.

/// Loads the module that speaks MPI and joins the job. Throws MpiFailure with a sentence that says what is missing.
std::unique_ptr<Transport> open_transport();

/// Loads the module that speaks CUDA and opens the first GPU. Throws CudaFailure likewise.
std::unique_ptr<Gpu> open_gpu();

}  // namespace lockstep::device
