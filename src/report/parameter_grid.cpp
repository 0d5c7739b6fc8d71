// SPDX-License-Identifier: Apache-2.0
#include "src/report/parameter_grid.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "lockstep/scenario.h"
#include "src/base/at.h"

namespace lockstep::report {

namespace {

bool contains(const Intervals& set, std::int64_t element) {
  return std::any_of(set.begin(), set.end(),
                     [&](const Interval& interval) { return interval.begin <= element && element < interval.end; });
}

}  // namespace

ParameterGrids::ParameterGrids(const CheckResult& result, std::vector<GridRequest> requests, std::size_t most,
                               std::size_t widest)
    : result_(result), schedule_(*result.scenario->schedule), requests_(std::move(requests)), widest_(widest) {
  const Model& model = schedule_.model;
  const Mesh& mesh = schedule_.mesh;
  std::map<std::pair<int, int>, std::vector<std::size_t>> watches_of;
  for (const GridRequest& request : requests_) {
    const int logical = model.local(request.rank).buffers[at(request.buffer)].logical;
    std::vector<bool> holds(static_cast<std::size_t>(mesh.world()));
    for (int rank = 0; rank < mesh.world(); ++rank) {
      const int buffer = model.buffer_of(rank, logical);
      holds[at(rank)] = buffer >= 0 && model.local(rank).buffers[at(buffer)].numel > request.elements.begin;
    }
    plans_.push_back(plan_grid(mesh, holds, request.rank, most));
    CellMap& cells = cells_.emplace_back();
    for (const GridPlan::Block& block : plans_.back().blocks) {
      auto& rows = cells.emplace_back();
      for (const std::vector<int>& line : block.ranks) {
        auto& row = rows.emplace_back();
        for (const int rank : line) {
          std::optional<Cell>& cell = row.emplace_back();
          if (rank < 0) continue;
          cell = Cell{watches_.size(), rank, model.buffer_of(rank, logical)};
          watches_of[{rank, cell->buffer}].push_back(watches_.size());
          watches_.push_back({rank, cell->buffer, request.elements.begin});
        }
      }
    }
  }
  ownership_.resize(watches_.size());
  for (const OwnershipChange& change : result.timeline->ownership) {
    const auto watching = watches_of.find({change.rank, change.buffer});
    if (watching == watches_of.end()) continue;
    for (const std::size_t watch : watching->second) ownership_[watch].push_back(&change);
  }
  history_ = diagnosis::record_history(schedule_, *result.timeline, watches_, result.step);
  formulas_.emplace(schedule_, *history_.engine);
}

const diagnosis::HistoryEntry* ParameterGrids::entry_at(std::size_t watch, const std::string& name, int time) const {
  const std::vector<diagnosis::HistoryEntry>& entries = history_.entries[watch];
  for (auto entry = entries.rbegin(); entry != entries.rend(); ++entry) {
    if (entry->step->buffer == name && result_.timeline->events[entry->event].time <= time) return &*entry;
  }
  return nullptr;
}

std::vector<Snapshot> ParameterGrids::snapshots(std::size_t request) const {
  const std::vector<Event>& events = result_.timeline->events;
  std::map<int, Snapshot> by_time;
  for (const auto& rows : cells_[request]) {
    for (const auto& row : rows) {
      for (const std::optional<Cell>& cell : row) {
        if (!cell) continue;
        std::map<std::string_view, int> form_of;  // by buffer: the form before
        for (const diagnosis::HistoryEntry& entry : history_.entries[cell->watch]) {
          const Event& event = events[entry.event];
          const auto [before, fresh] = form_of.emplace(entry.step->buffer, entry.content.form);
          const bool changed = fresh || before->second != entry.content.form || !operation(event.op).changes();
          before->second = entry.content.form;
          if (event.optimizer_step != result_.step) continue;
          Snapshot& snapshot = by_time[event.time];
          snapshot.time = event.time;
          snapshot.step = entry.step;
          snapshot.optimizer_step = event.optimizer_step;
          snapshot.micro_batch = event.micro_batch;
          snapshot.changed = snapshot.changed || changed;
        }
      }
    }
  }
  std::vector<Snapshot> snapshots;
  snapshots.reserve(by_time.size());
  for (auto& [time, snapshot] : by_time) snapshots.push_back(std::move(snapshot));
  // From here on the result stays as the optimizer gets it: those tables carry the final marks.
  std::size_t final = 0;
  for (std::size_t index = 0; index < snapshots.size(); ++index) {
    if (snapshots[index].changed && snapshots[index].step->buffer == schedule_.result) final = index;
  }
  for (std::size_t index = final; index < snapshots.size(); ++index) snapshots[index].last = true;
  return snapshots;
}

void ParameterGrids::fill(std::size_t request, Snapshot& snapshot) {
  snapshot.cells.clear();
  for (const auto& rows : cells_[request]) {
    auto& block = snapshot.cells.emplace_back();
    for (const auto& row : rows) {
      auto& line = block.emplace_back();
      for (const std::optional<Cell>& cell : row) line.push_back(cell ? cell_at(*cell, snapshot) : GridCell{});
    }
  }
}

const std::string& ParameterGrids::formula_of(const Cell& cell, int form) {
  const std::string& whole = formulas_->formula(form, cell.rank, cell.buffer, result_.step);
  if (whole.size() <= widest_) return whole;
  const auto [place, fresh] = elided_.try_emplace(&whole);
  if (fresh) place->second = elided(whole, widest_);
  return place->second;
}

GridCell ParameterGrids::cell_at(const Cell& cell, const Snapshot& snapshot) {
  GridCell shown;
  shown.held = true;
  const diagnosis::HistoryEntry* entry = entry_at(cell.watch, snapshot.step->buffer, snapshot.time);
  shown.formula = entry == nullptr ? "0" : formula_of(cell, entry->content.form);
  const std::int64_t element = watches_[cell.watch].element;
  shown.stale = !owns(cell, entry, element);
  const bool complete = static_cast<std::size_t>(result_.step) < result_.timeline->step_ends.size();
  if (!snapshot.last || !complete || snapshot.step->buffer != schedule_.result) return shown;
  shown.owner = hands_over(cell, element);
  const LocalBuffer& local = schedule_.model.local(cell.rank).buffers[at(cell.buffer)];
  const int reference = history_.engine->reference(local.logical, local.piece, result_.step);
  shown.wrong = shown.owner && (entry == nullptr || entry->content.form != reference);
  return shown;
}

bool ParameterGrids::owns(const Cell& cell, const diagnosis::HistoryEntry* until, std::int64_t element) const {
  if (until == nullptr) return true;
  const std::vector<Event>& events = result_.timeline->events;
  bool owned = true;
  for (const OwnershipChange* change : ownership_[cell.watch]) {
    if (change->event > until->event) break;
    // Ownership is whole again at the start of each optimizer step.
    if (events[change->event].optimizer_step == events[until->event].optimizer_step)
      owned = contains(change->owned, element);
  }
  return owned;
}

bool ParameterGrids::hands_over(const Cell& cell, std::int64_t element) const {
  const auto& owned = result_.timeline->owned[at(result_.step)];
  return contains(owned[at(cell.rank)][at(cell.buffer)], element);
}

std::string ParameterGrids::expected(std::size_t request) {
  const GridRequest& asked = requests_[request];
  const LocalBuffer& local = schedule_.model.local(asked.rank).buffers[at(asked.buffer)];
  const int reference = history_.engine->reference(local.logical, local.piece, result_.step);
  return formula_of({0, asked.rank, asked.buffer}, reference);
}

Interval ParameterGrids::elements(std::size_t request) const {
  Interval elements = requests_[request].elements;
  for (const auto& rows : cells_[request]) {
    for (const auto& row : rows) {
      for (const std::optional<Cell>& cell : row) {
        if (!cell) continue;
        for (const diagnosis::HistoryEntry& entry : history_.entries[cell->watch]) {
          if (result_.timeline->events[entry.event].optimizer_step == result_.step) {
            elements = intersect(elements, entry.content.elements);
          }
        }
      }
    }
  }
  return elements;
}

std::string snapshot_title(const Schedule& schedule, const Snapshot& snapshot) {
  std::string title = "after " + snapshot.step->name;
  if (schedule.batch.steps() > 1) title += fmt::format(", optimizer step {}", snapshot.optimizer_step);
  if (snapshot.micro_batch >= 0 && schedule.batch.total_micro_batches() > 1)
    title += fmt::format(", micro-batch {}", snapshot.micro_batch);
  if (snapshot.step->buffer != schedule.result) title += fmt::format(" (buffer {})", snapshot.step->buffer);
  return title;
}

std::vector<std::size_t> telling_snapshots(const CheckResult& result, const std::vector<Snapshot>& snapshots,
                                           std::optional<std::size_t> divergence_event, std::size_t most) {
  std::vector<std::size_t> changed;
  std::size_t before = 0;  // the last backward, as an index into `changed`
  for (std::size_t index = 0; index < snapshots.size(); ++index) {
    if (!snapshots[index].changed) continue;
    changed.push_back(index);
    if (operation(snapshots[index].step->op).adds == Operation::Adds::gradient) before = changed.size() - 1;
  }
  std::vector<std::size_t> telling(changed.begin() + static_cast<std::ptrdiff_t>(before), changed.end());
  if (telling.size() <= most || most < 3) return telling;
  std::vector<std::size_t> some = {telling.front()};
  const int divergence_time = divergence_event ? result.timeline->events[*divergence_event].time : -1;
  const std::size_t tail = telling.size() - (most - 2);  // room for the first and the first divergence
  for (std::size_t index = 1; index < telling.size(); ++index) {
    if (index >= tail || snapshots[telling[index]].time == divergence_time) some.push_back(telling[index]);
  }
  return some;
}

}  // namespace lockstep::report
