// SPDX-License-Identifier: Apache-2.0
#include "src/report/parameter_history.h"

#include <algorithm>
#include <map>
#include <optional>

#include "lockstep/operation.h"
#include "lockstep/scenario.h"
#include "src/base/at.h"
#include "src/report/element_ranges.h"
#include "src/report/sections.h"

namespace lockstep::report {

namespace {

constexpr std::size_t widest_formula = 120;

/// Rows and columns that are shown: of many ranks fewer, since there are then blocks of them as well.
std::size_t most_lines_of_ranks(const CheckResult& result) { return result.scenario->layout.world() > 32 ? 4 : 8; }

bool is_held(const Model& model, int world, int parameter) {
  const int logical = model.logical_of(parameter);
  for (int rank = 0; rank < world; ++rank) {
    const int buffer = model.buffer_of(rank, logical);
    if (buffer < 0) continue;
    const LocalBuffer& local = model.local(rank).buffers[at(buffer)];
    if (local.numel > 0 &&
        std::find(local.parameters.begin(), local.parameters.end(), parameter) != local.parameters.end())
      return true;
  }
  return false;
}

std::vector<Subject> subjects_of(const CheckResult& result, std::size_t most) {
  const Schedule& schedule = *result.scenario->schedule;
  const Model& model = schedule.model;
  std::vector<Subject> subjects;
  const std::vector<ParameterFinding> wrong = collect_findings(result, false);
  std::optional<diagnosis::Formulas> formulas;
  if (symbolic_of(result) != nullptr) formulas.emplace(schedule, *forms_of(result));
  for (const Section& section : fold_findings(result, wrong, formulas ? &*formulas : nullptr)) {
    const int parameter = section.finding->parameter;
    if (subjects.size() >= most) break;
    if (!is_held(model, schedule.mesh.world(), parameter)) continue;
    subjects.push_back({parameter, wrong_request(*section.finding, request_for(result, parameter))});
  }
  if (!subjects.empty()) return subjects;
  std::optional<int> chosen;
  for (std::size_t index = 0; index < model.parameters().size(); ++index) {
    const int parameter = static_cast<int>(index);
    if (!is_held(model, schedule.mesh.world(), parameter)) continue;
    const bool tied = !model.parameters()[index].tied.empty();
    if (!chosen || tied) chosen = parameter;
    if (tied) break;
  }
  if (chosen) subjects.push_back({*chosen, request_for(result, *chosen)});
  return subjects;
}

/// One history, from the grids of its ranges: requests [first, first + count).
class HistoryBuilder {
 public:
  HistoryBuilder(const CheckResult& result, ParameterGrids& grids, std::size_t first, std::size_t count)
      : result_(result), schedule_(*result.scenario->schedule), grids_(grids), first_(first), count_(count) {}

  ParameterHistory build(int parameter) {
    logical_ = schedule_.model.logical_of(parameter);
    history_.parameter = schedule_.model.parameters()[at(parameter)].name;
    std::size_t widest = 0;
    for (std::size_t range = 0; range < count_; ++range) {
      const Interval elements = grids_.elements(first_ + range);
      history_.ranges.push_back(elements);
      history_.expected.push_back(grids_.expected(first_ + range));
      const std::size_t cells = ranks_of(grids_.plan(first_ + range)).size();
      if (cells > widest) {
        widest = cells;
        history_.plan = grids_.plan(first_ + range);
      }
    }
    history_.ranks = ranks_of(history_.plan);
    for (const int rank : history_.ranks) {
      const int buffer = schedule_.model.buffer_of(rank, logical_);
      history_.elements = std::max(history_.elements, schedule_.model.local(rank).buffers[at(buffer)].numel);
    }
    entries();
    return std::move(history_);
  }

 private:
  static std::vector<int> ranks_of(const GridPlan& plan) {
    std::vector<int> ranks;
    for (const GridPlan::Block& block : plan.blocks) {
      for (const std::vector<int>& row : block.ranks) {
        for (const int rank : row) {
          if (rank >= 0) ranks.push_back(rank);
        }
      }
    }
    std::sort(ranks.begin(), ranks.end());
    return ranks;
  }

  void entries() {
    std::map<int, std::vector<std::pair<int, Snapshot>>> by_time;  // with their ranges
    for (std::size_t range = 0; range < count_; ++range) {
      for (Snapshot& snapshot : grids_.snapshots(first_ + range))
        by_time[snapshot.time].emplace_back(static_cast<int>(range), std::move(snapshot));
    }
    const int micro_batches = schedule_.batch.micro_batches(result_.step);
    std::map<int, std::vector<std::vector<int>>> groups = groups_by_time();
    for (auto& [time, snapshots] : by_time) {
      const Snapshot& front = snapshots.front().second;
      ParameterHistory::Entry entry;
      entry.step = front.step;
      entry.micro_batch = front.micro_batch;
      entry.groups = std::move(groups[time]);
      const bool left_out = in_the_middle(front, micro_batches);
      for (auto& [range, snapshot] : snapshots) {
        entry.changed = entry.changed || snapshot.changed;
        if (left_out) continue;
        grids_.fill(first_ + static_cast<std::size_t>(range), snapshot);
        changes(range, snapshot, entry);
        snapshot.cells.clear();
      }
      if (left_out) {
        ++history_.entries_left_out;
      } else {
        history_.entries.push_back(std::move(entry));
      }
    }
  }

