// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <new>

#include "lockstep/mpi.h"
#include "src/device/local_plan.h"
#include "src/device/process_replay.h"
#include "src/device/shared_run.h"

namespace lockstep {

HostResult run_mpi(const Schedule& schedule, const Timeline& timeline, const HostOptions& options, MpiJob& job) {
  if (timeline.step_ends.empty()) return job.process() == 0 ? numeric::nothing_to_replay(schedule) : HostResult{};
  try {
    device::SharedRun run(schedule, timeline, options, job.transport());
    run.prepare();
    return run.run([&](const numeric::Task& task, const numeric::Plan& plan, const numeric::ReplayOptions& how) {
      const device::LocalPlan local(plan, run.folding(), job.process());
      return device::replay_in_process(schedule.model, plan, how, local, job.transport(), task.elements);
    });
  } catch (const std::bad_alloc&) {
    throw MpiFailure(fmt::format("process {} of {} is out of memory", job.process(), job.processes()));
  }
}

}  // namespace lockstep
