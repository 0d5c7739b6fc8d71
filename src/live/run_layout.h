// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string_view>

#include "lockstep/mesh.h"
#include "src/live/captured_run.h"

namespace lockstep::live {

/// The run's mesh as lockstep's layout; nothing where its axes have other names or its ranks another order.
std::optional<Layout> layout_of(const Header& header);

/// Whether ranks along an axis of a layout see different tokens.
bool splits_tokens(std::string_view axis);
/// Whether these are parts of the same sequences.
bool splits_sequence(std::string_view axis);

}  // namespace lockstep::live
