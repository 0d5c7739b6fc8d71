// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <unistd.h>

#include <charconv>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "lockstep/mpi.h"
#include "src/device/load_module.h"
#include "src/device/transport.h"

namespace lockstep {

namespace {

std::optional<int> number_in_environment(const char* name) {
  const char* text = std::getenv(name);
  if (text == nullptr) return std::nullopt;
  int value = 0;
  const auto [end, error] = std::from_chars(text, text + std::strlen(text), value);
  if (error != std::errc() || *end != '\0' || value < 0) return std::nullopt;
  return value;
}

/// Open MPI's processes live on, waiting or computing, when mpirun is killed, and nobody would ever stop them.
void end_with(pid_t parent) {
  std::thread([parent] {
    while (getppid() == parent) std::this_thread::sleep_for(std::chrono::milliseconds(200));
    constexpr int environment_failed = 3;
    _exit(environment_failed);
  }).detach();
}

}  // namespace

std::optional<MpiPlace> mpi_place() {
  struct Names {
    const char *process, *processes;
  };
  // Open MPI's mpirun; PMI of srun and others, which Open MPI joins as well.
  for (const Names& names : {Names{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"}, Names{"PMI_RANK", "PMI_SIZE"},
                             Names{"PMIX_RANK", "SLURM_STEP_NUM_TASKS"}}) {
    const auto process = number_in_environment(names.process);
    const auto processes = number_in_environment(names.processes);
    if (process && processes && *process < *processes) return MpiPlace{*process, *processes};
  }
  return std::nullopt;
}

std::unique_ptr<MpiJob> MpiJob::join() {
  const pid_t parent = getppid();
  auto job = std::make_unique<MpiJob>(device::open_transport());
  end_with(parent);
  return job;
}

MpiJob::MpiJob(std::unique_ptr<device::Transport> transport) : Job(std::move(transport)) {
  transport_ = static_cast<device::Transport*>(&messenger());
}

}  // namespace lockstep
