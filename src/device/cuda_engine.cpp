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
        timeline_(timeline),
        options_(options),
        gpu_(gpu),
        preparation_(schedule, timeline, options.force_all, options.seed),
        results_(schedule, timeline) {}

  HostResult run() {
    const std::vector<numeric::Task> tasks = prepare();
    for_each(tasks, [&](const numeric::Task& task, GpuReplay& replay, const auto& bound, const auto& options,
                        std::int64_t most) {
      if (options) {
        const StreamOrder order(timeline_, bound.plan);
        results_.merge(task, bound.plan, replay.replay(bound.plan, *options, task.elements, most, order));
        report(task);
      } else if (!task.in_field) {
        results_.give_up(task.component);
      }
    });
    HostResult result = results_.collect(preparation_);
    result.elements = elements_;
    if (!note_.empty()) result.notes.push_back(note_);
    return result;
  }

  /// By replay: in how many sets of buffers it found other numbers.
  std::vector<int> race(int replays) {
    std::vector<int> different(static_cast<std::size_t>(replays));
    std::vector<numeric::Task> tasks = prepare();
    std::erase_if(tasks, [](const numeric::Task& task) { return task.in_field; });
    for_each(tasks, [&](const numeric::Task& task, GpuReplay& replay, const auto& bound, const auto& options,
                        std::int64_t most) {
      if (!options) return;
      replay.race(bound.plan, *options, task.elements, most, StreamOrder(timeline_, bound.plan), different);
      report(task);
    });
    return different;
  }

 private:
  std::vector<numeric::Task> prepare() {
    const std::vector<std::size_t> chosen = preparation_.chosen();
    numeric::parallel_for(chosen.size(), numeric::thread_count(options_.threads),
                          [&](std::size_t index) { preparation_.look_at(chosen[index]); });
    preparation_.decide();
    return joined(preparation_.tasks());
  }

  /// Calls work(task, replay, bound plan, replay options, elements of a block) for each.
  template <class Work>
  void for_each(const std::vector<numeric::Task>& tasks, const Work& work) {
    const GpuMemoryPlan memory(gpu_.facts(), schedule_, preparation_, tasks, options_.block_elements);
    note_ = memory.note;
    numeric::PlanStore plans(preparation_.planner(), preparation_.components(), preparation_.prepared(), tasks);
    for (const numeric::Task& task : tasks) {
      if (!task.in_field) all_ += preparation_.elements_of(task);
    }
    GpuReplay replay(gpu_, schedule_.model, memory.for_buffers);
    for (std::size_t i = 0; i < tasks.size(); ++i) {
      const std::size_t component = tasks[i].component;
      const auto bound = plans.get(component);
      const auto options = numeric::replay_options(tasks[i], preparation_.prepared()[component], bound->has_residues);
      work(tasks[i], replay, *bound, options, memory.block_elements[i]);
      plans.release(component);
    }
  }

  void report(const numeric::Task& task) {
    if (task.in_field) return;
    elements_ += preparation_.elements_of(task);
    if (options_.progress) options_.progress(elements_, all_);
  }

  const Schedule& schedule_;
  const Timeline& timeline_;
  const HostOptions& options_;
  Gpu& gpu_;
  numeric::Preparation preparation_;
  numeric::ReplayResults results_;
  std::int64_t elements_ = 0, all_ = 0;
  std::string note_;
};

}  // namespace

}  // namespace device

namespace {

/// Calls work(), with the failures that callers know.
template <class Work>
auto said_by_the_gpu(const Work& work) {
  try {
    return work();
  } catch (const device::GpuTooSmall& failure) {
    throw CudaTooSmall(failure.what());
  } catch (const device::GpuFailure& failure) {
    throw CudaFailure(failure.what());
  }
}

}  // namespace

CudaDevice::CudaDevice(std::unique_ptr<device::Gpu> gpu) : gpu_(std::move(gpu)) {}
CudaDevice::~CudaDevice() = default;
const std::string& CudaDevice::name() const { return gpu_->facts().name; }

HostResult run_cuda(const Schedule& schedule, const Timeline& timeline, const HostOptions& options, CudaDevice& cuda) {
  if (timeline.step_ends.empty()) return numeric::nothing_to_replay(schedule);
  return said_by_the_gpu([&] { return device::CudaRun(schedule, timeline, options, cuda.gpu()).run(); });
}

RaceReplays replay_race(const Schedule& schedule, const HostOptions& options, CudaDevice& cuda, int replays) {
  RaceReplays result;
  Timeline timeline;
  try {
    timeline = walk(schedule, AtRace::waits);
  } catch (const InputError& error) {
    result.why = "with its waits the schedule is not valid: " + error.diagnostics().front().message;
    return result;
  }
  if (timeline.step_ends.empty()) {
    result.why = "with its waits the schedule does not come to the end of an optimizer step either";
    return result;
  }
  const std::vector<int> different =
      said_by_the_gpu([&] { return device::CudaRun(schedule, timeline, options, cuda.gpu()).race(replays); });
  for (const int sets : different) result.different += sets > 0 ? 1 : 0;
  result.replays = replays;
  return result;
}

}  // namespace lockstep
