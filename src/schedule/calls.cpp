// SPDX-License-Identifier: Apache-2.0
#include "src/schedule/calls.h"

#include <algorithm>

#include "src/base/at.h"

namespace lockstep::schedule {

std::vector<Position> unroll(const Schedule& schedule) {
  std::vector<Position> list;
  for (int optimizer_step = 0; optimizer_step < schedule.batch.steps(); ++optimizer_step) {
    for (const Step& step : schedule.steps) {
      if (step.op != Op::each) {
        list.push_back({&step, nullptr, optimizer_step, -1});
        continue;
      }
      for (int micro_batch = 0; micro_batch < schedule.batch.micro_batches(optimizer_step); ++micro_batch) {
        for (const Step& inner : step.steps) list.push_back({&inner, &step, optimizer_step, micro_batch});
      }
    }
    list.push_back({nullptr, nullptr, optimizer_step, -1});
  }
  return list;
}

Environment Calls::environment(const Position& position, int rank) const {
  Environment result;
  result.mesh = &schedule_->mesh;
  result.counts = &schedule_->batch;
  result.rank = rank;
  result.step = position.optimizer_step;
  if (position.micro_batch >= 0) result.micro_batch = position.micro_batch;
  return result;
}

// A mistake that shows only on some rank is still the user's: at the expression, naming the rank.
template <class Function>
auto Calls::evaluated(const Step& step, const Place& place, const char* key, int rank, Function function) {
  try {
    return function();
  } catch (const ExpressionError& error) {
    throw mistake_in(place, error,
                     "in \"" + std::string(key) + "\" of step \"" + step.name + "\", on rank " + std::to_string(rank));
  }
}

bool Calls::condition(const Step& step, const Position& position, int rank) {
  for (const Only& only : step.only) {
    const int coordinate = schedule_->mesh.coordinate(rank, only.axis);
    if (std::find(only.coordinates.begin(), only.coordinates.end(), coordinate) == only.coordinates.end()) return false;
  }
  if (!step.when) return true;
  const auto evaluate = [&] {
    return evaluated(step, step.places->when, "when", rank,
                     [&] { return step.when->truth(environment(position, rank)); });
  };
  if (step.when->uses_rank()) return evaluate();
  const auto [found, is_new] =
      conditions_.emplace(std::tuple(&step, position.optimizer_step, position.micro_batch), false);
  if (is_new) found->second = evaluate();
  return found->second;
}

bool Calls::runs(const Position& position, int rank) {
  if (position.each) {
    const Position entry{position.each, nullptr, position.optimizer_step, -1};
    if (!condition(*position.each, entry, rank)) return false;
  }
  return condition(*position.step, position, rank);
}

const std::vector<int>& Calls::selected(const Step& step, int rank) {
  const LocalModel& local = schedule_->model.local(rank);
  const std::vector<int>*& found = selected_[{&step, local.id}];
  if (!found) found = &memory_->selected(step.params, local);
  return *found;
}

GeometryLayout Calls::layout(const Step& step, int rank, int n, const std::vector<int>& buffers,
                             const std::vector<std::int64_t>& numels) {
  const LocalModel& local = schedule_->model.local(rank);
  std::vector<GeometryItem> items;
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    const LocalBuffer& buffer = local.buffers[at(buffers[i])];
    const std::int64_t row = buffer.rows > 0 ? std::max<std::int64_t>(buffer.numel / buffer.rows, 1) : 1;
    const bool separate = step.geometry->separate && step.geometry->separate->chooses(schedule_->model, buffer);
    // Part of a buffer is cut by as many rows as it fills, the last perhaps in part.
    const std::int64_t rows = numels[i] == buffer.numel ? buffer.rows : (numels[i] + row - 1) / row;
    items.push_back({numels[i], rows, row, buffer.chunk, buffer.dtype, separate});
  }
  Environment names;
  names.mesh = &schedule_->mesh;
  names.counts = &schedule_->batch;
  return evaluated(step, step.geometry->place, "geometry", rank,
                   [&] { return lay_out(*step.geometry, items, n, names); });
}

const GeometryLayout& Calls::layout(const Step& step, int rank, int n) {
  const LocalModel& local = schedule_->model.local(rank);
  std::unique_ptr<GeometryLayout>& found = layouts_[{&step, local.id, n}];
  if (!found) {
    const std::vector<int>& buffers = selected(step, rank);
    std::vector<std::int64_t> numels;
    numels.reserve(buffers.size());
    for (int buffer : buffers) numels.push_back(local.buffers[at(buffer)].numel);
    found = std::make_unique<GeometryLayout>(layout(step, rank, n, buffers, numels));
  }
  return *found;
}

Rational Calls::by(const Position& position, int rank) {
  const Step& step = *position.step;
  if (!step.by) return Rational(1);
  const auto evaluate = [&] {
    return evaluated(step, step.places->by, "by", rank,
                     [&] { return memory_->by(step, rank, position.optimizer_step, position.micro_batch); });
  };
  if (step.by->uses_rank()) return evaluate();
  const auto [found, is_new] =
      factors_of_.emplace(std::tuple(&step, position.optimizer_step, position.micro_batch), Rational());
  if (is_new) found->second = evaluate();
  return found->second;
}

void Calls::check_backward(const Position& position, int rank) {
  const Step& step = *position.step;
  if (!step.by) return;
  // Without rank or tokens in it one evaluation stands for all ranks; else one for each rank
  // that a class of buffers evaluates it on.
  const bool shared = !step.by->uses_rank();
  if (shared && backward_checked_[{&step, position.optimizer_step, position.micro_batch}]) return;
  const Contributions& contributions = memory_->contributions();
  std::vector<char> seen(static_cast<std::size_t>(contributions.classes()), 0);
  int last = -1;
  for (int buffer : selected(step, rank)) {
    char& done = seen[at(contributions.class_of(rank, buffer))];
    if (done) continue;
    done = 1;
    for (const Contribution& contribution :
         contributions.of(rank, buffer, position.optimizer_step, position.micro_batch, step.uses)) {
      if (contribution.evaluated_on == last) continue;
      last = contribution.evaluated_on;
      const Rational value = evaluated(step, step.places->by, "by", last, [&] {
        return memory_->by(step, last, position.optimizer_step, position.micro_batch);
      });
      if (value.is_zero()) {
        throw InputError(
            {{step.places->by, "\"by\" of the backward \"" + step.name + "\" is 0 on rank " + std::to_string(last) +
                                   "; a contribution cannot be multiplied by 0: use \"when\" or \"only\" to leave "
                                   "it out"}});
      }
      if (shared) {
        backward_checked_[{&step, position.optimizer_step, position.micro_batch}] = true;
        return;
      }
    }
  }
}

bool Calls::counts(const Position& position, int rank) {
  const Step& step = *position.step;
  if (!step.count) return true;
  return evaluated(step, step.places->count, "count", rank,
                   [&] { return step.count->truth(environment(position, rank)); });
}

}  // namespace lockstep::schedule
