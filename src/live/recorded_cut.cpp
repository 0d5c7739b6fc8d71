// SPDX-License-Identifier: Apache-2.0
#include "src/live/recorded_cut.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <set>
#include <tuple>

#include "src/base/at.h"
#include "src/live/prediction.h"
#include "src/live/record.h"
#include "src/live/run_layout.h"

namespace lockstep::live {

namespace {

using Kind = Geometry::Kind;

/// Multiples of the group's size to which a flat tensor may be filled up.
constexpr std::int64_t most_alignment = 1024;

/// Groups whose candidates are tried one by one where together they keep the schedule from its end.
constexpr std::size_t most_tried_alone = 16;

std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

/// How Megatron fills up parameters and buckets; "": as it does by default.
struct Alignment {
  const char* parameter;
  const char* bucket;
  std::int64_t of_parameter;
};
constexpr std::array<Alignment, 3> alignments = {{{"", "", 64}, {"", "lcm(n, 128, 65536)", 64}, {"1", "n", 1}}};

/// Parameters that one step may cut together.
struct Group {
  std::vector<int> parameters;  // ascending
  std::vector<int> own;         // axes of a step that moves nothing; empty: of the reduce-scatter
  std::vector<int> axes;        // over which they are cut
  std::vector<std::map<int, Cut>> candidates;
  bool settled = false;
};

class CutFinder {
 public:
  CutFinder(Recording& recording, const VerifyResult& verified, Evidence& evidence)
      : recording_(recording), verified_(verified), evidence_(evidence) {}

  std::vector<Cut> find() {
    std::vector<Cut> cuts(recording_.run->parameters.size());
    for (std::size_t i = 0; i < cuts.size(); ++i) {
      const int parameter = static_cast<int>(i);
      if (recording_.run->header.adapter != "deepspeed" && reduce_scatter_of(parameter) != nullptr &&
          in_boxes(parameter))
        cuts[i].kind = Kind::rows;
    }
    const std::vector<bool> alike = owned_alike(cuts).value_or(std::vector<bool>(cuts.size(), false));
    if (std::find(alike.begin(), alike.end(), false) == alike.end()) return cuts;
    const std::vector<int>& lead = recording_.experts.lead;
    owned_.resize(cuts.size());
    held_.resize(cuts.size());
    for (const RankRecord& rank : recording_.run->ranks) {
      for (const auto& [step, content] : rank.steps) {
        for (const SketchedTensor& one : content.contributions)
          held_[at(lead[at(one.parameter)])].insert(rank.header.rank);
      }
    }
    for (const VerifiedPiece& piece : verified_.pieces) {
      for (const int rank : piece.ranks)
        owned_[at(lead[at(piece.parameter)])][rank].insert({piece.parameter, piece.piece});
    }
    std::vector<Group> groups = groups_of(alike);
    std::size_t most = 0;
    for (Group& group : groups) {
      add_candidates(group);
      most = std::max(most, group.candidates.size());
    }
    for (std::size_t number = 0; number < most; ++number) try_candidates(groups, number, cuts);
    return cuts;
  }

 private:
  /// Settles in `cuts` the groups that their candidate of this number fits.
  void try_candidates(std::vector<Group>& groups, std::size_t number, std::vector<Cut>& cuts) {
    std::vector<Group*> open;
    for (Group& group : groups) {
      if (!group.settled && number < group.candidates.size()) open.push_back(&group);
    }
    if (open.empty() || settle(open, number, cuts) || open.size() == 1 || open.size() > most_tried_alone) return;
    // What is wrong for one may keep the whole schedule from its end.
    for (Group* group : open) settle({group}, number, cuts);
  }

  /// False where with these candidates together the schedule does not come to its end, which says nothing of any.
  bool settle(const std::vector<Group*>& groups, std::size_t number, std::vector<Cut>& cuts) {
    std::vector<Cut> tried = cuts;
    for (const Group* group : groups) {
      for (const auto& [parameter, cut] : group->candidates[number]) tried[at(parameter)] = cut;
    }
    const std::optional<std::vector<bool>> fits = owned_alike(tried);
    if (!fits) return false;
    for (Group* group : groups) {
      const std::vector<int>& parameters = group->parameters;
      if (!std::all_of(parameters.begin(), parameters.end(), [&](int parameter) { return (*fits)[at(parameter)]; }))
        continue;
      group->settled = true;
      for (const int parameter : parameters) cuts[at(parameter)] = tried[at(parameter)];
    }
    return true;
  }

