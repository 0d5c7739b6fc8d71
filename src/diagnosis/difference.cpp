// SPDX-License-Identifier: Apache-2.0
#include "src/diagnosis/difference.h"

#include <map>
#include <set>
#include <tuple>

#include "lockstep/scenario.h"
#include "lockstep/symbolic.h"
#include "src/base/at.h"

namespace lockstep::diagnosis {

namespace {

using Contribution = std::tuple<int, int, int, int>;

Contribution contribution_of(const Term& term) { return {term.rank, term.micro_batch, term.site_use, term.logical}; }

/// `is_now`: whether a micro-batch is of the optimizer step that is judged.
template <class IsNow>
Difference compare(const std::vector<Term>& got, const std::vector<Term>& expected, IsNow is_now) {
  Difference difference;
  std::map<Contribution, const Term*> right;
  for (const Term& term : expected) right.emplace(contribution_of(term), &term);
  std::set<Contribution> there;
  for (const Term& term : got) {
    const auto found = right.find(contribution_of(term));
    const bool is_share = !term.foreign && term.leftover.empty() && found != right.end();
    difference.clips = difference.clips || (is_share && term.clips != found->second->clips);
  }
  for (const Term& term : apart_from_clips(got)) {
    const auto found = right.find(contribution_of(term));
    if (term.foreign) {
      difference.foreign = true;
    } else if (!term.leftover.empty() || !is_now(term.micro_batch)) {
      difference.leftover = true;
    } else if (found == right.end()) {
      difference.left_out = true;
    } else {
      difference.take(term.coefficient / found->second->coefficient);
      there.insert(found->first);
    }
  }
  difference.missing = there.size() < right.size();
  return difference;
}

}  // namespace

std::vector<Term> apart_from_clips(const std::vector<Term>& terms) {
  std::vector<Term> result;
  std::map<std::tuple<int, int, int, std::string, bool, int, int, std::int64_t>, std::size_t> places;
  for (const Term& term : terms) {
    const auto [place, is_new] = places.try_emplace({term.rank, term.micro_batch, term.site_use, term.leftover,
                                                     term.foreign, term.logical, term.piece, term.offset},
                                                    result.size());
    if (is_new) {
      result.push_back(term);
      result.back().clips.clear();
    } else {
      result[place->second].coefficient += term.coefficient;
    }
  }
  std::erase_if(result, [](const Term& term) { return term.coefficient.is_zero(); });
  return result;
}

void Difference::take(const Rational& ratio) {
  if (!least || ratio < *least) least = ratio;
  if (!most || ratio > *most) most = ratio;
}

Difference difference_of(const CheckResult& result, int rank, int buffer, const PieceResult& piece) {
  const Batch& batch = result.scenario->schedule->batch;
  const int first = batch.first_micro_batch(result.step);
  const auto is_now = [&](int micro_batch) {
    return first <= micro_batch && micro_batch < first + batch.micro_batches(result.step);
  };
  const FormReader& forms = *forms_of(result);
  return compare(forms.terms(piece.form, rank, buffer), forms.terms(piece.reference, rank, buffer), is_now);
}

std::vector<Difference> differences(const CheckResult& result) {
  std::vector<Difference> list;
  const Model& model = result.scenario->schedule->model;
  // Which terms are foreign depends on the parameter that holds them.
  std::set<std::tuple<int, int, int>> seen;
  const SymbolicResult* exact = exact_of(result);
  if (exact == nullptr) return list;
  for (const BufferResult& buffer : exact->buffers) {
    const int logical = model.local(buffer.rank).buffers[at(buffer.buffer)].logical;
    for (const PieceResult& piece : buffer.pieces) {
      if (piece.right || !seen.emplace(piece.form, piece.reference, logical).second) continue;
      list.push_back(difference_of(result, buffer.rank, buffer.buffer, piece));
    }
  }
  return list;
}

}  // namespace lockstep::diagnosis