  void changes(int range, const Snapshot& snapshot, ParameterHistory::Entry& entry) {
    const GridPlan& plan = grids_.plan(first_ + static_cast<std::size_t>(range));
    for (std::size_t block = 0; block < snapshot.cells.size(); ++block) {
      for (std::size_t row = 0; row < snapshot.cells[block].size(); ++row) {
        for (std::size_t column = 0; column < snapshot.cells[block][row].size(); ++column) {
          const GridCell& cell = snapshot.cells[block][row][column];
          const int rank = plan.blocks[block].ranks[row][column];
          const auto place = std::lower_bound(history_.ranks.begin(), history_.ranks.end(), rank);
          if (!cell.held || place == history_.ranks.end() || *place != rank) continue;
          ParameterHistory::Change change{static_cast<int>(place - history_.ranks.begin()), range,
                                          formula(cell.formula), ""};
          if (cell.stale) change.marks += "~";
          if (cell.owner) change.marks += "*";
          if (cell.wrong) change.marks += "✗";
          auto held = std::make_pair(change.formula, change.marks);
          const auto [before, fresh] = held_.try_emplace({snapshot.step->buffer, change.rank, range}, held);
          if (!fresh && before->second == held) continue;
          before->second = std::move(held);
          entry.changes.push_back(std::move(change));
        }
      }
    }
  }

  int formula(const std::string& text) {
    const auto [place, fresh] = formulas_.emplace(text, static_cast<int>(history_.formulas.size()));
    if (fresh) history_.formulas.push_back(text);
    return place->second;
  }

  bool takes(const Call& call) const {
    const int buffer = schedule_.model.buffer_of(call.rank, logical_);
    return buffer >= 0 && call.buffers != nullptr &&
           std::find(call.buffers->begin(), call.buffers->end(), buffer) != call.buffers->end();
  }

  std::map<int, std::vector<std::vector<int>>> groups_by_time() const {
    std::map<int, std::vector<std::vector<int>>> groups;
    for (const Event& event : result_.timeline->events) {
      if (event.optimizer_step != result_.step || event.calls.size() < 2 || !takes(event.calls.front())) continue;
      std::vector<int> members;
      for (std::size_t index = 0; index < event.calls.size(); ++index) {
        const int rank = event.calls[index].rank;
        if (!std::binary_search(history_.ranks.begin(), history_.ranks.end(), rank)) continue;
        const bool root = event.root == static_cast<int>(index);
        members.insert(root ? members.begin() : members.end(), rank);
      }
      if (members.size() > 1) groups[event.time].push_back(std::move(members));
    }
    return groups;
  }

  const CheckResult& result_;
  const Schedule& schedule_;
  ParameterGrids& grids_;
  std::size_t first_, count_;
  int logical_ = 0;
  ParameterHistory history_;
  std::map<std::string, int> formulas_;
  // By buffer, rank and range: formula and marks.
  std::map<std::tuple<std::string, int, int>, std::pair<int, std::string>> held_;
};

}  // namespace

std::vector<ParameterHistory> parameter_histories(const CheckResult& result, std::size_t most) {
  if (result.timeline == nullptr || result.scenario->schedule == nullptr) return {};
  return histories_of(result, subjects_of(result, most));
}

std::vector<ParameterHistory> histories_of(const CheckResult& result, const std::vector<Subject>& subjects) {
  const Model& model = result.scenario->schedule->model;
  std::vector<GridRequest> requests;
  std::vector<std::size_t> first, left_out;
  for (const Subject& subject : subjects) {
    const std::vector<Interval> ranges = element_ranges(result, model.logical_of(subject.parameter));
    std::vector<GridRequest> some = requests_for(result, subject, ranges);
    keep_telling(some, subject.request.elements.begin);
    first.push_back(requests.size());
    left_out.push_back(ranges.size() - some.size());
    requests.insert(requests.end(), some.begin(), some.end());
  }
  if (requests.empty()) return {};
  ParameterGrids grids(result, requests, most_lines_of_ranks(result), widest_formula);
  std::vector<ParameterHistory> histories;
  for (std::size_t index = 0; index < subjects.size(); ++index) {
    const std::size_t end = index + 1 < first.size() ? first[index + 1] : requests.size();
    ParameterHistory history =
        HistoryBuilder(result, grids, first[index], end - first[index]).build(subjects[index].parameter);
    history.ranges_left_out = left_out[index];
    if (!history.entries.empty()) histories.push_back(std::move(history));
  }
  return histories;
}

}  // namespace lockstep::report
