// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <set>

#include "lockstep/numeric.h"
#include "src/numeric/host_tasks.h"
#include "src/numeric/parallel.h"
#include "src/numeric/windows.h"

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

// Plans of so many entries are made once and kept in memory; more of them twice, each only as long as it is needed.
constexpr double most_entries_kept = 1e5;

class HostRun {
 public:
  HostRun(const Schedule& schedule, const Timeline& timeline, const HostOptions& options)
      : schedule_(schedule),
        timeline_(timeline),
        options_(options),
        threads_(thread_count(options.threads)),
        components_(find_components(schedule, timeline)),
        planner_(schedule, timeline, components_),
        prepared_(components_.list.size()) {
    std::size_t count = 0;
    for (int rank = 0; rank < schedule.mesh.world(); ++rank) {
      first_.push_back(count);
      count += schedule.model.local(rank).buffers.size();
    }
    results_.assign(timeline.step_ends.size(), std::vector<HostBuffer>(count));
    references_.assign(timeline.step_ends.size(), std::vector<GradientHash>(schedule.model.logicals().size()));
  }

  HostResult run() {
    for (int rank = 0; rank < schedule_.mesh.world(); ++rank) {
      for (const LocalBuffer& buffer : schedule_.model.local(rank).buffers) result_.of += buffer.numel;
    }
    result_.reference.resize(schedule_.model.logicals().size());
    if (timeline_.step_ends.empty()) return std::move(result_);
    const Sample sample = choose();
    prepare(sample.entries <= most_entries_kept);
    const std::vector<Task> tasks = make_tasks(components_, prepared_, sample, options_.seed);
    PlanStore plans(planner_, components_, prepared_, tasks);
    for (const Task& task : tasks) {
      if (!task.in_field) all_ += elements_of(task);
    }
    parallel_for(tasks.size(), threads_, [&](std::size_t index) { perform(tasks[index], plans); });
    collect();
    return std::move(result_);
  }

 private:
  const LocalBuffer& buffer(const BufferNode& node) const {
    return schedule_.model.local(node.rank).buffers[static_cast<std::size_t>(node.buffer)];
  }
  std::size_t flat(const BufferNode& node) const {
    return first_[static_cast<std::size_t>(node.rank)] + static_cast<std::size_t>(node.buffer);
  }

  /// What is replayed at all. The rest is noted down.
  Sample choose() {
    std::vector<ComponentCost> costs;
    for (const Component& component : components_.list) costs.push_back(planner_.cost(component));
    Sample sample = choose_sample(components_, costs, options_.force_all, options_.seed);
    result_.sampled = sample.sampled;
    for (std::size_t i = 0; i < components_.list.size(); ++i) prepared_[i].skipped = !sample.chosen[i];
    if (sample.left_out > 0) {
      const auto is_result = [](const BufferNode& node) { return node.name == 0; };
      std::size_t replayed = 0;
      for (std::size_t i = 0; i < components_.list.size(); ++i) {
        const auto& nodes = components_.list[i].nodes;
        if (sample.chosen[i])
          replayed += static_cast<std::size_t>(std::count_if(nodes.begin(), nodes.end(), is_result));
      }
      result_.notes.push_back(fmt::format(
          "The sample has elements of {} of the {} gradient buffers, some of each kind, so that its cost is bounded; "
          "the others were not replayed (--engine symbolic,host replays all).",
          replayed, results_.front().size()));
    }
    return sample;
  }

  void prepare(bool keep_plans) {
    skip_what_is_too_large();
    parallel_for(components_.list.size(), threads_, [&](std::size_t index) {
      if (prepared_[index].skipped) return;
      Plan plan = planner_.plan(components_.list[index]);
      Prepared& prepared = prepared_[index];
      prepared.need = find_need(plan);
      prepared.cost_per_element = plan.cost_per_element;
      prepared.cuts = find_cuts(plan);
      if (keep_plans) prepared.plan = std::make_unique<Plan>(std::move(plan));
    });
    std::map<int, Need> needs;
    std::map<int, Dtype> dtypes;
    for (std::size_t i = 0; i < components_.list.size(); ++i) {
      if (prepared_[i].skipped) continue;
      const Component& component = components_.list[i];
      needs[component.family].join(prepared_[i].need);
      const Dtype dtype = buffer(component.nodes.front()).dtype;
      const auto [found, is_new] = dtypes.try_emplace(component.family, dtype);
      if (!is_new) found->second = wider(found->second, dtype);
    }
    for (std::size_t i = 0; i < components_.list.size(); ++i) {
      if (prepared_[i].skipped) continue;
      const int family = components_.list[i].family;
      prepared_[i].choice = choose_arithmetic(dtypes[family], needs[family]);
    }
    share_out_references();
    explain_arithmetic();
  }

