// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace lockstep::bench {

/// The rates of the hash by target and dtype, beside those of a plain sum and of xxHash, as a Markdown table; empty
/// where the benchmark did not run.
std::string hash_target_table();

}  // namespace lockstep::bench
