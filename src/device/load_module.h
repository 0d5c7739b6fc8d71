// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "src/device/transport.h"

namespace lockstep::device {

/// Loads the module that speaks MPI and joins the job. It is searched beside the program, in ../lib/lockstep of its
/// folder, and where `cmake --install` puts it. Throws MpiFailure with a sentence that says what is missing.
std::unique_ptr<Transport> open_transport();

}  // namespace lockstep::device
