// SPDX-License-Identifier: Apache-2.0
#include "src/live/recorded_experts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "src/base/at.h"
#include "src/base/counted.h"
#include "src/live/run_layout.h"
#include "src/live/words.h"

namespace lockstep::live {

namespace {

/// The words of a name between its dots.
std::vector<std::string> words_of(const std::string& name) {
  std::vector<std::string> words(1);
  for (const char c : name) {
    if (c == '.') {
      words.emplace_back();
    } else {
      words.back() += c;
    }
  }
  return words;
}

class ExpertFinder {
 public:
  ExpertFinder(const CapturedRun& run, const std::vector<std::string>& axes)
      : run_(run), holders_(run.parameters.size()) {
    Header header = run.header;
    header.axes = axes;
    layout_ = layout_of(header);
    for (std::size_t axis = 0; axis < axes.size(); ++axis) {
      if (axes[axis] == name_of(Axis::pp)) pipeline_ = std::uint32_t{1} << axis;
    }
  }

  Experts find() {
    const std::size_t count = run_.parameters.size();
    result_.lead.resize(count);
    std::iota(result_.lead.begin(), result_.lead.end(), 0);
    result_.coordinate.assign(count, -1);
    result_.together.resize(count);
    std::map<int, int> ranks_of_stage;
    for (const RankRecord& rank : run_.ranks) {
      const int stage = stage_of(rank.header.rank);
      ++ranks_of_stage[stage];
      for (const int parameter : rank.run_parameters) holders_[at(parameter)][stage].insert(rank.header.rank);
    }
    std::map<int, std::set<std::set<int>>> different;
    int first = -1;
    for (std::size_t i = 0; i < count; ++i) {
      for (const auto& [stage, ranks] : holders_[i]) {
        if (static_cast<int>(ranks.size()) == ranks_of_stage[stage]) continue;
        if (first < 0) first = static_cast<int>(i);
        different[stage].insert(ranks);
      }
    }
    if (first < 0) return std::move(result_);
    make_mesh(first, static_cast<int>(different.begin()->second.size()));
    for (std::size_t i = 0; i < count; ++i) place(static_cast<int>(i), ranks_of_stage);
    for (const auto& [stage, ranks] : ranks_of_stage) join(stage);
    return std::move(result_);
  }

 private:
  int stage_of(int rank) const { return pipeline_ == 0 ? 0 : run_.coordinates(rank, pipeline_); }

  const std::string& name(int parameter) const { return run_.parameters[at(parameter)].declared.name; }

  [[noreturn]] void refuse(const std::string& what) const {
    throw InputError({Diagnostic{{}, fmt::format("{}: {}.", run_.folder, what)}});
  }
  [[noreturn]] void refuse_holders(int parameter) const {
    const std::set<int>& ranks = holders_[at(parameter)].begin()->second;
    refuse(fmt::format("{} is on {} and on no other of their stage, which no expert mesh of a scenario says",
                       name(parameter), rank_words({ranks.begin(), ranks.end()})));
  }

  void make_mesh(int parameter, int ranks) {
    if (!layout_ || ranks < 2) refuse_holders(parameter);
    if (layout_->tp > 1)
      refuse(fmt::format("experts such as {} are not recorded under tensor parallelism yet", name(parameter)));
    if (layout_->world() / layout_->pp % ranks != 0) refuse_holders(parameter);
    layout_->ep = ranks;
    std::vector<Axis>& order = layout_->order;
    order.insert(std::find(order.begin(), order.end(), Axis::dp), Axis::ep);
    if (std::find(order.begin(), order.end(), Axis::dp) == order.end())
      order.insert(std::find(order.begin(), order.end(), Axis::ep) + 1, Axis::dp);
    result_.mesh.emplace(*layout_);
    if (!result_.mesh->pipeline_groups_agree()) refuse_holders(parameter);
    Over over;
    over.picks.push_back({Axis::ep, std::nullopt});
    const Groups groups = result_.mesh->groups(over);
    result_.group.resize(at(layout_->world()));
    for (int rank = 0; rank < layout_->world(); ++rank)
      result_.group[at(rank)] = groups.members[at(groups.group_of[at(rank)])];
    for (std::vector<int>& group : result_.group) {
      std::sort(group.begin(), group.end(), [&](int a, int b) {
        return result_.mesh->coordinate(a, Axis::ep) < result_.mesh->coordinate(b, Axis::ep);
      });
    }
  }

