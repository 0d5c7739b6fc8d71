// SPDX-License-Identifier: Apache-2.0
#include "src/live/loss_factors.h"

#include <fmt/format.h>

#include <algorithm>

#include "src/live/words.h"

namespace lockstep::live {

namespace {

const Rational one = 1;

/// The lowest rank's that is not 1; null: all are 1, or nothing is known of them.
const LossFactor* first_factor(const CapturedRun& run, const Expected& expected, std::vector<int>* ranks = nullptr) {
  const LossFactor* first = nullptr;
  for (const RankRecord& rank : run.ranks) {
    const LossFactor* own = expected.factor(rank.header.rank);
    if (own == nullptr || own->times == one) continue;
    if (first == nullptr) first = own;
    if (ranks != nullptr && own->times == first->times) ranks->push_back(rank.header.rank);
  }
  return first;
}

/// "rank 0, and not on rank 1".
std::string whose(const CapturedRun& run, const std::vector<int>& ranks) {
  std::vector<int> others;
  for (const RankRecord& rank : run.ranks) {
    if (std::find(ranks.begin(), ranks.end(), rank.header.rank) == ranks.end()) others.push_back(rank.header.rank);
  }
  return others.empty() ? "every rank" : fmt::format("{}, and not on {}", rank_words(ranks), rank_words(others));
}

/// Whether each contribution has its rank's factor more than it should.
bool has_factors(const VerifiedPiece& piece, const Expected& expected) {
  bool some = false;
  const bool all = std::all_of(piece.coefficients.begin(), piece.coefficients.end(), [&](const auto& each) {
    const LossFactor* own = expected.factor(each.rank);
    if (own == nullptr || each.step != piece.step || !each.exact || !each.expected) return false;
    for (const int rank : each.alike) {
      const LossFactor* other = expected.factor(rank);
      if (other == nullptr || other->times != own->times) return false;
    }
    some = some || own->times != one;
    return *each.exact == *each.expected * own->times;
  });
  return all && some;
}

}  // namespace

std::set<std::string> loss_factor_notes(const CapturedRun& run, const std::map<int, Expected>& expected,
                                        const std::vector<int>& steps) {
  std::set<std::string> notes;
  for (const int step : steps) {
    std::vector<int> ranks;
    const LossFactor* factor = first_factor(run, expected.at(step), &ranks);
    if (factor == nullptr) continue;
    notes.insert(fmt::format(
        "on {}, {} {}: the gradients are {} times those of a mean over the rank's part of the batch, and what is "
        "expected of them is divided by that.{}",
        whose(run, ranks), factor->call, factor->why, factor->times.to_string(),
        factor->is_weight || factor->times < one
            ? ""
            : " If the means of a step are to be added up, one run.micro_batch() before the first of "
              "them says that they belong together."));
  }
  return notes;
}

std::optional<StepAtFault> losses_at_fault(const CapturedRun& run, const std::map<int, Expected>& expected,
                                           const VerifyResult& result) {
  const LossFactor* first = nullptr;
  std::vector<int> ranks;
  for (const VerifiedPiece& piece : result.pieces) {
    if (piece.verdict != VerifiedPiece::Verdict::wrong) continue;
    const Expected& own = expected.at(piece.step);
    if (!has_factors(piece, own)) return std::nullopt;
    if (first == nullptr) first = first_factor(run, own, &ranks);
  }
  if (first == nullptr) return std::nullopt;
  return StepAtFault{"loss/" + site_of(first->call),
                     fmt::format("{}: what the optimizers get is, of {}, {} times its share of the mean over the batch",
                                 first->why, whose(run, ranks), first->times.to_string()),
                     {}};
}

}  // namespace lockstep::live