  static Dtype wider(Dtype a, Dtype b) {
    const auto bits = [](Dtype dtype) { return dtype == Dtype::float64 ? 53 : dtype == Dtype::float32 ? 24 : 8; };
    return bits(a) < bits(b) ? b : a;
  }

  void skip_what_is_too_large() {
    for (std::size_t i = 0; i < components_.list.size(); ++i) {
      const Component& component = components_.list[i];
      const double bytes = static_cast<double>(component.nodes.size()) * static_cast<double>(component.numel) * 16;
      if (component.aligned || bytes <= block_limit || prepared_[i].skipped) continue;
      prepared_[i].skipped = true;
      result_.notes.push_back(fmt::format(
          "{} and the buffers that it meets act on elements at different places, so that their {:.0f} MiB would have "
          "to be in memory at once (the limit is {:.0f} MiB); they were not replayed.",
          name_of_parameter(component), bytes / 1048576, block_limit / 1048576));
    }
  }

  const std::string& name_of_parameter(const Component& component) const {
    return schedule_.model.parameters()[static_cast<std::size_t>(buffer(component.nodes.front()).parameters.front())]
        .name;
  }

  // Each piece of a logical parameter is hashed by the first component that holds it as a result.
  void share_out_references() {
    std::set<std::pair<int, int>> taken;
    for (std::size_t i = 0; i < components_.list.size(); ++i) {
      std::map<std::pair<int, int>, std::size_t> pieces;
      std::vector<char>& hashed = prepared_[i].hashed;
      for (const BufferNode& node : components_.list[i].nodes) {
        const std::pair key(buffer(node).logical, buffer(node).piece);
        const auto [found, is_new] = pieces.try_emplace(key, hashed.size());
        if (is_new) hashed.push_back(0);
        if (node.name == 0 && taken.insert(key).second) hashed[found->second] = 1;
      }
    }
  }

  void explain_arithmetic() {
    struct Group {
      std::set<int> logicals;
      int needed_bits = 0;
    };
    std::map<std::pair<Dtype, Arithmetic>, Group> groups;
    for (std::size_t i = 0; i < components_.list.size(); ++i) {
      if (prepared_[i].skipped) continue;
      for (const BufferNode& node : components_.list[i].nodes) {
        if (name_of(buffer(node).dtype) == name_of(prepared_[i].choice.arithmetic)) continue;
        Group& group = groups[{buffer(node).dtype, prepared_[i].choice.arithmetic}];
        group.logicals.insert(buffer(node).logical);
        group.needed_bits = std::max(group.needed_bits, prepared_[i].choice.needed_bits);
      }
    }
    for (const auto& [key, group] : groups) {
      const auto& [dtype, arithmetic] = key;
      const bool field = arithmetic == Arithmetic::prime61;
      result_.notes.push_back(
          fmt::format("{} parameter{} cannot be exact in {} (up to {} significant bits are needed); computed {}{}.",
                      group.logicals.size(), group.logicals.size() == 1 ? "" : "s", name_of(dtype), group.needed_bits,
                      field ? "modulo the prime 2^61 - 1" : "in ", field ? std::string_view() : name_of(arithmetic)));
    }
  }

  std::int64_t elements_of(const Task& task) const {
    std::int64_t count = 0;
    for (const BufferNode& node : components_.list[task.component].nodes) {
      if (node.name == 0) count += size(intersect(task.elements, Interval{0, buffer(node).numel}));
    }
    return count;
  }

