// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <string>

namespace lockstep {

/// "12.3 GiB"; below 1 KiB "40 B".
std::string bytes_text(double bytes);
std::string bytes_text(std::integral auto bytes) { return bytes_text(static_cast<double>(bytes)); }

}  // namespace lockstep
