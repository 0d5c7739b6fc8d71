// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace lockstep::report {

/// Raw deflate (RFC 1951) in base64 (RFC 4648): what a browser unpacks with DecompressionStream("deflate-raw").
/// Complexity: about 30 MB/s.
std::string packed(std::string_view text);

}  // namespace lockstep::report