  /// An expert is on all ranks of its stage with the same coordinate on ep.
  void place(int parameter, const std::map<int, int>& ranks_of_stage) {
    for (const auto& [stage, ranks] : holders_[at(parameter)]) {
      if (static_cast<int>(ranks.size()) == ranks_of_stage.at(stage)) continue;
      const int coordinate = result_.mesh->coordinate(*ranks.begin(), Axis::ep);
      const bool all = static_cast<int>(ranks.size()) * result_.size() == ranks_of_stage.at(stage) &&
                       std::all_of(ranks.begin(), ranks.end(),
                                   [&](int rank) { return result_.mesh->coordinate(rank, Axis::ep) == coordinate; });
      if (!all || holders_[at(parameter)].size() > 1) refuse_holders(parameter);
      result_.coordinate[at(parameter)] = coordinate;
    }
  }

  void join(int stage) {
    std::map<int, std::vector<int>> own;  // by coordinate, in the order of the rank
    for (const RankRecord& rank : run_.ranks) {
      if (stage_of(rank.header.rank) != stage) continue;
      const auto [found, is_new] = own.try_emplace(result_.mesh->coordinate(rank.header.rank, Axis::ep));
      if (!is_new) continue;
      for (const int parameter : rank.run_parameters) {
        if (result_.coordinate[at(parameter)] >= 0) found->second.push_back(parameter);
      }
    }
    const std::vector<int>& leads = own.begin()->second;
    for (const auto& [coordinate, parameters] : own) {
      if (parameters.size() != leads.size())
        refuse(
            fmt::format("ranks of one stage hold {} and {} that the others have not; in a scenario each "
                        "has as many experts",
                        leads.size(), counted(parameters.size(), "parameter")));
      for (std::size_t i = 0; i < leads.size(); ++i) {
        const DeclaredParameter& one = run_.parameters[at(leads[i])].declared;
        const DeclaredParameter& other = run_.parameters[at(parameters[i])].declared;
        if (one.shape != other.shape || one.dtype != other.dtype || !alike(one.name, other.name))
          refuse(fmt::format("{} and {} are in the same place on ranks with different experts, and are not alike",
                             one.name, other.name));
        result_.lead[at(parameters[i])] = leads[i];
        result_.together[at(leads[i])].push_back(parameters[i]);
      }
    }
  }

  /// Names that differ in one word at most.
  static bool alike(const std::string& one, const std::string& other) {
    const std::vector<std::string> a = words_of(one), b = words_of(other);
    if (a.size() != b.size()) return false;
    int different = 0;
    for (std::size_t i = 0; i < a.size(); ++i) different += a[i] == b[i] ? 0 : 1;
    return different <= 1;
  }

  const CapturedRun& run_;
  std::vector<std::map<int, std::set<int>>> holders_;  // by parameter and stage
  std::optional<Layout> layout_;
  std::uint32_t pipeline_ = 0;  // the axis, as a bit
  Experts result_;
};

}  // namespace

Experts find_experts(const CapturedRun& run, const std::vector<std::string>& axes) {
  return ExpertFinder(run, axes).find();
}

std::string name_of_experts(const CapturedRun& run, const std::vector<int>& together) {
  const std::vector<std::string> front = words_of(run.parameters[at(together.front())].declared.name);
  std::vector<std::string> words = front;
  for (std::size_t i = 1; i < together.size(); ++i) {
    const std::vector<std::string> own = words_of(run.parameters[at(together[i])].declared.name);
    for (std::size_t word = 0; word < words.size(); ++word) {
      if (own[word] != front[word]) words[word] += "+" + own[word];
    }
  }
  return fmt::format("{}", fmt::join(words, "."));
}

}  // namespace lockstep::live
