// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "src/cli/options.h"

namespace lockstep::cli {

inline constexpr std::string_view flight_recorder_format = "flight-recorder";

/// Compares the dumps and reports what does not meet. `world`: 0 where nobody says it. Returns the exit status.
int import_flight_recorder(const CommonOptions& options, const std::vector<std::string>& files, std::int64_t world);

}  // namespace lockstep::cli
