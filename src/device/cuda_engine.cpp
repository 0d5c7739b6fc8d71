// SPDX-License-Identifier: Apache-2.0
#include "lockstep/cuda.h"
#include "src/device/gpu_replay.h"
#include "src/device/joined_tasks.h"
#include "src/numeric/parallel.h"
#include "src/numeric/replay_results.h"

namespace lockstep {

namespace device {

namespace {

class CudaRun {
 public:
  CudaRun(const Schedule& schedule, const Timeline& timeline, const HostOptions& options, Gpu& gpu)
      : schedule_(schedule),
        options_(options),
        gpu_(gpu),
        preparation_(schedule, timeline, options.force_all, options.seed),
        results_(schedule, timeline) {}

  HostResult run() {
    const std::vector<std::size_t> chosen = preparation_.chosen();
    numeric::parallel_for(chosen.size(), numeric::thread_count(options_.threads),
                          [&](std::size_t index) { preparation_.look_at(chosen[index]); });
    preparation_.decide();
    const std::vector<numeric::Task> tasks = joined(preparation_.tasks());
    const GpuMemoryPlan memory(gpu_.facts(), schedule_, preparation_, tasks);
    numeric::PlanStore plans(preparation_.planner(), preparation_.components(), preparation_.prepared(), tasks);
    for (const numeric::Task& task : tasks) {
      if (!task.in_field) all_ += preparation_.elements_of(task);
    }
    GpuReplay replay(gpu_, schedule_.model, memory.for_buffers);
    for (std::size_t i = 0; i < tasks.size(); ++i) perform(tasks[i], memory.block_elements[i], plans, replay);
    HostResult result = results_.collect(preparation_);
    result.elements = elements_;
    return result;
  }

 private:
  void perform(const numeric::Task& task, std::int64_t most, numeric::PlanStore& plans, GpuReplay& replay) {
    const auto bound = plans.get(task.component);
    const auto options = numeric::replay_options(task, preparation_.prepared()[task.component], bound->has_residues);
    if (options) {
      results_.merge(task, bound->plan, replay.replay(bound->plan, *options, task.elements, most));
      if (!task.in_field) elements_ += preparation_.elements_of(task);
      if (options_.progress && !task.in_field) options_.progress(elements_, all_);
    } else if (!task.in_field) {
      results_.give_up(task.component);
    }
    plans.release(task.component);
  }

  const Schedule& schedule_;
  const HostOptions& options_;
  Gpu& gpu_;
  numeric::Preparation preparation_;
  numeric::ReplayResults results_;
  std::int64_t elements_ = 0, all_ = 0;
};

}  // namespace

}  // namespace device

CudaDevice::CudaDevice(std::unique_ptr<device::Gpu> gpu) : gpu_(std::move(gpu)) {}
CudaDevice::~CudaDevice() = default;
const std::string& CudaDevice::name() const { return gpu_->facts().name; }

HostResult run_cuda(const Schedule& schedule, const Timeline& timeline, const HostOptions& options, CudaDevice& cuda) {
  if (timeline.step_ends.empty()) return numeric::nothing_to_replay(schedule);
  try {
    return device::CudaRun(schedule, timeline, options, cuda.gpu()).run();
  } catch (const device::GpuFailure& failure) {
    throw CudaFailure(failure.what());
  }
}

}  // namespace lockstep
