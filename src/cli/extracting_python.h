// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace lockstep::cli {

/// What the Python that extracts has left.
struct Extracted {
  int status = 0;    ///< of the program: 0, or what it ends with, said on standard error already
  std::string text;  ///< the extraction; only where the status is 0
};

/// Runs `python -m lockstep.extracting SETTINGS` and waits for it. Signals that end this process end it as well. Throws
/// InputError where it cannot be started.
Extracted run_extracting_python(const std::string& python, const std::string& settings);

}  // namespace lockstep::cli
