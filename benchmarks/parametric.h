// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace lockstep::bench {

/// What the parametric engine did and allocated by the number of ranks, and by that of classes of parameters, as a
/// Markdown table; empty where these benchmarks did not run.
std::string parametric_table();

}  // namespace lockstep::bench
