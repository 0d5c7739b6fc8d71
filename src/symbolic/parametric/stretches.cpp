// SPDX-License-Identifier: Apache-2.0
#include "src/symbolic/parametric/stretches.h"

#include <algorithm>
#include <set>

#include "src/base/at.h"

namespace lockstep::parametric {

namespace {

const Step* step_named(const Schedule& schedule, const std::string& name) {
  const Step* found = nullptr;
  for (const Step& outer : schedule.steps) {
    if (outer.name == name) found = &outer;
    for (const Step& inner : outer.steps) {
      if (inner.name == name) found = &inner;
    }
  }
  return found;
}

}  // namespace

Stretches::Stretches(const World& world, const World& target, const ClassResult& result)
    : world_(world), target_(target), result_(result) {
  for (const Owner& owner : result.owners) {
    // Members of a group come in ascending order of rank: the level with the smallest stride varies fastest.
    std::vector<int>& levels = levels_.emplace_back(owner.levels);
    std::sort(levels.begin(), levels.end(),
              [&](int a, int b) { return target.levels()[at(a)].stride < target.levels()[at(b)].stride; });
  }
}

int Stretches::coordinate(int level, int constant) const {
  const Level& own = world_.levels()[at(level)];
  const int size = target_.levels()[at(level)].size;
  return own.open && constant > 0 && constant == own.size - 1 ? size - 1 : constant;
}

/// How each owner's step cuts the piece.
std::vector<Cut> Stretches::cuts(int logical, int piece) {
  const Schedule& schedule = target_.schedule();
  const Coordinates holders =
      target_.even(logical) ? Coordinates(target_.levels().size(), -1) : target_.holders(logical, piece);
  std::vector<Cut> cuts;
  if (!calls_) calls_.emplace(schedule, memory_.emplace(schedule));
  for (const Owner& owner : result_.owners) {
    if (!owner.inside.empty())
      throw OutOfReach(owner.step->name, "who owns which part of an owned part is not followed where it matters");
    const Step* step = step_named(schedule, owner.step->name);
    // A parameter of one stage has its owners there, whichever that is at these sizes.
    std::vector<int> stages;
    for (std::size_t stage = 0; stage < target_.ranks_of_stages().size(); ++stage) {
      if (schedule.model.buffer_of(target_.ranks_of_stages()[stage], logical) >= 0)
        stages.push_back(static_cast<int>(stage));
    }
    const int stage =
        stages.size() == 1 || world_.pp_level() < 0 ? stages.front() : coordinate(world_.pp_level(), owner.stage);
    int rank = target_.ranks_of_stages()[at(stage)];
    for (std::size_t level = 0; level < holders.size(); ++level)
      rank += std::max(holders[level], 0) * target_.levels()[level].stride;
    if (schedule.model.buffer_of(rank, logical) < 0) rank = -1;
    int n = 1;
    for (const int level : owner.levels) n *= target_.levels()[at(level)].size;
    if (step == nullptr || rank < 0) throw OutOfReach(owner.step->name, "it is not there at these sizes");
    const std::vector<int>& selected = calls_->selected(*step, rank);
    const auto position =
        std::find(selected.begin(), selected.end(), schedule.model.buffer_of(rank, logical)) - selected.begin();
    cuts.push_back(calls_->layout(*step, rank, n).cuts[at(position)]);
  }
  return cuts;
}

void Stretches::write(const std::vector<std::int64_t>& members, std::vector<Coordinates>& owners) const {
  for (std::size_t i = 0; i < members.size(); ++i) {
    auto left = static_cast<int>(members[i]);
    for (const int level : levels_[i]) {
      const int size = target_.levels()[at(level)].size;
      owners[i][at(level)] = left % size;
      left /= size;
    }
  }
}

void Stretches::visit(int logical, int piece, const std::function<void(const Stretch&)>& visitor) {
  const std::int64_t numel = target_.schedule().model.pieces(logical)[at(piece)].numel;
  if (numel == 0) return;
  const std::vector<Cut> cuts = this->cuts(logical, piece);
  Stretch stretch{{}, std::vector<Coordinates>(cuts.size(), Coordinates(target_.levels().size(), -1))};
  for (Overlaps overlaps(cuts, numel); !overlaps.done(); overlaps.next()) {
    stretch.elements = overlaps.elements();
    write(overlaps.members(), stretch.owners);
    visitor(stretch);
  }
}

/// By level: coordinates that are told apart from others, whoever owns the elements.
std::vector<std::vector<int>> Stretches::named(int logical, int piece) const {
  const Coordinates holders =
      target_.even(logical) ? Coordinates(target_.levels().size(), -1) : target_.holders(logical, piece);
  std::vector<std::vector<int>> named(target_.levels().size());
  for (std::size_t i = 0; i < named.size(); ++i) {
    const int level = static_cast<int>(i);
    for (const int constant : result_.diagrams->at_level(level).constants)
      named[i].push_back(coordinate(level, constant));
    if (holders[i] >= 0) named[i].push_back(holders[i]);
  }
  return named;
}

/// Where every kind comes up first.
Intervals Stretches::telling(const std::vector<Cut>& cuts, const std::vector<std::vector<int>>& named,
                             std::int64_t numel) const {
  std::vector<Comparison> comparisons;
  for (std::size_t i = 0; i < named.size(); ++i) {
    Comparison comparison{result_.diagrams->at_level(static_cast<int>(i)).owners, {}};
    comparison.members.assign(named[i].begin(), named[i].end());
    bool digits = false;  // of members: they have a coordinate on other levels as well
    for (const int owner : comparison.cuts) digits = digits || levels_[at(owner)].size() > 1;
    if (comparison.cuts.empty()) continue;
    if (digits) {
      const Cut& first = cuts[at(comparison.cuts.front())];
      const std::vector<int>& its_levels = levels_[at(comparison.cuts.front())];
      const bool one = std::all_of(comparison.cuts.begin(), comparison.cuts.end(), [&](int owner) {
        const Cut& cut = cuts[at(owner)];
        return cut.offset == first.offset && cut.length == first.length && levels_[at(owner)] == its_levels;
      });
      if (!one || !comparison.members.empty()) return {{0, numel}};
      continue;  // they are the same everywhere
    }
    comparisons.push_back(std::move(comparison));
  }
  return parametric::telling(cuts, comparisons, numel);
}

const std::vector<Stretch>& Stretches::kinds(int logical, int piece) {
  const auto [found, is_new] = kinds_.try_emplace({logical, piece});
  if (!is_new) return found->second;
  const std::int64_t numel = target_.schedule().model.pieces(logical)[at(piece)].numel;
  if (numel == 0) return found->second;
  const std::vector<Cut> cuts = this->cuts(logical, piece);
  const std::vector<std::vector<int>> named = this->named(logical, piece);
  std::vector<Coordinates> owners(cuts.size(), Coordinates(target_.levels().size(), -1));
  std::set<std::vector<int>> seen;
  std::vector<int> kind, coordinates;
  Overlaps overlaps(cuts, numel);
  for (const Interval& part : telling(cuts, named, numel)) {
    for (overlaps.skip_to(part.begin); !overlaps.done() && overlaps.elements().begin < part.end; overlaps.next()) {
      write(overlaps.members(), owners);
      kind.clear();  // for each owner on each level, the first name at the same coordinate
      for (std::size_t level = 0; level < named.size(); ++level) {
        coordinates = named[level];
        for (const int owner : result_.diagrams->at_level(static_cast<int>(level)).owners) {
          coordinates.push_back(owners[at(owner)][level]);
          kind.push_back(static_cast<int>(std::find(coordinates.begin(), coordinates.end(), coordinates.back()) -
                                          coordinates.begin()));
        }
      }
      if (seen.insert(kind).second) found->second.push_back({overlaps.elements(), owners});
    }
  }
  return found->second;
}

}  // namespace lockstep::parametric
