// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/device/local_plan.h"
#include "src/device/transport.h"
#include "src/numeric/replay.h"

namespace lockstep::device {

/// Replays `elements` of the buffers that this process holds, through all events of a plan, with collectives between
/// the processes that hold the others: all processes for which LocalPlan::takes_part() make this call, with the same
/// arguments. A plan that is not aligned is replayed whole.
///
/// The findings are those of this process: of the buffers of its ranks, and its part of the reference's hashes. All
/// processes' findings added up are what numeric::replay finds.
///
/// Memory: at most about block_bytes for the buffers of a block, in the process that holds most of them.
numeric::Findings replay_in_process(const Model& model, const numeric::Plan& plan,
                                    const numeric::ReplayOptions& options, const LocalPlan& local, Transport& transport,
                                    const Intervals& elements);

/// Bytes that the buffers of a block may take, and elements that it has at most and at least.
inline constexpr std::int64_t block_bytes = 32 << 20;
inline constexpr std::int64_t most_block_elements = 1 << 18;
inline constexpr std::int64_t least_block_elements = 256;

}  // namespace lockstep::device
