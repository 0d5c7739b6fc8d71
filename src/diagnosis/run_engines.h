// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "lockstep/check.h"

namespace lockstep {

/// The job that the scenario is checked in; null where this process is alone.
Job* job_of(const CheckOptions& options);

/// Engines that run on the timeline of `result` and keep what they find, and how long it took, there.
void run_symbolic(CheckResult& result);
/// `threads` as HostOptions::threads.
void run_host_engine(CheckResult& result, const CheckOptions& options, int threads);
/// With all processes of the job; process 0 keeps what is found.
void run_mpi_engine(CheckResult& result, const CheckOptions& options);
void run_nccl_engine(CheckResult& result, const CheckOptions& options);
/// What does not fit into the GPU's memory is left out where another engine runs, else an error.
void run_cuda_engine(CheckResult& result, const CheckOptions& options);
void run_transformer_engine(CheckResult& result, const CheckOptions& options);
/// Needs no timeline. Returns why it has no verdict; "" where it has one.
std::string run_parametric_engine(CheckResult& result);

}  // namespace lockstep
