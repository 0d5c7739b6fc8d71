// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "lockstep/mesh.h"
#include "src/live/captured_run.h"

namespace lockstep::live {

/// The run's mesh as lockstep's layout; nothing where its axes have other names or its ranks another order.
std::optional<Layout> layout_of(const Header& header);

}  // namespace lockstep::live
