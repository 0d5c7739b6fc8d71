// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace lockstep {

/// Files whose lines no message shows, by the name of their Source: they lie where a scenario may only be allowed to
/// read. Whatever is made of such a file keeps its name, and with it this.
void keep_private(std::string name);
bool is_private(std::string_view name);

}  // namespace lockstep
