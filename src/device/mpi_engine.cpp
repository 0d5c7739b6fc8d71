// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <new>

#include "lockstep/mpi.h"
#include "src/device/joined_tasks.h"
#include "src/device/local_plan.h"
#include "src/device/message.h"
#include "src/device/process_replay.h"
#include "src/numeric/replay_results.h"

namespace lockstep {

namespace device {

namespace {

Rational rational(MessageReader& reader) {
  const auto value = Rational::parse(reader.take_text());
  if (!value) throw InternalError("a message between processes holds no fraction where one is expected");
  return *value;
}

class MpiRun {
 public:
  MpiRun(const Schedule& schedule, const Timeline& timeline, const HostOptions& options, Transport& transport)
      : schedule_(schedule),
        transport_(transport),
        folding_(schedule.mesh.world(), transport.processes()),
        preparation_(schedule, timeline, options.force_all, options.seed),
        results_(schedule, timeline) {}

  HostResult run() {
    prepare();
    const std::vector<numeric::Task> tasks = joined(preparation_.tasks());
    numeric::PlanStore plans(preparation_.planner(), preparation_.components(), preparation_.prepared(), tasks);
    for (const numeric::Task& task : tasks) perform(task, plans);
    gather();
    if (transport_.process() != 0) return {};
    HostResult result = results_.collect(preparation_);
    for (const numeric::Task& task : tasks) {
      if (!task.in_field && !results_.given_up().contains(task.component))
        result.elements += preparation_.elements_of(task);
    }
    return result;
  }

 private:
  /// Looking at a component means planning it: each process does a part of them and tells the others.
  void prepare() {
    MessageWriter own;
    const std::vector<std::size_t> chosen = preparation_.chosen();
    const auto processes = static_cast<std::size_t>(transport_.processes());
    for (auto i = static_cast<std::size_t>(transport_.process()); i < chosen.size(); i += processes) {
      preparation_.look_at(chosen[i]);
      const numeric::Prepared& prepared = preparation_.prepared()[chosen[i]];
      own.add_text(prepared.need.multiple.to_string());
      own.add_text(prepared.need.spread.to_string());
      own.add(prepared.need.lowest);
      own.add(prepared.need.highest);
      own.add(prepared.cost_per_element);
      own.add(static_cast<std::uint64_t>(prepared.cuts.size()));
      for (const std::int64_t cut : prepared.cuts) own.add(cut);
    }
    const std::vector<std::string> all = transport_.all_gather(own.take());
    for (std::size_t process = 0; process < processes; ++process) {
      if (static_cast<int>(process) == transport_.process()) continue;
      MessageReader reader(all[process]);
      for (std::size_t i = process; i < chosen.size(); i += processes) {
        numeric::Prepared& prepared = preparation_.prepared()[chosen[i]];
        prepared.need.multiple = rational(reader);
        prepared.need.spread = rational(reader);
        prepared.need.lowest = reader.take<int>();
        prepared.need.highest = reader.take<int>();
        prepared.cost_per_element = reader.take<double>();
        prepared.cuts.resize(reader.take<std::uint64_t>());
        for (std::int64_t& cut : prepared.cuts) cut = reader.take<std::int64_t>();
      }
    }
    preparation_.decide();
  }

  bool any_rank_here(std::size_t component) const {
    const Interval ranks = folding_.ranks_of(transport_.process());
    for (const numeric::BufferNode& node : preparation_.components().list[component].nodes) {
      if (node.rank >= ranks.begin && node.rank < ranks.end) return true;
    }
    return false;
  }

  void perform(const numeric::Task& task, numeric::PlanStore& plans) {
    if (!any_rank_here(task.component)) return;
    const auto bound = plans.get(task.component);
    const auto options = numeric::replay_options(task, preparation_.prepared()[task.component], bound->has_residues);
    if (options) {
      const LocalPlan local(bound->plan, folding_, transport_.process());
      results_.merge(task, bound->plan,
                     replay_in_process(schedule_.model, bound->plan, *options, local, transport_, task.elements));
    } else if (!task.in_field) {
      results_.give_up(task.component);
    }
    plans.release(task.component);
  }

  /// Process 0 gets what the others found about the buffers of their ranks.
  void gather() {
    MessageWriter own;
    const auto [first, end] = buffers_of(transport_.process());
    for (const auto& step : results_.buffers()) {
      for (std::size_t i = first; i < end; ++i) {
        own.add(step[i].right);
        own.add(step[i].hash);
        own.add(step[i].expected_hash);
      }
    }
    for (const auto& step : results_.references()) {
      for (const GradientHash& hash : step) own.add(hash);
    }
    for (const std::size_t component : results_.given_up()) own.add(static_cast<std::uint64_t>(component));
    const std::vector<std::string> all = transport_.gather(own.take());
    for (std::size_t process = 1; process < all.size(); ++process) read(static_cast<int>(process), all[process]);
  }

  void read(int process, const std::string& text) {
    MessageReader reader(text);
    const auto [first, end] = buffers_of(process);
    for (auto& step : results_.buffers()) {
      for (std::size_t i = first; i < end; ++i) {
        step[i].right = reader.take<bool>();
        step[i].hash = reader.take<GradientHash>();
        step[i].expected_hash = reader.take<GradientHash>();
      }
    }
    for (auto& step : results_.references()) {
      for (GradientHash& hash : step) hash += reader.take<GradientHash>();
    }
    while (!reader.at_end()) results_.give_up(reader.take<std::uint64_t>());
  }

  /// Numbers of the buffers of a process's ranks.
  std::pair<std::size_t, std::size_t> buffers_of(int process) const {
    const Interval ranks = folding_.ranks_of(process);
    return {results_.first_of(static_cast<int>(ranks.begin)), results_.first_of(static_cast<int>(ranks.end))};
  }

  const Schedule& schedule_;
  Transport& transport_;
  Folding folding_;
  numeric::Preparation preparation_;
  numeric::ReplayResults results_;
};

}  // namespace

}  // namespace device

HostResult run_mpi(const Schedule& schedule, const Timeline& timeline, const HostOptions& options, MpiJob& job) {
  if (timeline.step_ends.empty()) return job.process() == 0 ? numeric::nothing_to_replay(schedule) : HostResult{};
  try {
    return device::MpiRun(schedule, timeline, options, job.transport()).run();
  } catch (const std::bad_alloc&) {
    throw MpiFailure(fmt::format("process {} of {} is out of memory", job.process(), job.processes()));
  }
}

}  // namespace lockstep
