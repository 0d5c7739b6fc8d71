// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace lockstep {

/// Appends `text` to `out` as a string of JSON. What would not be seen is escaped (is_invisible()), and what is not
/// UTF-8 (from a file name, say) becomes U+FFFD: the output is always valid JSON.
void append_json_string(std::string& out, std::string_view text);

}  // namespace lockstep
