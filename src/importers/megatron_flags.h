// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "src/importers/settings.h"
#include "src/importers/words.h"

namespace lockstep::importers {

/// An argument of Megatron-LM, a row of src/importers/megatron_arguments.jsonc.
struct MegatronArgument {
  enum class Takes { none, one, optional, any, some };  // as argparse's nargs: -, 1, ?, *, +
  std::string key;                                      ///< its name among the resolved arguments
  Takes takes = Takes::one;
  bool sets = true;    ///< what it means where it takes nothing
  std::string origin;  ///< the dataclass or function of Megatron-LM that it stems from
};

/// All arguments of Megatron-LM by their flags ("--tensor-model-parallel-size"), also some that are gone.
const std::map<std::string, MegatronArgument, std::less<>>& megatron_flags();
/// The origin of a resolved argument; "" where there is none of that name.
std::string megatron_origin(std::string_view key);

/// The settings that a command line of Megatron-LM makes, as its argument parser reads it: no abbreviated flags, the
/// last of several wins. What is no argument of Megatron-LM is kept under its own name. `broken` gets those that have
/// no value, or more than one, where they need one and do not matter for gradients; where it is null they are mistakes.
Settings read_megatron_arguments(const std::vector<Word>& words, bool ignore_unknown, Diagnostics& diagnostics,
                                 std::vector<std::string>* broken = nullptr);

/// Adds one argument as if it stood on the command line: of a map from flags to values.
void add_megatron_flag(const std::string& flag, const Place& place, const Json& value, Settings& into,
                       Diagnostics& diagnostics);

}  // namespace lockstep::importers
