// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace lockstep::cli {

/// An argument of a launch script, $1 or a later one.
struct ScriptArgument {
  std::string name;                 ///< of the variable that takes its value; "" where none does
  std::string flag;                 ///< the argument of the training that gets it: "--micro-batch-size"; "": not seen
  std::vector<std::string> values;  ///< what the script compares it with: "dsw", "dlc"
  bool is_used = false;             ///< without a default of the script's own
};

/// The arguments that a script of bash takes, by its text: those of its functions are not among them. It is a guess,
/// good for advice.
std::vector<ScriptArgument> script_arguments(const std::string& text);

/// Whether it takes them one after the other (shift), as options: then their numbers say nothing.
bool shifts_arguments(const std::string& text);

/// The variables in capitals that it reads without a default and never sets, at most a few, in the order of the text.
std::vector<std::string> unset_variables(const std::string& text, const std::vector<std::string>& given);

/// Whether its text reads the variable, from its environment: it may before it sets it for sure. Rather once too often:
/// a mention is taken for a read.
bool reads_variable(const std::string& text, const std::string& name);

/// "ENV (dsw or dlc), MODEL_SIZE (0.5B, 1.5B or others), BATCH_SIZE (--micro-batch-size)", from the argument `first`
/// on.
std::string text_of(const std::vector<ScriptArgument>& arguments, std::size_t first);

}  // namespace lockstep::cli