  /// Nothing where the schedule does not come to its end.
  std::optional<std::vector<bool>> owned_alike(const std::vector<Cut>& cuts) {
    recording_.cuts = cuts;
    std::vector<LocalSteps> local_steps;
    for (std::size_t i = 0; i < cuts.size(); ++i) local_steps.push_back(usual(recording_, static_cast<int>(i)));
    auto alike = Prediction::owners(recording_, read_recorded(scenario_of(recording_, local_steps)), evidence_)
                     .owned_alike(verified_.pieces);
    for (std::size_t i = 0; alike && i < alike->size(); ++i) {
      if (!(*alike)[i]) (*alike)[at(recording_.experts.lead[i])] = false;
    }
    return alike;
  }

  const ParameterCall* reduce_scatter_of(int parameter) const {
    for (const ParameterCall& met : recording_.calls.of_parameter[at(parameter)]) {
      if (recording_.calls.calls[at(met.call)].op == "reduce_scatter") return &met;
    }
    return nullptr;
  }

  bool in_boxes(int parameter) const {
    const DeclaredParameter& declared = recording_.run->parameters[at(parameter)].declared;
    for (std::size_t i = 0; i < declared.pieces.size(); ++i) {
      if (!box_of_piece(declared, static_cast<int>(i), declared.shape)) return false;
    }
    return true;
  }

  /// What goes through the same reduce-scatters, or is owned along the same axes, where one of it does not fit.
  std::vector<Group> groups_of(const std::vector<bool>& alike) const {
    using Key = std::tuple<int, std::vector<int>, int>;  // the call, the axes, the optimizer's group
    std::map<Key, Group> found;
    std::set<Key> wrong;
    for (std::size_t i = 0; i < alike.size(); ++i) {
      const int parameter = static_cast<int>(i);
      if (recording_.placements[i].untouched || !recording_.experts.leads(parameter) || owned_[i].empty()) continue;
      const ParameterCall* met = reduce_scatter_of(parameter);
      if (met == nullptr && alike[i]) continue;
      Group group;
      if (met == nullptr) {
        group.axes = group.own = axes_of_owners(parameter);
      } else {
        group.axes = axes_of(recording_.calls.calls[at(met->call)]);
      }
      if (group.axes.empty() && met == nullptr) continue;
      Key key(met == nullptr ? -1 : met->call, group.own, recording_.run->parameters[i].declared.group);
      if (!alike[i]) wrong.insert(key);
      found.try_emplace(std::move(key), std::move(group)).first->second.parameters.push_back(parameter);
    }
    std::vector<Group> groups;
    for (auto& [key, group] : found) {
      if (wrong.contains(key)) groups.push_back(std::move(group));
    }
    return groups;
  }

  /// Those of the mesh; none where the call's are not all among them.
  std::vector<int> axes_of(const GradientCall& call) const {
    std::vector<int> axes;
    for (const std::string& name : call.axes) {
      const auto found = std::find(recording_.names.begin(), recording_.names.end(), name);
      if (found == recording_.names.end()) return {};
      axes.push_back(static_cast<int>(found - recording_.names.begin()));
    }
    return axes;
  }

  /// The axes of ranks with different tokens along which optimizers own different pieces of what all of them have a
  /// gradient of.
  std::vector<int> axes_of_owners(int parameter) const {
    const Header& header = recording_.run->header;
    std::vector<int> axes;
    for (std::size_t i = 0; i < header.axes.size(); ++i) {
      if (header.sizes[i] == 1 || !splits_tokens(recording_.names[i])) continue;
      std::map<int, const std::set<std::pair<int, int>>*> others;
      bool same = true;
      static const std::set<std::pair<int, int>> nothing;
      for (const RankRecord& rank : recording_.run->ranks) {
        const auto own = owned_[at(parameter)].find(rank.header.rank);
        const std::set<std::pair<int, int>>* pieces = own == owned_[at(parameter)].end() ? &nothing : &own->second;
        // An expert, say, that other ranks have not.
        if (pieces->empty() && !held_[at(parameter)].empty() && !held_[at(parameter)].contains(rank.header.rank))
          continue;
        const auto [other, is_first] =
            others.try_emplace(recording_.run->other_coordinates(rank.header.rank, std::uint32_t{1} << i), pieces);
        same = same && (is_first || *other->second == *pieces);
      }
      if (!same) axes.push_back(static_cast<int>(i));
    }
    return axes;
  }

