// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "src/live/explain.h"

namespace lockstep::live {

/// "0 to 3 and 6".
std::string numbers_words(const std::vector<int>& numbers);
/// "rank 1", "ranks 0 to 3 and 6".
std::string rank_words(const std::vector<int>& ranks);
/// "train.py:9" of "train.py:9 in main"; of a file in a package, without its folders.
std::string site_of(const std::string& call);
/// The axes of the mesh along which these ranks differ.
std::vector<std::string> axes_of(const CapturedRun& run, const std::vector<int>& ranks);
/// "tp_all_reduce/train.py:9", as recorded schedules call the step of a collective.
std::string recorded_step(const CapturedRun& run, const CapturedCollective& call);
/// "[0, 8) × [0, 16)".
std::string piece_words(const std::vector<Interval>& piece);
/// "12 %", "0.04 %".
std::string percent(double part);

inline constexpr const char* stale_words =
    "what earlier optimizer steps left is still in it: nobody zeroed the gradient";

/// What is wrong with an explanation whose coefficients are exact, in words that are the same wherever the same mistake
/// was made. `difference` is what check says of the two formulas, `ranks` those whose optimizers get the result.
std::string mistake_words(const CapturedRun& run, const Explanation& found, const std::string& difference,
                          const std::vector<int>& ranks);

}  // namespace lockstep::live
