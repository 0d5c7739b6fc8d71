// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "lockstep/importer.h"
#include "src/importers/settings.h"

namespace lockstep::importers {

/// Arguments of Megatron-LM from any of the places where they stand.
struct MegatronSource {
  Settings settings;
  std::string title;                    ///< "a Megatron-LM launch script"
  std::int64_t world = 0;               ///< ranks that a launcher starts; 0: not said
  bool has_flags = true;                ///< keys are written as flags, not as names of resolved arguments
  std::vector<std::string> notes = {};  ///< what they rest on, in sentences
  bool is_log = false;                  ///< what Megatron-LM printed, after it had put in all that it read elsewhere
  std::string other_model = {};         ///< the program, where it trains a model that is no GPT
};

/// The command line of the request, or its file: resolved arguments as Megatron-LM prints them, a model_config.yaml, a
/// --yaml-cfg file, or a launch script; which of them follows from the text.
MegatronSource read_megatron_source(const ImportRequest& request, Diagnostics& diagnostics);

}  // namespace lockstep::importers
