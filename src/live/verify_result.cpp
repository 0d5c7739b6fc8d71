// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>

#include "lockstep/live.h"

namespace lockstep {

namespace {

using PieceVerdict = VerifiedPiece::Verdict;

constexpr std::array loss_names = {
    std::pair{CapturedLoss::local_mean, "local_mean"}, std::pair{CapturedLoss::sum, "sum"},
    std::pair{CapturedLoss::token_mean, "token_mean"}, std::pair{CapturedLoss::token_sum, "token_sum"}};

}  // namespace

std::string_view name_of(CapturedLoss loss) {
  for (const auto& [one, name] : loss_names) {
    if (one == loss) return name;
  }
  return "";
}

std::optional<CapturedLoss> loss_named(std::string_view name) {
  if (name == "mean") return CapturedLoss::local_mean;  // its name before scenarios and captures had one vocabulary
  for (const auto& [loss, known] : loss_names) {
    if (name == known) return loss;
  }
  return std::nullopt;
}

const std::vector<std::string>& captured_loss_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    all.reserve(loss_names.size());
    for (const auto& [loss, name] : loss_names) all.emplace_back(name);
    return all;
  }();
  return names;
}

std::string_view name_of(VerifiedPiece::Verdict verdict) {
  return verdict == PieceVerdict::right ? "right" : verdict == PieceVerdict::wrong ? "wrong" : "undecided";
}

std::size_t VerifyResult::count(PieceVerdict verdict) const {
  return static_cast<std::size_t>(std::count_if(pieces.begin(), pieces.end(),
                                                [&](const VerifiedPiece& piece) { return piece.verdict == verdict; }));
}

std::size_t VerifiedReference::count(PieceVerdict contributions) const {
  return static_cast<std::size_t>(
      std::count_if(parameters.begin(), parameters.end(),
                    [&](const ReferencedParameter& one) { return one.contributions == contributions; }));
}

VerifiedPiece::Verdict VerifyResult::verdict() const {
  const auto any = [&](PieceVerdict verdict) {
    return count(verdict) > 0 || (reference && reference->count(verdict) > 0) ||
           std::any_of(findings.begin(), findings.end(),
                       [&](const VerifyFinding& one) { return one.verdict == verdict; });
  };
  if (any(PieceVerdict::wrong) || !collectives.empty()) return PieceVerdict::wrong;
  return any(PieceVerdict::undecided) || !gaps.empty() || pieces.empty() ? PieceVerdict::undecided
                                                                         : PieceVerdict::right;
}

}  // namespace lockstep
