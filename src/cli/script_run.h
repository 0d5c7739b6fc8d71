// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/diagnostic.h"

namespace lockstep::cli {

/// Compiled in: src/cli/*.sh, by name.
const std::map<std::string, std::string>& embedded_scripts();

/// What a launch script did when it was run where commands such as torchrun, python and srun write down their words.
struct ScriptRun {
  std::shared_ptr<const Source> source;            ///< the script
  std::vector<std::string> sourced;                ///< texts of the scripts that it reads, as far as its own text tells
  std::map<std::string, std::string> batch;        ///< variables of Slurm, by its #SBATCH lines
  std::vector<std::vector<std::string>> commands;  ///< each once, in the order in which they were started
  std::string said;              ///< the last line that it wrote, but for those of `set -x`; "" where it wrote none
  int status = 0;                ///< of the script; -1: it was stopped, after script_seconds or for what it has written
  bool asked_for_nodes = false;  ///< scontrol was asked for the nodes of the job, and told of one
  bool asked_for_gpus =
      false;  ///< nvidia-smi or PyTorch was asked for them, and told of eight or what #SBATCH lines say
  bool had_placeholders = false;  ///< <texts to be filled in> were taken for values
  std::vector<std::string>
      elsewhere;                  ///< files that it sources by a path of another machine, as the repository has them
  std::vector<std::string> made;  ///< folders that it writes to, which were not there and were made
  /// What stood in the configuration of DeepSpeed that the training names; null: none, or a file that is not there.
  std::shared_ptr<const Source> deepspeed;
};
inline constexpr int script_seconds = 20;

/// What a cluster tells its first node, and so the script, where the variables given do not say otherwise: names and
/// values. A script may start something else by them.
const std::vector<std::pair<std::string, std::string>>& first_node_variables();

/// Runs a script of bash with these variables (NAME=VALUE) and arguments alone, in a file system in memory: with no
/// network and no file of the machine but its libraries and, to be read, the folder of the script or of its repository,
/// by way of bubblewrap or of namespaces (unshare). Throws InputError for a script that cannot be read, and where
/// neither of them works: then nothing is run.
ScriptRun run_script(const std::string& script, const std::vector<std::string>& variables,
                     const std::vector<std::string>& arguments);

/// The commands of a run as a script that says nothing else, with the #SBATCH lines of the one that was run.
std::shared_ptr<const Source> as_plain_script(const ScriptRun& run);

}  // namespace lockstep::cli
