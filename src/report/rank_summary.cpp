// SPDX-License-Identifier: Apache-2.0
#include "src/report/rank_summary.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "lockstep/parametric.h"
#include "lockstep/scenario.h"
#include "lockstep/timeline.h"
#include "src/base/at.h"
#include "src/diagnosis/fold_names.h"
#include "src/report/rank_grid.h"

namespace lockstep::report {

namespace {

constexpr int most_rows_of_ranks = 64;

/// The coordinates of one axis, shared out to at most 64 lines.
struct Lines {
  Axis axis;
  int size = 1, together = 1;

  Lines(const Mesh& mesh, Axis which) : axis(which), size(mesh.size(which)) {
    together = (size + most_rows_of_ranks - 1) / most_rows_of_ranks;
  }
  int count() const { return (size + together - 1) / together; }
  int line_of(const Mesh& mesh, int rank) const { return mesh.coordinate(rank, axis) / together; }
  std::string name(int line) const {
    const int first = line * together, last = std::min(size, first + together) - 1;
    return first == last ? fmt::format("{} {}", name_of(axis), first)
                         : fmt::format("{} {}-{}", name_of(axis), first, last);
  }
};

struct Fault {
  std::set<int> ranks;
  bool sampled = false;  ///< they stand for others
};

/// Ranks that are wrong in value, or that a failure names.
Fault ranks_at_fault(const CheckResult& result, const ParametricRanks* all) {
  Fault fault;
  if (all != nullptr) {
    for (std::size_t rank = 0; rank < all->wrong.size(); ++rank) {
      if (all->wrong[rank]) fault.ranks.insert(static_cast<int>(rank));
    }
    return fault;
  }
  if (result.verdict == Verdict::mismatch) {
    const WrongSet wrong = wrong_set(result);
    return {{wrong.ranks.begin(), wrong.ranks.end()}, sample_of(result) != nullptr};
  }
  if (result.timeline == nullptr) {
    fault.sampled = result.verdict != Verdict::match;
    return fault;
  }
  const Outcome& outcome = result.timeline->outcome;
  for (const Outcome::Stuck& stuck : outcome.stuck) fault.ranks.insert(stuck.rank);
  for (const Outcome::MemberCall& call : outcome.member_calls) fault.ranks.insert(call.rank);
  for (const Outcome::Race& race : outcome.races) fault.ranks.insert(race.rank);
  return fault;
}

/// What the engine of all ranks together says of each, where no other ran and it can.
std::optional<ParametricRanks> asked_of_all(const CheckResult& result) {
  ParametricEngine* engine = parametric_engine_of(result);
  if (result.timeline != nullptr || engine == nullptr) return std::nullopt;
  try {
    return engine->ranks();
  } catch (const InputError&) {
    return std::nullopt;
  }
}

RankSummary::Holding holding_of(const Model& model, const LocalModel& local) {
  RankSummary::Holding holding;
  holding.buffers = local.buffers.size();
  std::vector<std::pair<std::string, int>> folded;
  std::map<std::string, std::size_t> index;
  for (const LocalBuffer& buffer : local.buffers) {
    holding.elements += buffer.numel;
    const std::string& name = model.parameters()[at(buffer.parameters.front())].name;
    const std::string pattern = diagnosis::folded_name(name);
    const auto [place, fresh] = index.emplace(pattern, folded.size());
    if (fresh) folded.emplace_back(name, 0);
    if (++folded[place->second].second > 1) folded[place->second].first = pattern;
  }
  for (const auto& [name, count] : folded) {
    holding.names.push_back(count == 1 ? name : fmt::format("{} ({})", name, count));
  }
  return holding;
}

std::optional<std::int64_t> owned_by(const CheckResult& result, const ParametricRanks* all, int rank) {
  if (all != nullptr) return all->owned[at(rank)];
  const std::size_t step = at(result.step);
  if (result.timeline == nullptr || step >= result.timeline->owned.size()) return std::nullopt;
  std::int64_t owned = 0;
  for (const Intervals& intervals : result.timeline->owned[step][at(rank)]) owned += size(intervals);
  return owned;
}

}  // namespace

RankSummary rank_summary(const CheckResult& result) {
  const Schedule& schedule = *result.scenario->schedule;
  const Mesh& mesh = schedule.mesh;
  const auto [row_axis, column_axis, others] = grid_axes(mesh);
  const Lines rows(mesh, row_axis), columns(mesh, column_axis);
  RankSummary summary;
  for (int row = 0; row < rows.count(); ++row) summary.rows.push_back(rows.name(row));
  for (int column = 0; column < columns.count(); ++column) summary.columns.push_back(columns.name(column));
  std::vector<std::string> folded;
  folded.reserve(others.size());
  for (const Axis axis : others) folded.push_back(fmt::format("{} {}", name_of(axis), mesh.size(axis)));
  summary.folded = fmt::format("{}", fmt::join(folded, " × "));
  summary.cells.resize(summary.rows.size() * summary.columns.size());
  const std::optional<ParametricRanks> all = asked_of_all(result);
  const Fault fault = ranks_at_fault(result, all ? &*all : nullptr);
  summary.sampled = fault.sampled;
  for (int rank = 0; rank < mesh.world(); ++rank) {
    const int row = rows.line_of(mesh, rank), column = columns.line_of(mesh, rank);
    RankSummary::Cell& cell = summary.cells[at(row) * summary.columns.size() + at(column)];
    cell.row = row;
    cell.column = column;
    cell.ranks.push_back(rank);
    if (fault.ranks.contains(rank)) cell.wrong.push_back(rank);
  }
  std::map<int, int> by_local;  // the local model's id
  std::map<std::tuple<std::size_t, std::int64_t, std::vector<std::string>>, int> by_content;
  for (RankSummary::Cell& cell : summary.cells) {
    const int rank = cell.ranks.front();
    const LocalModel& local = schedule.model.local(rank);
    const auto [place, fresh] = by_local.emplace(local.id, 0);
    if (fresh) {
      RankSummary::Holding holding = holding_of(schedule.model, local);
      const auto [known, other] = by_content.emplace(std::tuple(holding.buffers, holding.elements, holding.names),
                                                     static_cast<int>(summary.holdings.size()));
      place->second = known->second;
      if (other) summary.holdings.push_back(std::move(holding));
    }
    cell.holding = place->second;
    cell.owned = owned_by(result, all ? &*all : nullptr, rank);
  }
  return summary;
}

}  // namespace lockstep::report
