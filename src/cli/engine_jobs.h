// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "src/cli/options.h"

namespace lockstep::cli {

/// Calls work(check, files) and returns its exit status, with a GPU opened where the cuda engine is named (CudaFailure
/// where there is none). With the mpi or the nccl engine that happens in process 0 of a job, while the others only
/// replay: those of the job in which this process is, or else of one that is started here, with this command line, and
/// waited for. Returns the exit status of all. Throws InputError for what is wrong in the options and
/// for files that are not there.
int with_engines(CommonOptions& options, const std::vector<std::string>& paths,
                 const std::function<int(const CheckOptions&, const std::vector<std::string>& files)>& work);

/// Where the arguments name the mpi engine and another process of the job says everything, this one says nothing.
void silence_all_but_first(const std::vector<std::string>& arguments);

/// The status with which this process is to end: in a job that start_under_mpirun() began, what the program has to say
/// goes to where that reads it, so that mpirun does not take a mismatch for a failure.
int hand_over_status(int status);

}  // namespace lockstep::cli
