// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace lockstep::cli {

/// Runs this program with `arguments` in `processes` processes under mpirun, whose output is this program's, and waits
/// for its end. Returns the exit status of process 0; where mpirun is missing or a process died, says so and returns 3;
/// where a signal ended it, 128 and the signal's number. However this program ends, no process of it is left.
int start_under_mpirun(int processes, const std::vector<std::string>& arguments);

/// The variable that names the file into which process 0 writes its exit status.
inline constexpr const char* status_file_variable = "LOCKSTEP_STATUS_FILE";

/// Runs this program with `arguments` in `processes` processes of this machine, one for each GPU, which share a board
/// and are joined by sockets (device::GpuJobPlace), and waits for their end. Returns the exit status of process 0;
/// where one failed or died, says the one sentence that tells most, and returns 3; where a signal ended this program,
/// 128 and the signal's number. However this program ends, no process of it is left.
int start_gpu_processes(int processes, const std::vector<std::string>& arguments);

}  // namespace lockstep::cli
