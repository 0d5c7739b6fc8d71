// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>

namespace lockstep::numeric {

/// Threads to use where `wanted` were asked for; 0 means one per core.
int thread_count(int wanted);

/// Calls work(index) for every index below `count`, on `threads` threads, each index once. Indices
/// are handed out in ascending order. The first exception ends the rest and is thrown here.
void parallel_for(std::size_t count, int threads, const std::function<void(std::size_t index)>& work);

}  // namespace lockstep::numeric
