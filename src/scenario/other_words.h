// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep::scenario {

/// The word of `known` that other programs call `word`: "dp" for "data_parallel_size", "avg" for "mean". "" where there
/// is none.
std::string_view meant_by(std::string_view word, const std::vector<std::string>& known);

/// `; did you mean "WORD"?` with the word that is meant, or the one that is spelt alike; "" where there is neither.
std::string did_you_mean_here(std::string_view word, const std::vector<std::string>& known);

}  // namespace lockstep::scenario
