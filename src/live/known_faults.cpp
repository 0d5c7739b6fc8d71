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

constexpr int any_step = -1;

class KnownFaults {
 public:
  KnownFaults(const CapturedRun& run, const VerifyResult& result) : run_(run), result_(result) {
    for (const VerifiedPiece& piece : result.pieces) {
      if (piece.verdict != Verdict::wrong) continue;
      wrong_.push_back(&piece);
      parameters_.insert(piece.parameter);
    }
    if (!wrong_.empty()) read_calls();
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
    std::set<int> stale;
    for (const VerifiedPiece* piece : wrong_) {
      if (kind_of(*piece) != Mistake::leftover) return std::nullopt;
      if (what_of(*piece) == stale_words) stale.insert(piece->parameter);
    }
    if (stale != parameters_) return std::nullopt;
    return StepAtFault{"zero",
                       fmt::format("is missing before micro_batches: nothing clears the gradients of {}, and what "
                                   "earlier optimizer steps left is still in them",
                                   names()),
                       {}};
  }

  void read_calls() {
    for (const RankRecord& rank : run_.ranks) {
      for (const CapturedCollective& call : rank.collectives) {
        const bool scales = call.op == "scale" && !call.after_results;
        for (const int parameter : call.parameters) {
          if (scales) scales_[{rank.header.rank, call.step, parameter}].push_back(&call);
          if (call.group.size() < 2) continue;
          carrying_.try_emplace({call.step, parameter}, &call);
          carrying_.try_emplace({any_step, parameter}, &call);
        }
      }
    }
  }

