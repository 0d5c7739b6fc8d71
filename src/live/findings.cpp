// SPDX-License-Identifier: Apache-2.0
#include "src/live/findings.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <string>
#include <utility>

#include "src/base/at.h"

namespace lockstep::live {

namespace {

using Verdict = VerifiedPiece::Verdict;

/// Findings about what the ranks contribute.
void find_in_reference(const VerifiedReference& reference, VerifyResult& result) {
  std::map<std::pair<Verdict, std::string>, std::size_t> places;
  for (const ReferencedParameter& one : reference.parameters) {
    if (one.contributions == Verdict::right) continue;
    const auto [found, is_new] = places.try_emplace({one.contributions, one.what}, result.findings.size());
    const Mistake kind = one.contributions == Verdict::wrong ? Mistake::in_the_model : Mistake::undecided;
    if (is_new) result.findings.push_back({one.contributions, kind, one.what, {}, {}, {*reference.step}, 0, 0});
    result.findings[found->second].parameters.push_back(one.parameter);
  }
}

/// What is wrong before what is undecided, what comes before all else first, then what most pieces have.
void sort(VerifyResult& result) {
  const std::vector<VerifyFinding>& found = result.findings;
  std::vector<std::size_t> order(found.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    if (found[a].verdict != found[b].verdict) return found[a].verdict == Verdict::wrong;
    if ((found[a].pieces == 0) != (found[b].pieces == 0)) return found[a].pieces == 0;  // what comes before all else
    return found[a].pieces > found[b].pieces;
  });
  std::vector<VerifyFinding> sorted;
  std::vector<int> place(found.size());
  for (const std::size_t index : order) {
    place[index] = static_cast<int>(sorted.size());
    sorted.push_back(std::move(result.findings[index]));
  }
  result.findings = std::move(sorted);
  for (VerifiedPiece& piece : result.pieces) {
    if (piece.finding >= 0) piece.finding = place[at(piece.finding)];
  }
}

}  // namespace

void find_mistakes(std::vector<PieceFinding> of_pieces, VerifyResult& result) {
  std::map<std::pair<Verdict, std::string>, std::size_t> places;
  for (PieceFinding& one : of_pieces) {
    const std::size_t index = result.pieces.size();
    if (one.piece.verdict != Verdict::right) {
      const auto [found, is_new] = places.try_emplace({one.piece.verdict, one.summary}, result.findings.size());
      if (is_new) {
        result.findings.emplace_back();
        result.findings.back().verdict = one.piece.verdict;
        result.findings.back().what = one.summary;
        result.findings.back().first = index;
        result.findings.back().kind = one.piece.verdict == Verdict::undecided ? Mistake::undecided : one.kind;
      }
      VerifyFinding& finding = result.findings[found->second];
      one.piece.finding = static_cast<int>(found->second);
      ++finding.pieces;
      finding.parameters.push_back(one.piece.parameter);
      finding.steps.push_back(one.piece.step);
      finding.ranks.insert(finding.ranks.end(), one.piece.ranks.begin(), one.piece.ranks.end());
    }
    result.pieces.push_back(std::move(one.piece));
  }
  for (VerifyFinding& finding : result.findings) {
    for (std::vector<int>* list : {&finding.parameters, &finding.ranks, &finding.steps}) {
      std::sort(list->begin(), list->end());
      list->erase(std::unique(list->begin(), list->end()), list->end());
    }
  }
  if (result.reference) find_in_reference(*result.reference, result);
  sort(result);
}

}  // namespace lockstep::live
