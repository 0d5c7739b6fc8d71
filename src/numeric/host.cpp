// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <mutex>
#include <optional>

#include "lockstep/numeric.h"
#include "src/numeric/parallel.h"
#include "src/numeric/replay_results.h"

namespace lockstep {

std::string_view name_of(Arithmetic arithmetic) {
  switch (arithmetic) {
    case Arithmetic::bfloat16:
      return "bfloat16";
    case Arithmetic::float16:
      return "float16";
    case Arithmetic::float32:
      return "float32";
    case Arithmetic::float64:
      return "float64";
    case Arithmetic::prime61:
      return "prime61";
  }
  throw InternalError("an arithmetic of unknown kind");
}

namespace numeric {

namespace {

class HostRun {
 public:
  HostRun(const Schedule& schedule, const Timeline& timeline, const HostOptions& options)
      : schedule_(schedule),
        options_(options),
        preparation_(schedule, timeline, options.force_all, options.seed),
        results_(schedule, timeline) {}

  HostResult run() {
    const int threads = thread_count(options_.threads);
    const std::vector<std::size_t> chosen = preparation_.chosen();
    parallel_for(chosen.size(), threads, [&](std::size_t index) { preparation_.look_at(chosen[index]); });
    preparation_.decide();
    const std::vector<Task> tasks = preparation_.tasks();
    PlanStore plans(preparation_.planner(), preparation_.components(), preparation_.prepared(), tasks);
    for (const Task& task : tasks) {
      if (!task.in_field) all_ += preparation_.elements_of(task);
    }
    parallel_for(tasks.size(), threads, [&](std::size_t index) { perform(tasks[index], plans); });
    HostResult result = results_.collect(preparation_);
    result.elements = elements_;
    return result;
  }

 private:
  void perform(const Task& task, PlanStore& plans) {
    const auto bound = plans.get(task.component);
    std::optional<ReplayOptions> options =
        replay_options(task, preparation_.prepared()[task.component], bound->has_residues);
    if (options) {
      options->hashes = options->hashes && options_.hashes;
      const std::int64_t block = block_elements(preparation_.components().list[task.component]);
      merge(task, bound->plan, replay(schedule_.model, bound->plan, *options, task.elements, block));
    } else if (!task.in_field) {
      const std::lock_guard lock(mutex_);
      results_.give_up(task.component);
    }
    plans.release(task.component);
  }

  void merge(const Task& task, const Plan& plan, const Findings& found) {
    const std::lock_guard lock(mutex_);
    results_.merge(task, plan, found);
    if (task.in_field) return;
    elements_ += preparation_.elements_of(task);
    if (options_.progress) options_.progress(elements_, all_);
  }

  const Schedule& schedule_;
  const HostOptions& options_;
  Preparation preparation_;
  std::mutex mutex_;  // for everything below
  ReplayResults results_;
  std::int64_t elements_ = 0, all_ = 0;
};

}  // namespace

}  // namespace numeric

HostResult run_host(const Schedule& schedule, const Timeline& timeline, const HostOptions& options) {
  if (timeline.step_ends.empty()) return numeric::nothing_to_replay(schedule);
  return numeric::HostRun(schedule, timeline, options).run();
}

}  // namespace lockstep