  /// The first call that carries a parameter's gradient in a step.
  const CapturedCollective* carrying(int step, int parameter) const {
    const auto found = carrying_.find({step, parameter});
    return found == carrying_.end() ? nullptr : found->second;
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
    if (const CapturedCollective* call = carrying(any_step, wrong_.front()->parameter))
      return StepAtFault{recorded_step(run_, *call),
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

  /// What one rank multiplies by and another does not, each as they call it.
  struct Apart {
    std::vector<const CapturedCollective*> own, theirs;
  };

  /// Nothing where a number is not known.
  std::optional<Apart> scales_apart(int rank, int other, int step, int parameter) const {
    Apart apart;
    for (auto& [who, list] : {std::pair(rank, &apart.own), std::pair(other, &apart.theirs)}) {
      if (const auto found = scales_.find({who, step, parameter}); found != scales_.end()) *list = found->second;
      if (std::any_of(list->begin(), list->end(), [](const CapturedCollective* one) { return !one->factor; }))
        return std::nullopt;
    }
    std::erase_if(apart.own, [&](const CapturedCollective* one) {
      const auto same = std::find_if(apart.theirs.begin(), apart.theirs.end(),
                                     [&](const CapturedCollective* its) { return *its->factor == *one->factor; });
      if (same == apart.theirs.end()) return false;
      apart.theirs.erase(same);
      return true;
    });
    return apart;
  }

  /// What multiplies on some ranks alone, and by what.
  struct Scaling {
    std::string site;
    Rational by;
    std::optional<Rational> other_by;  ///< on the others; none: they do not
    std::set<int> who, others;

    bool same(const Scaling& other) const { return site == other.site && by == other.by && other_by == other.other_by; }
  };

  /// What explains that a rank's gradients come with `factor` times what is right, and another's come right.
  std::optional<Scaling> explained(int rank, int other, const Rational& factor, int step, int parameter) const {
    const std::optional<Apart> apart = scales_apart(rank, other, step, parameter);
    if (!apart || apart->own.size() > 1 || apart->theirs.size() > 1) return std::nullopt;
    const Rational own = apart->own.empty() ? Rational(1) : *apart->own[0]->factor;
    const Rational theirs = apart->theirs.empty() ? Rational(1) : *apart->theirs[0]->factor;
    if (own == theirs || own != theirs * factor) return std::nullopt;
    if (apart->own.empty()) return Scaling{site_of(apart->theirs[0]->call), theirs, std::nullopt, {other}, {rank}};
    Scaling found{site_of(apart->own[0]->call), own, std::nullopt, {rank}, {other}};
    if (!apart->theirs.empty()) found.other_by = theirs;
    return found;
  }

  /// By rank that contributes, by what its contributions are off; empty where that is not known of each.
  static std::map<int, Rational> factors_of(const VerifiedPiece& piece) {
    std::map<int, Rational> factors;
    for (const RecoveredCoefficient& one : piece.coefficients) {
      if (!one.exact || !one.expected || one.expected->is_zero() || one.step != piece.step || !one.alike.empty())
        return {};
      const Rational factor = *one.exact / *one.expected;
      if (factors.try_emplace(one.rank, factor).first->second != factor) return {};
    }
    return factors;
  }

  /// Of one wrong result: where others get the same right, what its ranks do otherwise; else what ranks do whose
  /// contributions are off.
  std::optional<Scaling> scaling_of(const VerifiedPiece& piece, const std::vector<int>& right) const {
    const std::map<int, Rational> factors = factors_of(piece);
    if (factors.empty()) return std::nullopt;
    std::map<int, Rational> off;
    int other = -1;
    if (!right.empty()) {
      other = right.front();
      const Rational& factor = factors.begin()->second;
      for (const auto& [rank, own] : factors) {
        if (own != factor) return std::nullopt;
      }
      for (const int rank : piece.ranks) off.emplace(rank, factor);
    } else {
      for (const auto& [rank, factor] : factors) {
        if (factor != Rational(1))
          off.emplace(rank, factor);
        else if (other < 0)
          other = rank;
      }
    }
    if (other < 0) return std::nullopt;
    std::optional<Scaling> all;
    for (const auto& [rank, factor] : off) {
      std::optional<Scaling> one = explained(rank, other, factor, piece.step, piece.parameter);
      if (!one || (all && !all->same(*one))) return std::nullopt;
      if (!all) all = one;
      all->who.insert(one->who.begin(), one->who.end());
      all->others.insert(one->others.begin(), one->others.end());
    }
    return all;
  }

  /// Where that explains all that is wrong.
  std::optional<StepAtFault> scaled_by_some() const {
    std::map<std::tuple<int, int, int>, std::vector<int>> right;  // ranks, by step, parameter and piece
    for (const VerifiedPiece& piece : result_.pieces) {
      if (piece.verdict != Verdict::right) continue;
      std::vector<int>& ranks = right[{piece.step, piece.parameter, piece.piece}];
      ranks.insert(ranks.end(), piece.ranks.begin(), piece.ranks.end());
    }
    std::optional<Scaling> all;
    for (const VerifiedPiece* piece : wrong_) {
      const std::optional<Scaling> one = scaling_of(*piece, right[{piece->step, piece->parameter, piece->piece}]);
      if (!one || (all && !all->same(*one))) return std::nullopt;
      if (!all) all = one;
      all->who.insert(one->who.begin(), one->who.end());
      all->others.insert(one->others.begin(), one->others.end());
    }
    if (!all) return std::nullopt;
    return StepAtFault{all->site.empty() ? "scale" : "scale/" + all->site,
                       fmt::format("multiplies the gradients of {} by {} on {}, and {} on {}", names(),
                                   all->by.to_string(), rank_words({all->who.begin(), all->who.end()}),
                                   all->other_by ? "by " + all->other_by->to_string() : "not",
                                   rank_words({all->others.begin(), all->others.end()})),
                       {}};
  }

  const CapturedRun& run_;
  const VerifyResult& result_;
  std::vector<const VerifiedPiece*> wrong_;
  std::set<int> parameters_;
  std::map<std::pair<int, int>, const CapturedCollective*> carrying_;  // by step, or any, and parameter
  std::map<std::tuple<int, int, int>, std::vector<const CapturedCollective*>> scales_;  // by rank, step and parameter
};

}  // namespace

std::vector<StepAtFault> known_faults(const CapturedRun& run, const VerifyResult& result) {
  return KnownFaults(run, result).find();
}

}  // namespace lockstep::live
