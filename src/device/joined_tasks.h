// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "src/numeric/host_tasks.h"

namespace lockstep::device {

/// One task for all elements of a component that are replayed alike: how they are cut is decided here, not by the size
/// of a processor's cache.
std::vector<numeric::Task> joined(std::vector<numeric::Task> tasks);

}  // namespace lockstep::device
