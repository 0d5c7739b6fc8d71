// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <stdexcept>
#include <string>

#include "lockstep/job.h"
#include "lockstep/numeric.h"

namespace lockstep {

namespace device {
class Transport;
}

/// Why the mpi engine cannot go on, as a sentence: a part of MPI is missing, or a process failed.
class MpiFailure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Whether the module that speaks MPI is there: it is built by itself, when it is asked for.
bool mpi_is_built();

/// The place of this process in a job, as the launcher (mpirun, srun) says in the environment; nothing where there is
/// none. Costs nothing and loads nothing.
struct MpiPlace {
  int process = 0;
  int processes = 1;
};
std::optional<MpiPlace> mpi_place();

/// A job whose processes talk to each other through MPI.
class MpiJob : public Job {
 public:
  /// Joins the job of this process's launcher; all processes. From here on this process ends when its launcher does.
  /// Throws MpiFailure where MPI is not there.
  static std::unique_ptr<MpiJob> join();
  /// Works over another transport.
  explicit MpiJob(std::unique_ptr<device::Transport> transport);
  device::Transport& transport() { return *transport_; }

 private:
  device::Transport* transport_;
};

/// Replays a timeline as run_host does, on the same numbers, but with real collectives between the processes of a job:
/// each holds the buffers of its ranks, an equal share of all. All processes, with the same scenario and options; what
/// is found is returned in process 0, and elsewhere an empty result.
///
/// Memory of a process: its walk through the schedule, and about 32 MiB for a block of its ranks' buffers, whatever the
/// model's size. HostOptions::threads and progress are not used.
/// Throws MpiFailure where this process cannot go on; then the job must be aborted.
HostResult run_mpi(const Schedule& schedule, const Timeline& timeline, const HostOptions& options, MpiJob& job);

}  // namespace lockstep
