// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <vector>

namespace lockstep::importers {

/// The lines of a script that sbatch reads as its options: those that begin with "#SBATCH" in front of the first
/// command (sbatch(1), "DESCRIPTION").
std::vector<std::string> batch_lines(const std::string& script);

/// The variables that Slurm sets by these lines: names and values (sbatch(1), "OUTPUT ENVIRONMENT VARIABLES"). What
/// they leave open, as a range of nodes does, is missing.
std::map<std::string, std::string> batch_variables(const std::string& script);

/// The variables of a batch system by which scripts count nodes, ranks and GPUs.
const std::vector<std::string>& layout_variables();

}  // namespace lockstep::importers
