// SPDX-License-Identifier: Apache-2.0
#include "src/symbolic/parametric/stretches.h"

#include <algorithm>

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
    : world_(world), target_(target), result_(result) {}

int Stretches::coordinate(int level, int constant) const {
  const Level& own = world_.levels()[static_cast<std::size_t>(level)];
  const int size = target_.levels()[static_cast<std::size_t>(level)].size;
  return own.open && constant > 0 && constant == own.size - 1 ? size - 1 : constant;
}

/// How each owner's step cuts the piece.
std::vector<Cut> Stretches::cuts(int logical, int piece) {
  const Schedule& schedule = target_.schedule();
  const Coordinates holders =
      target_.even(logical) ? Coordinates(target_.levels().size(), -1) : target_.holders(logical, piece);
  std::vector<Cut> cuts;
  if (!calls_) calls_.emplace(schedule, selections_);
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
    int rank = target_.ranks_of_stages()[static_cast<std::size_t>(stage)];
    for (std::size_t level = 0; level < holders.size(); ++level)
      rank += std::max(holders[level], 0) * target_.levels()[level].stride;
    if (schedule.model.buffer_of(rank, logical) < 0) rank = -1;
    int n = 1;
    for (const int level : owner.levels) n *= target_.levels()[static_cast<std::size_t>(level)].size;
    if (step == nullptr || rank < 0) throw OutOfReach(owner.step->name, "it is not there at these sizes");
    const std::vector<int>& selected = calls_->selected(*step, rank);
    const auto position =
        std::find(selected.begin(), selected.end(), schedule.model.buffer_of(rank, logical)) - selected.begin();
    cuts.push_back(calls_->layout(*step, rank, n).cuts[static_cast<std::size_t>(position)]);
  }
  return cuts;
}

const std::vector<Stretch>& Stretches::of(int logical, int piece) {
  const auto [found, is_new] = known_.try_emplace({logical, piece});
  if (!is_new) return found->second;
  const std::int64_t numel = target_.schedule().model.pieces(logical)[static_cast<std::size_t>(piece)].numel;
  if (numel == 0) return found->second;
  const std::vector<Cut> cuts = this->cuts(logical, piece);
  for (std::int64_t begin = 0; begin < numel;) {
    Stretch stretch{{begin, numel}, {}};
    for (std::size_t i = 0; i < cuts.size(); ++i) {
      const Cut& cut = cuts[i];
      const auto member = static_cast<int>((begin + cut.offset) / cut.length);
      stretch.elements.end = std::min(stretch.elements.end, (member + 1) * cut.length - cut.offset);
      // Members of a group come in ascending order of rank: the level with the smallest stride varies fastest.
      Coordinates& coordinates = stretch.owners.emplace_back(target_.levels().size(), -1);
      std::vector<int> levels = result_.owners[i].levels;
      std::sort(levels.begin(), levels.end(), [&](int a, int b) {
        return target_.levels()[static_cast<std::size_t>(a)].stride <
               target_.levels()[static_cast<std::size_t>(b)].stride;
      });
      int left = member;
      for (const int level : levels) {
        const int size = target_.levels()[static_cast<std::size_t>(level)].size;
        coordinates[static_cast<std::size_t>(level)] = left % size;
        left /= size;
      }
    }
    begin = stretch.elements.end;
    found->second.push_back(std::move(stretch));
  }
  return found->second;
}

}  // namespace lockstep::parametric
