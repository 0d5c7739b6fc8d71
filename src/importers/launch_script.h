// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "lockstep/importer.h"
#include "src/importers/words.h"

namespace lockstep::importers {

/// The command of a launch script that starts the training.
struct Launch {
  std::vector<Word> arguments;     ///< behind the Python program
  std::string program;             ///< "pretrain_gpt.py", without its folder; "" where it is not known
  Place place;                     ///< of the program
  std::vector<std::string> notes;  ///< sentences on what the arguments rest on and the script does not say
  std::int64_t world = 0;          ///< ranks that torchrun, srun or the batch system start; 0: not known
};

/// Finds the one command with arguments that `is_argument` knows. None or several is a mistake.
Launch read_launch_script(const std::shared_ptr<const Source>& source, const std::vector<std::string>& variables,
                          const std::function<bool(const std::string&)>& is_argument, Diagnostics& diagnostics);

}  // namespace lockstep::importers
