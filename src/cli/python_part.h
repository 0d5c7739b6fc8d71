// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace lockstep::cli {

/// What a part of the Python package has left.
struct PythonOutput {
  int status = 0;    ///< of the program: 0, 1, or what it ends with, said on standard error already
  std::string text;  ///< the extraction, or the table; only where the status is 0 or 1
};

struct PythonPart {
  std::string command;  ///< of lockstep, for messages
  std::string module;   ///< "lockstep.extracting"
};

/// The Python that runs it: `given`, else LOCKSTEP_PYTHON, or python3.
std::string python_of(const std::string& given);

/// $XDG_CACHE_HOME/lockstep/NAME, else ~/.cache/lockstep/NAME; "" where nothing says where.
std::string cache_folder(const std::string& name);

/// Runs `python -m MODULE SETTINGS` and waits for it. Signals that end this process end it as well. Throws
/// InputError where it cannot be started.
PythonOutput run_python_part(const PythonPart& part, const std::string& python, const std::string& settings);

}  // namespace lockstep::cli
