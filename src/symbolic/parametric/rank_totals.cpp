// SPDX-License-Identifier: Apache-2.0
#include "src/symbolic/parametric/rank_totals.h"

#include <algorithm>
#include <functional>
#include <map>

#include "src/base/at.h"

namespace lockstep::parametric {

namespace {

/// Calls `visitor` with the places of one choice after the other, the first level varying fastest.
void for_each_choice(const std::vector<std::size_t>& sizes,
                     const std::function<void(const std::vector<std::size_t>&)>& visitor) {
  std::vector<std::size_t> choice(sizes.size(), 0);
  if (std::find(sizes.begin(), sizes.end(), 0u) != sizes.end()) return;
  while (true) {
    visitor(choice);
    std::size_t level = 0;
    while (level < sizes.size() && ++choice[level] == sizes[level]) choice[level++] = 0;
    if (level == sizes.size()) return;
  }
}

std::vector<std::size_t> kinds_of(const std::vector<RankTotals::Alike>& levels) {
  std::vector<std::size_t> kinds;
  kinds.reserve(levels.size());
  for (const RankTotals::Alike& level : levels) kinds.push_back(level.kinds());
  return kinds;
}

}  // namespace

RankTotals::RankTotals(const World& world, const ClassResult& result, Evaluation& evaluation, Stretches& stretches,
                       ClassValues& values, int optimizer_step)
    : world_(world),
      result_(result),
      evaluation_(evaluation),
      stretches_(stretches),
      values_(values),
      optimizer_step_(optimizer_step) {
  counts_norms_ = std::any_of(result.cells.begin(), result.cells.end(), [&](const Cell& cell) {
    return is_of_norm(cell.fault) && cell.optimizer_step == optimizer_step;
  });
}

std::vector<int> RankTotals::Alike::all(std::size_t kind) const {
  if (kind < named.size()) return {named[kind]};
  std::vector<int> others;
  for (int coordinate = other; coordinate < size; ++coordinate) {
    if (std::find(named.begin(), named.end(), coordinate) == named.end()) others.push_back(coordinate);
  }
  return others;
}

std::vector<RankTotals::Alike> RankTotals::alike(const Stretch& stretch, int logical,
                                                 const Coordinates& holders) const {
  std::vector<Alike> levels;
  for (std::size_t i = 0; i < world_.levels().size(); ++i) {
    const int level = static_cast<int>(i);
    Alike& here = levels.emplace_back();
    here.size = world_.levels()[i].size;
    if (holders[i] >= 0) {
      here.named.push_back(holders[i]);
      continue;
    }
    if (level == world_.pp_level()) {
      for (int stage = 0; stage < here.size; ++stage) {
        const int rank = world_.ranks_of_stages()[at(stage)];
        if (counts_norms_ || world_.schedule().model.buffer_of(rank, logical) >= 0) here.named.push_back(stage);
      }
      continue;
    }
    const auto is_named = [&](int coordinate) {
      return std::find(here.named.begin(), here.named.end(), coordinate) != here.named.end();
    };
    const auto name = [&](int coordinate) {
      if (coordinate >= 0 && !is_named(coordinate)) here.named.push_back(coordinate);
    };
    const Level& own = result_.diagrams->at_level(level);
    for (const int constant : own.constants) name(stretches_.coordinate(level, constant));
    for (const int owner : own.owners) name(stretch.owners[at(owner)][i]);
    int other = 0;
    while (other < here.size && is_named(other)) ++other;
    if (other < here.size) here.other = other;
  }
  return levels;
}

std::vector<std::size_t> RankTotals::pattern(const Stretch& stretch, const std::vector<Alike>& levels) const {
  std::vector<std::size_t> names;
  for (std::size_t i = 0; i < levels.size(); ++i) {
    const Level& own = result_.diagrams->at_level(static_cast<int>(i));
    const std::vector<int>& named = levels[i].named;
    const auto add_name = [&](int coordinate) {
      names.push_back(static_cast<std::size_t>(std::find(named.begin(), named.end(), coordinate) - named.begin()));
    };
    for (const int constant : own.constants) add_name(stretches_.coordinate(static_cast<int>(i), constant));
    for (const int owner : own.owners) add_name(stretch.owners[at(owner)][i]);
    names.push_back(levels[i].kinds());
  }
  return names;
}

/// For each choice of a kind on every level, asked of the first rank of that kind.
std::vector<RankTotals::Status> RankTotals::statuses(const Stretch& stretch, int logical,
                                                     const std::vector<Alike>& levels) const {
  std::vector<Status> all;
  for_each_choice(kinds_of(levels), [&](const std::vector<std::size_t>& choice) {
    Evaluation::Elements elements{stretch.owners, Coordinates(levels.size(), -1), {}};
    int rank = 0;
    for (std::size_t i = 0; i < levels.size(); ++i) {
      elements.rank.push_back(levels[i].first(choice[i]));
      rank += elements.rank.back() * world_.levels()[i].stride;
    }
    Status& status = all.emplace_back();
    const bool held = world_.schedule().model.buffer_of(rank, logical) >= 0;
    status.owned = held && values_.owned(optimizer_step_, rank, stretch.owners);
    for (const Cell& cell : result_.cells) {
      if (status.wrong) break;
      if (cell.optimizer_step != optimizer_step_ || cell.fault == Fault::race) continue;
      if (!held && !is_of_norm(cell.fault)) continue;
      status.wrong = evaluation_.exists(cell, &elements);
    }
  });
  return all;
}

void RankTotals::add(int logical, std::vector<bool>& wrong, std::vector<std::int64_t>& owned, std::int64_t& stretches) {
  const Model& model = world_.schedule().model;
  const int pieces = world_.even(logical) ? 1 : static_cast<int>(model.pieces(logical).size());
  if (pieces > 1 && counts_norms_)
    throw OutOfReach("", "norms are wrong, in which ranks count pieces that they do not hold");
  for (int piece = 0; piece < pieces; ++piece) {
    const Coordinates holders = pieces == 1 ? Coordinates(world_.levels().size(), -1) : world_.holders(logical, piece);
    std::map<std::vector<std::size_t>, std::vector<Status>> known;  // by pattern
    stretches_.visit(logical, piece, [&](const Stretch& stretch) {
      if (--stretches < 0) throw OutOfReach("", "the buffers are cut into too many stretches to look at each");
      const std::vector<Alike> levels = alike(stretch, logical, holders);
      std::vector<std::size_t> names = pattern(stretch, levels);
      auto found = known.find(names);
      if (found == known.end()) found = known.emplace(std::move(names), statuses(stretch, logical, levels)).first;
      auto next_status = found->second.begin();
      for_each_choice(kinds_of(levels), [&](const std::vector<std::size_t>& choice) {
        const Status here = *next_status++;
        if (!here.owned && !here.wrong) return;
        std::vector<int> ranks = {0};
        for (std::size_t i = 0; i < levels.size(); ++i) {
          std::vector<int> more;
          for (const int coordinate : levels[i].all(choice[i])) {
            for (const int rank : ranks) more.push_back(rank + coordinate * world_.levels()[i].stride);
          }
          ranks = std::move(more);
        }
        for (const int rank : ranks) {
          if (here.owned) owned[at(rank)] += stretch.elements.size();
          if (here.wrong) wrong[at(rank)] = true;
        }
      });
    });
  }
}

}  // namespace lockstep::parametric
