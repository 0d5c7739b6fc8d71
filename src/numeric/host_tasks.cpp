// SPDX-License-Identifier: Apache-2.0
#include "src/numeric/host_tasks.h"

#include <algorithm>
#include <tuple>

#include "src/numeric/windows.h"

namespace lockstep::numeric {

namespace {

// Components up to this size are replayed a second time in whole.
constexpr std::int64_t small_component = 4096;
// Element-steps that all second replays together may cost.
constexpr double field_limit = 3e8;
// Element-steps of one task: large enough to pay for its start, small enough to share out.
constexpr double task_cost = 2e7;
constexpr std::int64_t field_reach = 4;

double elements_in(const Intervals& elements) { return static_cast<double>(size(elements)); }

class TaskMaker {
 public:
  TaskMaker(const Components& components, const std::vector<Prepared>& prepared, const Sample& sample,
            std::uint64_t seed)
      : components_(components),
        prepared_(prepared),
        sampled_(sample.sampled),
        seed_(seed),
        share_(std::min(1.0, cost_limit / std::max(sample.cost, 1.0))) {
    // Neither kind of window may take longer than what it stands for.
    double windows = 0;
    for (const Prepared& each : prepared)
      windows += static_cast<double>(each.cuts.size()) * 2.0 * sample_reach * each.cost_per_element;
    if (windows > cost_limit / 4) cuts_share_ = cost_limit / 4 / windows;
  }

  std::vector<Task> make() {
    double small_cost = 0;
    for (std::size_t i = 0; i < components_.list.size(); ++i) {
      const Component& component = components_.list[i];
      const Prepared& prepared = prepared_[i];
      if (prepared.skipped || component.numel == 0) continue;
      const Intervals whole{{0, component.numel}};
      if (!component.aligned) {
        add(i, whole, false);
        add(i, whole, true);
        continue;
      }
      const auto kept = static_cast<std::size_t>(static_cast<double>(prepared.cuts.size()) * cuts_share_) + 2;
      const std::vector<std::int64_t> cuts = thin_out(prepared.cuts, kept, seed_ + i);
      add_first_replay(i, sampled_ ? sample(i, cuts) : whole);
      const double cost = static_cast<double>(component.numel) * prepared.cost_per_element;
      const bool is_small = component.numel <= small_component && !sampled_ && small_cost + cost < field_limit;
      if (is_small) small_cost += cost;
      add(i, is_small ? whole : around(cuts, field_reach, component.numel), true);
    }
    // The largest first, so that no thread is left with one at the end; a component's tasks one after the other, so
    // that few plans are in memory at once.
    std::vector<double> largest(components_.list.size());
    for (const Task& task : tasks_) largest[task.component] = std::max(largest[task.component], task.cost);
    std::stable_sort(tasks_.begin(), tasks_.end(), [&](const Task& a, const Task& b) {
      return std::tuple(-largest[a.component], a.component, -a.cost) <
             std::tuple(-largest[b.component], b.component, -b.cost);
    });
    return std::move(tasks_);
  }

 private:
  void add(std::size_t component, Intervals elements, bool in_field) {
    const Prepared& prepared = prepared_[component];
    if (in_field && prepared.choice.arithmetic == Arithmetic::prime61) return;  // the first replay was there already
    const double cost = elements_in(elements) * prepared.cost_per_element;
    tasks_.push_back({component, std::move(elements), in_field, cost});
  }

  void add_first_replay(std::size_t component, const Intervals& elements) {
    const std::int64_t block = block_elements(components_.list[component]);
    const auto blocks =
        static_cast<std::int64_t>(task_cost / (static_cast<double>(block) * prepared_[component].cost_per_element)) + 1;
    const std::int64_t part = blocks * block;
    Intervals waiting;
    std::int64_t held = 0;  // elements of them
    for (const Interval& interval : elements) {
      for (std::int64_t begin = interval.begin; begin < interval.end; begin += part) {
        waiting.push_back({begin, std::min(begin + part, interval.end)});
        held += waiting.back().size();
        if (held < part) continue;
        add(component, std::move(waiting), false);
        waiting.clear();
        held = 0;
      }
    }
    if (!waiting.empty()) add(component, std::move(waiting), false);
  }

  Intervals sample(std::size_t index, const std::vector<std::int64_t>& cuts) const {
    const Component& component = components_.list[index];
    const std::int64_t length = std::min(sample_block, block_elements(component));
    const auto count =
        static_cast<std::int64_t>(share_ / 2 * static_cast<double>(component.numel) / static_cast<double>(length)) + 1;
    return unite(around(cuts, sample_reach, component.numel),
                 random_blocks(component.numel, length, count, seed_ + index));
  }

  const Components& components_;
  const std::vector<Prepared>& prepared_;
  bool sampled_;
  std::uint64_t seed_;
  double share_;
  double cuts_share_ = 1;
  std::vector<Task> tasks_;
};

}  // namespace

std::vector<Task> make_tasks(const Components& components, const std::vector<Prepared>& prepared, const Sample& sample,
                             std::uint64_t seed) {
  return TaskMaker(components, prepared, sample, seed).make();
}

std::int64_t block_elements(const Component& component) {
  if (!component.aligned) return std::max<std::int64_t>(component.numel, 1);
  // All buffers of a block together should stay in the second-level cache.
  const auto share = static_cast<std::int64_t>(32768 / std::max<std::size_t>(component.nodes.size(), 1));
  return std::clamp<std::int64_t>(share / 512 * 512, 256, 8192);
}

std::optional<ReplayOptions> replay_options(const Task& task, const Prepared& prepared, bool has_residues) {
  ReplayOptions options;
  options.arithmetic = task.in_field ? Arithmetic::prime61 : prepared.choice.arithmetic;
  if (options.arithmetic == Arithmetic::prime61 && !has_residues) return std::nullopt;
  options.bits = prepared.choice.bits;
  options.hashed = prepared.hashed;
  options.hashes = !task.in_field;
  return options;
}

PlanStore::PlanStore(const Planner& planner, const Components& components, std::vector<Prepared>& prepared,
                     const std::vector<Task>& tasks)
    : planner_(planner), components_(components), prepared_(prepared), entries_(components.list.size()) {
  for (const Task& task : tasks) ++entries_[task.component].tasks_left;
}

std::shared_ptr<const PlanStore::Bound> PlanStore::get(std::size_t component) {
  Entry& entry = entries_[component];
  const std::lock_guard lock(entry.mutex);
  if (!entry.bound) {
    auto bound = std::make_shared<Bound>();
    std::unique_ptr<Plan>& kept = prepared_[component].plan;
    bound->plan = kept ? std::move(*kept) : planner_.plan(components_.list[component]);
    kept.reset();
    bound->has_residues = bind(bound->plan, prepared_[component].choice);
    entry.bound = std::move(bound);
  }
  return entry.bound;
}

void PlanStore::release(std::size_t component) {
  Entry& entry = entries_[component];
  const std::lock_guard lock(entry.mutex);
  if (--entry.tasks_left == 0) entry.bound.reset();
}

}  // namespace lockstep::numeric
