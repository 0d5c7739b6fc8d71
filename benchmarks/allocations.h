// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace lockstep::bench {

/// Bytes that this thread has asked operator new for since it began, whatever became of them.
std::int64_t allocated_bytes();

}  // namespace lockstep::bench
