// SPDX-License-Identifier: Apache-2.0
#include "src/live/known_faults.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "src/base/at.h"
#include "src/live/words.h"

namespace lockstep::live {

namespace {

using Verdict = VerifiedPiece::Verdict;

class KnownFaults {
 public:
  KnownFaults(const CapturedRun& run, const VerifyResult& result) : run_(run), result_(result) {
    for (const VerifiedPiece& piece : result.pieces) {
      if (piece.verdict != Verdict::wrong) continue;
      wrong_.push_back(&piece);
      parameters_.insert(piece.parameter);
    }
  }

  std::vector<StepAtFault> find() const {
    if (wrong_.empty()) return {};
    for (const auto& one : {kept(), not_carried(), scaled_by_some()}) {
      if (one) return {*one};
    }
    return {};
  }

 private:
  Mistake kind_of(const VerifiedPiece& piece) const { return result_.findings[at(piece.finding)].kind; }
  const std::string& what_of(const VerifiedPiece& piece) const { return result_.findings[at(piece.finding)].what; }

  /// "0.weight", "0.weight and 3 more".
  std::string names() const {
    const std::string& first = run_.parameters[at(*parameters_.begin())].declared.name;
    return parameters_.size() == 1 ? first : fmt::format("{} and {} more", first, parameters_.size() - 1);
  }

  /// What is left of earlier optimizer steps, be it clipped since, and so no multiple that a schedule predicts.
  std::optional<StepAtFault> kept() const {
    std::size_t stale = 0;
    for (const VerifiedPiece* piece : wrong_) {
      if (kind_of(*piece) != Mistake::leftover) return std::nullopt;
      stale += what_of(*piece) == stale_words ? 1 : 0;
    }
    if (stale == 0) return std::nullopt;
    return StepAtFault{"zero",
                       fmt::format("is missing before micro_batches: nothing clears the gradients of {}, and what "
                                   "earlier optimizer steps left is still in them",
                                   names()),
                       {}};
  }

  /// Whether a rank puts a parameter's gradient into a collective in a step, or a rank of its group does.
  const CapturedCollective* carrying(int step, int parameter) const {
    for (const RankRecord& rank : run_.ranks) {
      for (const CapturedCollective& call : rank.collectives) {
        const bool has = std::find(call.parameters.begin(), call.parameters.end(), parameter) != call.parameters.end();
        if (has && call.group.size() > 1 && (step < 0 || call.step == step)) return &call;
      }
    }
    return nullptr;
  }

  /// What no collective has carried and no optimizer gets.
  std::optional<StepAtFault> not_carried() const {
    if (run_.data_ranks < 2) return std::nullopt;
    std::set<std::pair<int, int>> looked_at;
    for (const VerifiedPiece* piece : wrong_) {
      if (kind_of(*piece) != Mistake::no_owner || piece->ranks.empty()) return std::nullopt;
      if (!looked_at.emplace(piece->step, piece->parameter).second) continue;
      if (carrying(piece->step, piece->parameter) != nullptr) return std::nullopt;
    }
    const int step = wrong_.front()->step;
    if (const CapturedCollective* call = carrying(-1, wrong_.front()->parameter))
      return StepAtFault{step_of(*call),
                         fmt::format("carries the gradients of {} in optimizer step {}, and nothing does in step {}, "
                                     "where the optimizer gets none",
                                     names(), call->step, step),
                         {}};
    return StepAtFault{fmt::format("{}_all_reduce", fmt::join(run_.header.data_axes, "_")),
                       fmt::format("is missing after backward: no collective carries the gradients of {}, and the "
                                   "optimizer gets none",
                                   names()),
                       {}};
  }

  std::string step_of(const CapturedCollective& call) const {
    const std::string site = site_of(call.call);
    return fmt::format("{}_{}{}", fmt::join(axes_of(run_, call.group), "_"), call.op, site.empty() ? "" : "/" + site);
  }

  using Scales = std::vector<std::pair<Rational, std::string>>;  // factor and call

  /// By what a rank has multiplied a parameter's gradient before the optimizer got it; nothing where that is no small
  /// fraction.
  std::optional<Scales> scales_of(const RankRecord& rank, int step, int parameter) const {
    Scales scales;
    for (const CapturedCollective& call : rank.collectives) {
      if (call.op != "scale" || call.step != step || call.after_results) continue;
      if (std::find(call.parameters.begin(), call.parameters.end(), parameter) == call.parameters.end()) continue;
      if (!call.factor) return std::nullopt;
      scales.emplace_back(*call.factor, call.call);
    }
    return scales;
  }

  /// Of results of one piece, wrong ones whose ranks scale in another way than those of right ones.
  std::optional<StepAtFault> scaled_by_some() const {
    std::map<std::tuple<int, int, int>, std::pair<std::vector<int>, std::vector<int>>> ranks;  // wrong, and not
    for (const VerifiedPiece& piece : result_.pieces) {
      auto& [wrong, other] = ranks[{piece.step, piece.parameter, piece.piece}];
      std::vector<int>& own = piece.verdict == Verdict::wrong ? wrong : other;
      own.insert(own.end(), piece.ranks.begin(), piece.ranks.end());
    }
    std::optional<std::tuple<Rational, std::string, int, int>> found;  // factor, call, who does it and who does not
    for (const auto& [key, both] : ranks) {
      const auto& [wrong, other] = both;
      if (wrong.empty()) continue;
      if (other.empty()) return std::nullopt;
      const auto& [step, parameter, piece] = key;
      for (const int one : wrong) {
        const auto own = scales_of(record_of(one), step, parameter);
        const auto theirs = scales_of(record_of(other.front()), step, parameter);
        if (!own || !theirs || *own == *theirs) return std::nullopt;
        const bool is_own = own->size() >= theirs->size();
        const auto& [longer, shorter] = is_own ? std::tie(*own, *theirs) : std::tie(*theirs, *own);
        const auto differs = std::mismatch(longer.begin(), longer.end(), shorter.begin(), shorter.end()).first;
        found.emplace(differs->first, differs->second, is_own ? one : other.front(), is_own ? other.front() : one);
      }
    }
    if (!found) return std::nullopt;
    const auto& [factor, call, who, not_who] = *found;
    const std::string site = site_of(call);
    return StepAtFault{site.empty() ? "scale" : "scale/" + site,
                       fmt::format("rank {} multiplies the gradients of {} by {}, and rank {} does not", who, names(),
                                   factor.to_string(), not_who),
                       {}};
  }

  const RankRecord& record_of(int rank) const {
    return *std::find_if(run_.ranks.begin(), run_.ranks.end(),
                         [&](const RankRecord& one) { return one.header.rank == rank; });
  }

  const CapturedRun& run_;
  const VerifyResult& result_;
  std::vector<const VerifiedPiece*> wrong_;
  std::set<int> parameters_;
};

}  // namespace

std::vector<StepAtFault> known_faults(const CapturedRun& run, const VerifyResult& result) {
  return KnownFaults(run, result).find();
}

}  // namespace lockstep::live