  // What is tried.

  void add_candidates(Group& group) const {
    const bool boxes =
        std::all_of(group.parameters.begin(), group.parameters.end(), [&](int one) { return in_boxes(one); });
    const auto all = [&](const Cut& cut) {
      std::map<int, Cut> candidate;
      for (const int parameter : group.parameters) candidate[parameter] = cut;
      group.candidates.push_back(std::move(candidate));
    };
    Cut cut;
    cut.own = group.own;
    const Members members = members_of(group);
    const bool is_megatron = recording_.run->header.adapter == "megatron";
    const int apart = recording_.run->parameters[at(group.parameters.front())].declared.group;
    if (is_megatron) buckets(group, members, apart);
    all(cut);
    cut.kind = Kind::rows;
    if (boxes) all(cut);
    cut.kind = Kind::flat;
    cut.apart = {apart};
    if (const auto align = alignment(members)) {
      cut.align = *align;
      all(cut);
    }
    if (!is_megatron) buckets(group, members, apart);
  }

  /// One group of ranks among which parameters are cut.
  struct Members {
    int count = 1;
    std::map<int, std::int64_t> numel;  // by parameter: elements of all members
    std::int64_t first = 0, all = 0;    // of the first member and of all
  };

  Members members_of(const Group& group) const {
    Members members;
    if (group.axes.empty()) return members;  // axes of the expert mesh
    std::uint32_t bits = 0;
    for (const int axis : group.axes) {
      members.count *= recording_.run->header.sizes[at(axis)];
      bits |= std::uint32_t{1} << axis;
    }
    std::optional<int> others;
    for (const RankRecord& record : recording_.run->ranks) {
      const int rank = record.header.rank;
      const bool holds = std::any_of(group.parameters.begin(), group.parameters.end(),
                                     [&](int parameter) { return owned_[at(parameter)].contains(rank); });
      const int coordinates = recording_.run->other_coordinates(rank, bits);
      if (!others && holds) others = coordinates;
      if (!holds || others != coordinates) continue;
      for (const int parameter : group.parameters) {
        const auto own = owned_[at(parameter)].find(rank);
        if (own == owned_[at(parameter)].end()) continue;
        for (const auto& [expert, piece] : own->second) {
          const std::int64_t numel = recording_.run->parameters[at(expert)].numel(piece);
          members.numel[parameter] += numel;
          members.all += numel;
          if (recording_.run->coordinates(rank, bits) == 0) members.first += numel;
        }
      }
    }
    return members;
  }

  /// What a flat tensor is filled up to so that the first member's slice is what it got.
  static std::optional<std::string> alignment(const Members& members) {
    for (std::int64_t multiple = 1; multiple <= most_alignment; multiple *= 2) {
      if (round_up(members.all, multiple * members.count) != members.first * members.count) continue;
      return multiple == 1 ? "" : fmt::format("{} * n", multiple);
    }
    if (members.first == 0 || members.first > INT64_MAX / members.count || members.first * members.count < members.all)
      return std::nullopt;
    return fmt::format("{} * n", members.first);
  }

