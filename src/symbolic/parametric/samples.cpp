// SPDX-License-Identifier: Apache-2.0
#include "src/symbolic/parametric/samples.h"

#include <algorithm>
#include <set>

#include "src/base/at.h"

namespace lockstep::parametric {

namespace {

/// Coordinates that a level tells apart in a stretch: those with a name, and one without.
std::vector<int> candidates(const ClassResult& result, const Stretches& stretches, const Stretch& stretch, int holder,
                            int level, int size) {
  const Level& own = result.diagrams->at_level(level);
  std::set<int> named = {holder};
  for (const int owner : own.owners) named.insert(stretch.owners[at(owner)][at(level)]);
  for (const int constant : own.constants) named.insert(stretches.coordinate(level, constant));
  named.erase(-1);
  for (int coordinate = 0; coordinate < size; ++coordinate) {
    if (!named.insert(coordinate).second) continue;
    break;
  }
  return {named.begin(), named.end()};
}

/// Which owners and constants of a stretch are one, on each level.
std::vector<Partition> pattern(const ClassResult& result, const Stretches& stretches, const Stretch& stretch) {
  std::vector<Partition> pattern;
  for (std::size_t i = 0; i < result.diagrams->levels().size(); ++i) {
    const Level& level = result.diagrams->at_level(static_cast<int>(i));
    std::map<int, std::uint16_t> blocks;
    Partition& names = pattern.emplace_back();
    const auto add = [&](int coordinate) {
      names.push_back(blocks.emplace(coordinate, static_cast<std::uint16_t>(blocks.size())).first->second);
    };
    for (const int constant : level.constants) add(stretches.coordinate(static_cast<int>(i), constant));
    for (const int owner : level.owners) add(stretch.owners[at(owner)][i]);
  }
  return pattern;
}

/// On the stages that hold the parameter, or on the others, where nothing but a norm can be wrong of it.
std::vector<Sample> samples_on(bool holders_of_it, const World& world, const ClassResult& result,
                               Evaluation& evaluation, Stretches& stretches, int logical, int optimizer_step,
                               std::size_t most) {
  std::vector<Sample> samples;
  std::set<std::pair<int, Fault>> seen;
  const Model& model = world.schedule().model;
  const int pieces = world.even(logical) ? 1 : static_cast<int>(model.pieces(logical).size());
  std::set<std::vector<Partition>> patterns;
  for (int piece = 0; piece < pieces; ++piece) {
    const Coordinates holders = pieces == 1 ? Coordinates(world.levels().size(), -1) : world.holders(logical, piece);
    if (pieces > 1) patterns.clear();  // other ranks hold it
    for (const Stretch& stretch : stretches.kinds(logical, piece)) {
      if (!patterns.insert(pattern(result, stretches, stretch)).second) continue;
      std::vector<std::vector<int>> choices;
      for (std::size_t i = 0; i < world.levels().size(); ++i) {
        const int level = static_cast<int>(i), size = world.levels()[i].size;
        if (level == world.pp_level()) {
          // A parameter of one stage stands for those of others as well: it is its own stages that count.
          std::vector<int>& stages = choices.emplace_back();
          for (int stage = 0; stage < size; ++stage) {
            if ((model.buffer_of(world.ranks_of_stages()[at(stage)], logical) >= 0) == holders_of_it)
              stages.push_back(stage);
          }
        } else {
          choices.push_back(candidates(result, stretches, stretch, holders[i], level, size));
        }
      }
      if (std::any_of(choices.begin(), choices.end(), [](const auto& of_level) { return of_level.empty(); })) continue;
      std::vector<std::size_t> choice(choices.size(), 0);
      for (std::size_t digit = 0; digit < choices.size() || choices.empty();) {
        Evaluation::Elements elements{stretch.owners, holders, {}};
        int rank = 0;
        bool holds_piece = true;
        for (std::size_t i = 0; i < choices.size(); ++i) {
          elements.rank.push_back(choices[i][choice[i]]);
          holds_piece = holds_piece && (holders[i] < 0 || holders[i] == elements.rank.back());
          rank += elements.rank.back() * world.levels()[i].stride;
        }
        for (const Cell& cell : result.cells) {
          if (cell.optimizer_step != optimizer_step || cell.fault == Fault::race ||
              !(is_of_norm(cell.fault) || holders_of_it))
            continue;
          if (!is_of_count(cell.fault) && !holds_piece) continue;
          if (seen.count({rank, cell.fault}) != 0 || !evaluation.tells(cell, elements)) continue;
          seen.emplace(rank, cell.fault);
          samples.push_back({rank, model.buffer_of(rank, logical), &cell, stretch.elements});
          if (samples.size() == most) return samples;
        }
        if (choices.empty()) break;
        for (digit = 0; digit < choices.size(); ++digit) {
          if (++choice[digit] < choices[digit].size()) break;
          choice[digit] = 0;
        }
      }
    }
  }
  return samples;
}

}  // namespace

std::vector<Sample> samples_of(const World& world, const ClassResult& result, Evaluation& evaluation,
                               Stretches& stretches, int logical, int optimizer_step, std::size_t most) {
  std::vector<Sample> samples = samples_on(true, world, result, evaluation, stretches, logical, optimizer_step, most);
  // A rank that holds nothing of the parameter may leave it out of its norm. A parameter that stands for those of other
  // stages too has its own stage alone as a name, so that the others say nothing of them.
  if (samples.empty() && world.pp_level() >= 0 && logical == result.members->logicals.front())
    samples = samples_on(false, world, result, evaluation, stretches, logical, optimizer_step, most);
  return samples;
}

}  // namespace lockstep::parametric
