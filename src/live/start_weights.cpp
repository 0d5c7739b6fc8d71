// SPDX-License-Identifier: Apache-2.0
#include "src/live/start_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "src/base/at.h"
#include "src/base/counted.h"
#include "src/live/run_layout.h"
#include "src/live/words.h"

namespace lockstep::live {

namespace {

using Lanes = std::pair<std::uint64_t, std::uint64_t>;

Lanes lanes_of(const GradientHash& hash) { return {hash.lanes[0], hash.lanes[1]}; }

std::optional<std::size_t> stages_of(const CapturedRun& run) {
  for (std::size_t axis = 0; axis < run.header.axes.size(); ++axis) {
    const bool is_data = (run.data_axes >> axis & 1) != 0;
    if (run.header.axes[axis] == name_of(Axis::pp) && run.header.sizes[axis] > 1 && !is_data) return axis;
  }
  return std::nullopt;
}

/// Numbers of a rank's own parameters whose gradients it puts into a collective with ranks of other coordinates.
std::set<int> carried_along(const CapturedRun& run, const RankRecord& rank, std::uint32_t axis) {
  std::set<int> carried;
  for (const CapturedCollective& call : rank.collectives) {
    std::set<int> coordinates;
    for (const int member : call.group) {
      if (member < run.header.world) coordinates.insert(run.coordinates(member, axis));
    }
    if (coordinates.size() > 1) carried.insert(call.parameters.begin(), call.parameters.end());
  }
  return carried;
}

/// "0.weight", "0.weight and 3 others".
std::string some(const CapturedRun& run, const std::set<int>& parameters) {
  const std::string& first = run.parameters[at(*parameters.begin())].declared.name;
  return parameters.size() == 1 ? first : fmt::format("{} and {}", first, counted(parameters.size() - 1, "other"));
}

}  // namespace

void name_stages_apart(CapturedRun& run) {
  const std::optional<std::size_t> axis = stages_of(run);
  if (!axis) return;
  const std::uint32_t bit = std::uint32_t{1} << *axis;
  struct Held {
    std::map<int, std::set<std::pair<std::vector<std::int64_t>, std::optional<Lanes>>>> by_others;
    std::map<int, std::size_t> ranks_by_others;
    std::set<int> stages;
    bool carried = false, known = true, constant = false;
  };
  std::map<std::string, Held> all;
  for (const RankRecord& rank : run.ranks) {
    const std::set<int> carried = carried_along(run, rank, bit);
    for (std::size_t i = 0; i < rank.parameters.size(); ++i) {
      const DeclaredParameter& own = rank.parameters[i];
      Held& held = all[own.name];
      held.stages.insert(run.coordinates(rank.header.rank, bit));
      held.carried = held.carried || carried.contains(static_cast<int>(i));
      held.known = held.known && own.start.has_value();
      held.constant = held.constant || own.starts_constant;
      const std::optional<Lanes> start = own.start ? std::optional(lanes_of(*own.start)) : std::nullopt;
      const int others = run.other_coordinates(rank.header.rank, bit);
      held.by_others[others].emplace(own.shape, start);
      ++held.ranks_by_others[others];
    }
  }
  std::set<std::string> apart;
  bool are_mixed = false;  // gradients of different parameters, by a collective
  for (const auto& [name, held] : all) {
    if (held.stages.size() < 2) continue;
    // Copies of one parameter begin alike: what a collective adds up and is different everywhere is not one.
    const auto all_differ = [&held = held](const auto& one) {
      return one.second.size() > 1 && one.second.size() == held.ranks_by_others.at(one.first);
    };
    if (held.carried &&
        (!held.known || held.constant || !std::all_of(held.by_others.begin(), held.by_others.end(), all_differ)))
      continue;
    are_mixed = are_mixed || held.carried;
    for (const auto& [others, kinds] : held.by_others) {
      if ((held.known && kinds.size() > 1) || kinds.begin()->first != kinds.rbegin()->first) apart.insert(name);
    }
  }
  if (apart.empty()) return;
  // Names are a stage's own then, of what begins with the same zeros or ones as well: biases and norms do. That is a
  // guess, and the note says so.
  const std::string first = *apart.begin();
  const std::size_t others = apart.size() - 1;
  std::set<std::string> guessed;
  for (const auto& [name, held] : all) {
    const bool is_own = held.constant && (!held.carried || are_mixed);
    if (held.stages.size() > 1 && is_own && apart.insert(name).second) guessed.insert(name);
  }
  for (RankRecord& rank : run.ranks) {
    const int stage = run.coordinates(rank.header.rank, bit);
    for (DeclaredParameter& own : rank.parameters) {
      if (!apart.contains(own.name)) continue;
      own.name = fmt::format("pp{}.{}", stage, own.name);
      for (std::string& alias : own.aliases) alias = fmt::format("pp{}.{}", stage, alias);
    }
  }
  std::string note = fmt::format(
      "stages along pp have {}{} under one name and begin with different weights: they are taken as different "
      "parameters, pp0.{} and so on",
      first, others > 0 ? fmt::format(" and {}", counted(others, "other")) : "", first);
  if (!guessed.empty())
    note += fmt::format(
        "; so {} {}{}, which begin{} with one number everywhere, as biases and norms do: if they are tied, "
        "their gradients are not complete",
        guessed.size() == 1 ? "is" : "are", *guessed.begin(),
        guessed.size() > 1 ? fmt::format(" and {}", counted(guessed.size() - 1, "other")) : "",
        guessed.size() == 1 ? "s" : "");
  run.notes.push_back(note + ".");
}

void compare_start_weights(CapturedRun& run) {
  // By parameter: ranks that have one and the same part of it, and what they begin with.
  std::map<int, std::map<int, Lanes>> starts;
  std::map<int, std::map<Lanes, std::set<int>>> parts;  // of parameters that are cut
  std::set<int> unknown, constant;
  const std::optional<std::size_t> stages = stages_of(run);
  std::set<int> carried;  // between stages
  std::map<int, std::set<int>> stages_of_parameter;
  bool is_known = false;  // where anything is
  for (const RankRecord& rank : run.ranks) {
    for (std::size_t i = 0; i < rank.parameters.size(); ++i) {
      const DeclaredParameter& own = rank.parameters[i];
      const int parameter = rank.run_parameters[i];
      if (own.frozen) continue;
      if (own.starts_constant) constant.insert(parameter);
      if (own.start && !own.starts_constant && own.pieces.size() > 1)
        parts[parameter][lanes_of(*own.start)].insert(rank.header.rank);
      if (own.start && own.pieces.size() == 1) {
        starts[parameter][rank.header.rank] = lanes_of(*own.start);
      } else {
        unknown.insert(parameter);
      }
      is_known = is_known || (own.start && !own.starts_constant);
      stages_of_parameter[parameter].insert(stages ? run.coordinates(rank.header.rank, std::uint32_t{1} << *stages)
                                                   : 0);
    }
    if (!stages) continue;
    for (const int parameter : carried_along(run, rank, std::uint32_t{1} << *stages)) carried.insert(parameter);
  }
  std::map<std::size_t, std::set<int>> apart;
  for (const auto& [parameter, by_rank] : starts) {
    if (unknown.contains(parameter)) continue;
    for (std::size_t axis = 0; axis < run.header.axes.size(); ++axis) {
      std::map<int, std::set<Lanes>> found;
      std::map<int, int> count;
      for (const auto& [rank, lanes] : by_rank) {
        const int others = run.other_coordinates(rank, std::uint32_t{1} << axis);
        found[others].insert(lanes);
        ++count[others];
      }
      if (std::any_of(found.begin(), found.end(), [](const auto& one) { return one.second.size() > 1; })) {
        run.apart.insert({axis, parameter});
        if ((run.data_axes >> axis & 1) != 0) apart[axis].insert(parameter);
      } else if (!constant.contains(parameter) &&
                 std::any_of(count.begin(), count.end(), [](const auto& one) { return one.second > 1; })) {
        run.alike.insert({axis, parameter});
      }
    }
  }
  for (const auto& [parameter, held_by] : stages_of_parameter) {
    const bool is_apart = stages && run.apart.contains({*stages, parameter});
    if (is_known && run.header.collectives && held_by.size() > 1 && !is_apart && !carried.contains(parameter))
      run.perhaps_tied.insert(parameter);
  }
  std::set<int> equal;
  for (const auto& [parameter, by_lanes] : parts) {
    for (const auto& [lanes, ranks] : by_lanes) {
      std::set<std::set<int>> parts_of_ranks;  // that their optimizers get
      for (const RankRecord& rank : run.ranks) {
        if (!ranks.contains(rank.header.rank) || rank.steps.empty()) continue;
        std::set<int> pieces;
        for (const SketchedTensor& one : rank.steps.begin()->second.results)
          if (one.parameter == parameter) pieces.insert(one.piece);
        if (!pieces.empty()) parts_of_ranks.insert(std::move(pieces));
      }
      if (parts_of_ranks.size() > 1) equal.insert(parameter);
    }
  }
  if (!equal.empty())
    run.notes.push_back(fmt::format(
        "ranks begin with the same numbers in different parts of {}: parts that were initialised alike train "
        "alike until something tells them apart.",
        some(run, equal)));
  for (const auto& [axis, parameters] : apart)
    run.gaps.push_back(
        {fmt::format("ranks along {} begin with different weights of {}: copies were initialised apart and train "
                     "different models, or these are different parts or experts.",
                     run.header.axes[axis], some(run, parameters))});
}

void doubt_different_weights(const CapturedRun& run, std::vector<PieceFinding>& findings) {
  for (PieceFinding& one : findings) {
    if (one.piece.verdict != VerifiedPiece::Verdict::wrong || one.piece.coefficients.empty() || one.piece.ranks.empty())
      continue;
    std::uint32_t apart = 0;
    for (std::size_t axis = 0; axis < run.header.axes.size(); ++axis) {
      const bool is_data = (run.data_axes >> axis & 1) != 0;
      if (is_data && run.apart.contains({axis, one.piece.parameter})) apart |= std::uint32_t{1} << axis;
    }
    if (apart == 0) continue;
    const int own = run.coordinates(one.piece.ranks.front(), apart);
    const bool alone = std::all_of(
        one.piece.coefficients.begin(), one.piece.coefficients.end(), [&](const RecoveredCoefficient& each) {
          return (each.exact && each.exact->is_zero()) || run.coordinates(each.rank, apart) == own;
        });
    if (!alone) continue;
    one.piece.verdict = VerifiedPiece::Verdict::undecided;
    one.summary =
        "ranks with different data begin with different weights of it, and what they yield is not added up: they hold "
        "different parts of it, or copies that were initialised apart";
  }
}

}  // namespace lockstep::live
