// SPDX-License-Identifier: Apache-2.0
#include "src/live/mixed_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "src/base/at.h"
#include "src/live/cell_formulas.h"
#include "src/live/words.h"

namespace lockstep::live {

namespace {

using Pieces = std::set<int>;

constexpr const char* mixed_words = "adds up gradients of different elements: its ranks hold different parts of it";

bool is_reduction(const CapturedCollective& call) {
  return (call.op == "all_reduce" || call.op == "reduce") && (call.reduce == "sum" || call.reduce == "avg") &&
         !call.after_results;
}

class MixedParts {
 public:
  explicit MixedParts(const CapturedRun& run) : run_(run) {
    for (const RankRecord& rank : run.ranks) {
      for (const auto& [step, content] : rank.steps) {
        add(yielded_, rank.header.rank, step, content.contributions);
        add(gotten_, rank.header.rank, step, content.results);
      }
    }
    for (const RankRecord& rank : run.ranks) {
      std::set<std::pair<int, int>> scattered;  // by step and parameter
      for (const CapturedCollective& call : rank.collectives) {
        for (const int parameter : call.parameters) {
          if (call.op == "reduce_scatter") scattered.insert({call.step, parameter});
          const bool of_part = scattered.contains({call.step, parameter});
          if (is_reduction(call) && are_apart(call, parameter, of_part))
            found_[{call.step, parameter}].emplace(rank.header.rank, &call);
        }
      }
    }
  }

  /// The first reduction of one of these ranks that has added up different parts; null: none is known.
  const CapturedCollective* of(int step, int parameter, const std::vector<int>& ranks) const {
    const auto found = found_.find({step, parameter});
    if (found == found_.end()) return nullptr;
    for (const int rank : ranks) {
      if (const auto own = found->second.find(rank); own != found->second.end()) return own->second;
    }
    return nullptr;
  }

 private:
  using OfRanks = std::map<std::tuple<int, int, int>, Pieces>;  // by step, parameter and rank

  void add(OfRanks& pieces, int rank, int step, const std::vector<SketchedTensor>& tensors) const {
    for (const SketchedTensor& tensor : tensors) {
      if (run_.parameters[at(tensor.parameter)].numel(tensor.piece) > 0)
        pieces[{step, tensor.parameter, rank}].insert(tensor.piece);
    }
  }

  bool are_apart(const CapturedCollective& call, int parameter, bool of_part) {
    const auto [place, is_new] = apart_.try_emplace({call.step, parameter, of_part, call.group}, false);
    if (is_new) place->second = differ(call, parameter, of_part ? gotten_ : yielded_);
    return place->second;
  }

  /// Whether two of its ranks put in different parts.
  static bool differ(const CapturedCollective& call, int parameter, const OfRanks& pieces) {
    const Pieces* first = nullptr;
    for (const int rank : call.group) {
      const auto own = pieces.find({call.step, parameter, rank});
      if (own == pieces.end()) continue;
      if (first != nullptr && *first != own->second) return true;
      first = &own->second;
    }
    return false;
  }

  const CapturedRun& run_;
  OfRanks yielded_, gotten_;
  std::map<std::tuple<int, int, bool, std::vector<int>>, bool> apart_;             // for all ranks of a group at once
  std::map<std::pair<int, int>, std::map<int, const CapturedCollective*>> found_;  // by step and parameter; by rank
};

}  // namespace

MixedFaults tell_mixed_parts(const CapturedRun& run, std::vector<PieceFinding>& findings) {
  const auto is_wrong = [](const PieceFinding& one) { return one.piece.verdict == VerifiedPiece::Verdict::wrong; };
  const auto is_open = [](const PieceFinding& one) {
    return one.piece.unexplained > one.piece.noise &&
           (one.kind == Mistake::leftover || one.kind == Mistake::wrong_values);
  };
  MixedFaults faults;
  if (std::none_of(findings.begin(), findings.end(), is_wrong)) return faults;
  faults.all = true;
  const MixedParts mixed(run);
  std::map<std::string, std::pair<std::set<int>, std::vector<int>>> steps;  // their parameters, and ranks of the first
  for (PieceFinding& one : findings) {
    if (!is_wrong(one)) continue;
    const CapturedCollective* call = mixed.of(one.piece.step, one.piece.parameter, one.piece.ranks);
    faults.all = faults.all && call != nullptr;
    if (call == nullptr) continue;
    // Parts may be alike, and their sum then a multiple of each.
    if (is_open(one))
      set_wrong(one, Mistake::leftover,
                fmt::format("the {}{} {}", call->op, call->call.empty() ? "" : " at " + call->call, mixed_words));
    auto& [parameters, ranks] = steps[recorded_step(run, *call)];
    if (parameters.empty()) ranks = call->group;
    parameters.insert(one.piece.parameter);
  }
  for (const auto& [step, about] : steps) {
    const auto& [parameters, ranks] = about;
    const std::string& name = run.parameters[at(*parameters.begin())].declared.name;
    faults.steps.push_back(
        {step,
         fmt::format("adds up what {} hold of {}{}, which are different parts", rank_words(ranks), name,
                     parameters.size() > 1 ? fmt::format(" and {} more", parameters.size() - 1) : ""),
         {}});
  }
  return faults;
}

}  // namespace lockstep::live
