// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

/// What the fuzz targets do with their input. Findings are exceptions that leave here: a mistake in the input must come
/// out as InputError or ExpressionError, which end here, and nothing else may be thrown.
namespace lockstep::fuzz {

/// A promise of the library that was broken.
class Finding : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

/// Reads `input` as a scenario file; or, where it begins with "E:", "S:", "F:" or "R:", the rest as an expression, a
/// selector, a formula or a number; with "T:" or "N:" as the header of a safetensors or an .npy file. What was read
/// must be written so that it reads back as the same.
void parse(std::string_view input);

/// Draws a small scenario from `input`, replays it with both engines and writes every report. The engines must agree,
/// and so must the resolved form of the scenario.
void run_engines(std::string_view input);

/// Takes what stands between record separators (U+001E) as the files of the ranks of a captured run, verifies it and
/// writes every report; with "D:" before them, as dumps of PyTorch's Flight Recorder; with "X:" the rest as an
/// extraction.
void read_runs(std::string_view input);

/// The scenario that `input` stands for, as JSON.
std::string scenario_from(std::string_view input);

}  // namespace lockstep::fuzz
