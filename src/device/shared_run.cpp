// SPDX-License-Identifier: Apache-2.0
#include "src/device/shared_run.h"

#include "src/device/joined_tasks.h"
#include "src/device/message.h"

namespace lockstep::device {

namespace {

Rational rational(MessageReader& reader) {
  const auto value = Rational::parse(reader.take_text());
  if (!value) throw InternalError("a message between processes holds no fraction where one is expected");
  return *value;
}

}  // namespace

SharedRun::SharedRun(const Schedule& schedule, const Timeline& timeline, const HostOptions& options,
                     Messenger& messenger)
    : messenger_(messenger),
      folding_(schedule.mesh.world(), messenger.processes()),
      preparation_(schedule, timeline, options.force_all, options.seed),
      results_(schedule, timeline) {}

/// Looking at a component means planning it: each process does a part of them and tells the others.
void SharedRun::prepare() {
  MessageWriter own;
  const std::vector<std::size_t> chosen = preparation_.chosen();
  const auto processes = static_cast<std::size_t>(messenger_.processes());
  for (auto i = static_cast<std::size_t>(messenger_.process()); i < chosen.size(); i += processes) {
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
  const std::vector<std::string> all = messenger_.all_gather(own.take());
  for (std::size_t process = 0; process < processes; ++process) {
    if (static_cast<int>(process) == messenger_.process()) continue;
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
  tasks_ = joined(preparation_.tasks());
}

bool SharedRun::any_rank_here(std::size_t component) const {
  const Interval ranks = folding_.ranks_of(messenger_.process());
  for (const numeric::BufferNode& node : preparation_.components().list[component].nodes) {
    if (node.rank >= ranks.begin && node.rank < ranks.end) return true;
  }
  return false;
}

HostResult SharedRun::run(const Perform& perform) {
  numeric::PlanStore plans(preparation_.planner(), preparation_.components(), preparation_.prepared(), tasks_);
  for (const numeric::Task& task : tasks_) {
    if (!any_rank_here(task.component)) continue;
    const auto bound = plans.get(task.component);
    const auto options = numeric::replay_options(task, preparation_.prepared()[task.component], bound->has_residues);
    if (options) {
      results_.merge(task, bound->plan, perform(task, bound->plan, *options));
    } else if (!task.in_field) {
      results_.give_up(task.component);
    }
    plans.release(task.component);
  }
  gather();
  if (messenger_.process() != 0) return {};
  HostResult result = results_.collect(preparation_);
  for (const numeric::Task& task : tasks_) {
    if (!task.in_field && !results_.given_up().contains(task.component))
      result.elements += preparation_.elements_of(task);
  }
  return result;
}

/// Process 0 gets what the others found about the buffers of their ranks.
void SharedRun::gather() {
  MessageWriter own;
  const auto [first, end] = buffers_of(messenger_.process());
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
  const std::vector<std::string> all = messenger_.gather(own.take());
  for (std::size_t process = 1; process < all.size(); ++process) read(static_cast<int>(process), all[process]);
}

void SharedRun::read(int process, const std::string& text) {
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
std::pair<std::size_t, std::size_t> SharedRun::buffers_of(int process) const {
  const Interval ranks = folding_.ranks_of(process);
  return {results_.first_of(static_cast<int>(ranks.begin)), results_.first_of(static_cast<int>(ranks.end))};
}

}  // namespace lockstep::device
