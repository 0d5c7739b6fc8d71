// SPDX-License-Identifier: Apache-2.0
#include "src/live/evidence.h"

#include <algorithm>
#include <deque>
#include <set>

#include "src/base/at.h"
#include "src/live/explain.h"
#include "src/live/precision.h"

namespace lockstep::live {

Evidence::Evidence(const CapturedRun& run, CapturedLoss loss) : run_(run), loss_(loss), files_(run) {
  for (const RankRecord& rank : run.ranks) {
    for (const auto& [step, content] : rank.steps) {
      for (const SketchedTensor& one : content.contributions)
        tensors_[{step, one.parameter, one.piece}].contributions.push_back(&one);
      for (const SketchedTensor& one : content.results)
        tensors_[{step, one.parameter, one.piece}].results.push_back(&one);
    }
  }
}

bool Evidence::explains(const VerifiedPiece& piece, const Formula& formula) {
  Problem problem;
  problem.elements = static_cast<double>(run_.parameters[at(piece.parameter)].numel(piece.piece));
  problem.result = Vector(static_cast<std::size_t>(run_.header.sums));
  bool is_first = true;
  for (const SketchedTensor* one : tensors_[{piece.step, piece.parameter, piece.piece}].results) {
    if (!std::binary_search(piece.ranks.begin(), piece.ranks.end(), one->rank)) continue;
    if (!is_first && one->partial == 0) break;  // the same bits
    if (one->row < 0 || one->non_finite > 0) return false;
    const auto row = files_.row(*one, piece.step);
    if (!row) return false;
    add(problem.result, *row);
    if (is_first) problem.result_dtype = problem.coarsest = one->dtype;
    problem.coarsest = coarser(problem.coarsest, one->dtype);
    is_first = false;
  }
  if (is_first || !is_finite(problem.result)) return false;
  std::set<std::pair<int, int>> steps = {{piece.parameter, piece.step}};  // of parameters
  for (const auto& [source, coefficient] : formula) steps.emplace(std::get<0>(source), std::get<1>(source));
  std::vector<Rational> coefficients;
  std::deque<Columns> kept;
  for (const auto& [parameter, step] : steps) {
    for (const RankRecord& rank : run_.ranks) {
      const auto found = rank.steps.find(step);
      if (found != rank.steps.end() && found->second.coarsest_call)
        problem.coarsest = coarser(problem.coarsest, *found->second.coarsest_call);
    }
    const Expected expected(run_, loss_, step);
    kept.push_back(
        gather_columns(run_, files_, expected, step, tensors_[{step, parameter, piece.piece}].contributions));
    if (!kept.back().missing.empty() || kept.back().non_finite > 0) return false;
    for (const Column& column : kept.back().columns) {
      Rational sum;
      for (const auto& [rank, micro_batch] : column.members) {
        const auto found = formula.find({parameter, step, rank, micro_batch});
        if (found != formula.end()) sum += found->second;
      }
      problem.columns.push_back(&column);
      coefficients.push_back(sum);
      problem.coarsest = coarser(problem.coarsest, column.dtype);
    }
  }
  DesignCache cache;
  const Basis& basis = cache.over(problem.columns).scaled(problem).basis;
  const Design design = design_of(coefficients);
  return fits(problem, basis, design, basis.solve(design)).has_value();
}

}  // namespace lockstep::live