  void perform(const Task& task, PlanStore& plans) {
    const auto bound = plans.get(task.component);
    const Prepared& prepared = prepared_[task.component];
    const bool in_field = task.in_field || prepared.choice.arithmetic == Arithmetic::prime61;
    if (!in_field || bound->has_residues) {
      ReplayOptions options;
      options.arithmetic = in_field ? Arithmetic::prime61 : prepared.choice.arithmetic;
      options.bits = prepared.choice.bits;
      options.hashed = prepared.hashed;
      options.hashes = !task.in_field;
      std::optional<Findings> found;
      for (const Interval& interval : task.elements) {
        Findings part =
            replay(schedule_.model, bound->plan, options, interval, block_elements(components_.list[task.component]));
        if (found) {
          found->add(part);
        } else {
          found = std::move(part);
        }
      }
      if (found) merge(task, bound->plan, *found);
    } else if (!task.in_field) {
      const std::lock_guard lock(mutex_);
      unreachable_.insert(task.component);
    }
    plans.release(task.component);
  }

  void merge(const Task& task, const Plan& plan, const Findings& found) {
    const std::lock_guard lock(mutex_);
    for (const PlannedEvent& planned : plan.events) {
      if (planned.event) continue;
      const PlannedNode& node = plan.nodes[static_cast<std::size_t>(planned.nodes.front())];
      HostBuffer& buffer = results_[static_cast<std::size_t>(planned.optimizer_step)][flat(node.node)];
      const Findings::Check& check = found.checks[static_cast<std::size_t>(planned.check)];
      buffer.right = buffer.right && check.right;
      buffer.hash += check.got;
      buffer.expected_hash += check.expected;
    }
    if (task.in_field) return;
    for (std::size_t step = 0; step < found.reference.size(); ++step) {
      for (std::size_t piece = 0; piece < plan.pieces.size(); ++piece) {
        references_[step][static_cast<std::size_t>(plan.pieces[piece].logical)] += found.reference[step][piece];
      }
    }
    result_.elements += elements_of(task);
    if (options_.progress) options_.progress(result_.elements, all_);
  }

  void collect() {
    for (const std::size_t component : unreachable_) {
      result_.notes.push_back(
          name_of_parameter(components_.list[component]) +
          " needs more bits than float64 has, and a factor that has no value modulo 2^61 - 1; it was not replayed.");
    }
    std::size_t step = 0;
    const auto wrong = [](const HostBuffer& buffer) { return !buffer.right; };
    while (step + 1 < results_.size() && std::none_of(results_[step].begin(), results_[step].end(), wrong)) ++step;
    result_.step = static_cast<int>(step);
    result_.buffers = std::move(results_[step]);
    result_.reference = std::move(references_[step]);
    result_.match = std::none_of(result_.buffers.begin(), result_.buffers.end(), wrong);
    for (std::size_t i = 0; i < components_.list.size(); ++i) {
      for (const BufferNode& node : components_.list[i].nodes) {
        if (node.name != 0) continue;
        HostBuffer& found = result_.buffers[flat(node)];
        found.rank = node.rank;
        found.buffer = node.buffer;
        found.arithmetic = prepared_[i].choice.arithmetic;
        found.replayed = !prepared_[i].skipped && !unreachable_.contains(i);
      }
    }
  }

  const Schedule& schedule_;
  const Timeline& timeline_;
  const HostOptions& options_;
  int threads_;
  Components components_;
  Planner planner_;
  std::vector<Prepared> prepared_;
  std::vector<std::size_t> first_;                     // by rank: number of its first buffer
  std::mutex mutex_;                                   // for everything below
  std::vector<std::vector<HostBuffer>> results_;       // by optimizer step and buffer
  std::vector<std::vector<GradientHash>> references_;  // by optimizer step and logical
  std::set<std::size_t> unreachable_;
  std::int64_t all_ = 0;
  HostResult result_;
};

}  // namespace

}  // namespace numeric

HostResult run_host(const Schedule& schedule, const Timeline& timeline, const HostOptions& options) {
  return numeric::HostRun(schedule, timeline, options).run();
}

}  // namespace lockstep