  /// One bucket, those in which the run reduced, as a size makes them, and each of those by itself.
  void buckets(Group& group, const Members& members, int apart) const {
    Cut cut;
    cut.kind = Kind::bucket;
    cut.own = group.own;
    cut.apart = {apart};
    std::map<std::size_t, std::vector<int>> reduced;
    std::map<int, int> bucket_of;
    for (const int parameter : group.parameters) reduced[order_of(parameter)].push_back(parameter);
    int number = 0;
    for (const auto& [order, parameters] : reduced) {
      for (const int parameter : parameters) bucket_of[parameter] = number;
      ++number;
    }
    for (const Alignment& alignment : alignments) {
      cut.align_parameter = alignment.parameter;
      cut.align_bucket = alignment.bucket;
      const auto add = [&](const auto& choose) {
        std::map<int, Cut> candidate;
        for (const int parameter : group.parameters) candidate[parameter] = choose(parameter);
        group.candidates.push_back(std::move(candidate));
      };
      add([&](int) { return cut; });
      if (reduced.size() == 1) continue;
      const bool known = !members.numel.empty();
      Cut sized = cut;
      for (const bool separate : {false, true}) {
        if (separate) {
          for (const auto& [order, parameters] : reduced) {
            if (parameters.size() == 1) sized.separate.push_back(parameters.front());
          }
          if (sized.separate.empty()) continue;
          std::sort(sized.separate.begin(), sized.separate.end());
        }
        if (!known) continue;
        if (const auto size = size_of_buckets(reduced, members, sized.separate, alignment)) {
          sized.size = *size;
          add([&](int) { return sized; });
        }
      }
      add([&](int parameter) {
        Cut own = cut;
        own.apart.push_back(bucket_of.at(parameter));
        return own;
      });
    }
  }

  /// The place of the reduction of a parameter among the calls of its rank; what shares one went together.
  std::size_t order_of(int parameter) const {
    if (const ParameterCall* met = reduce_scatter_of(parameter)) return met->order;
    for (const ParameterCall& met : recording_.calls.of_parameter[at(parameter)]) {
      if (!recording_.calls.calls[at(met.call)].scales()) return met.order;
    }
    return 0;
  }

  /// The size at which each of these buckets closes with its last parameter and none before; 0: no bucket need close.
  std::optional<std::int64_t> size_of_buckets(const std::map<std::size_t, std::vector<int>>& reduced,
                                              const Members& members, const std::vector<int>& separate,
                                              const Alignment& alignment) const {
    // Buckets are filled from the last parameter on.
    std::map<int, const std::vector<int>*, std::greater<>> by_last;
    for (const auto& [order, parameters] : reduced) by_last[parameters.back()] = &parameters;
    std::int64_t most = INT64_MAX, least = 1;
    for (auto bucket = by_last.begin(); bucket != by_last.end(); ++bucket) {
      const std::vector<int>& parameters = *bucket->second;
      const auto is_separate = [&](int parameter) {
        return std::binary_search(separate.begin(), separate.end(), parameter);
      };
      if (is_separate(parameters.front())) continue;
      Geometry geometry;
      geometry.kind = Kind::bucket;
      geometry.align_parameter = Expression(Rational(alignment.of_parameter));
      std::vector<GeometryItem> items;
      for (const int parameter : parameters) {
        const auto found = members.numel.find(parameter);
        if (found == members.numel.end()) continue;
        items.emplace_back();
        items.back().numel = found->second;
      }
      if (items.empty()) continue;
      const GeometryLayout layout = lay_out(geometry, items, members.count, {});
      const auto end = [&](std::size_t item) { return layout.position[item] + items[item].numel; };
      if (items.size() > 1) least = std::max(least, end(1) + 1);
      const auto next = std::next(bucket);
      if (next != by_last.end() && !is_separate(next->second->front())) most = std::min(most, end(0));
    }
    if (least > most) return std::nullopt;
    return most == INT64_MAX ? 0 : most;
  }

  Recording& recording_;  // its cuts are those that are tried
  const VerifyResult& verified_;
  Evidence& evidence_;
  /// By parameter that leads and rank: pieces of it and of those that it leads.
  std::vector<std::map<int, std::set<std::pair<int, int>>>> owned_;
  std::vector<std::set<int>> held_;  // by parameter: ranks whose backward yields it
};

}  // namespace

void find_cuts(Recording& recording, const VerifyResult& verified, Evidence& evidence) {
  std::vector<Cut> cuts = CutFinder(recording, verified, evidence).find();
  recording.cuts = std::move(cuts);
}

}  // namespace lockstep::live
