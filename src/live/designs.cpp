// SPDX-License-Identifier: Apache-2.0
#include "src/live/designs.h"

#include <algorithm>

namespace lockstep::live {

namespace {

/// Numbers that the solved designs of some columns may take, 16 MB: what is beyond is solved anew for each result.
constexpr std::size_t most_kept = std::size_t{1} << 21;

}  // namespace

Designs::Designs(std::vector<const Column*> columns, std::vector<std::size_t> first)
    : columns_(std::move(columns)), first_(std::move(first)) {
  for (const Column* column : columns_) largest_ = std::max(largest_, largest(column->values));
}

const std::vector<Candidate>& Designs::candidates() {
  if (candidates_) return *candidates_;
  const auto end = first_.empty() ? columns_.end() : columns_.begin() + static_cast<std::ptrdiff_t>(first_.front());
  std::vector<Candidate> own = own_candidates({columns_.begin(), end});
  candidates_ = first_.empty() ? std::move(own) : candidates_with_earlier(own, columns_, first_);
  return *candidates_;
}

Designs::Scaled& Designs::scaled(const Problem& problem) {
  const int exponent = Basis::exponent_for(largest_, problem.result);
  const auto found = by_exponent_.find(exponent);
  if (found != by_exponent_.end()) return found->second;
  return by_exponent_.emplace(exponent, Scaled{Basis(columns_, exponent), {}, {}}).first->second;
}

const SolvedDesign& Designs::solved(Scaled& scaled, std::size_t candidate) {
  scaled.solved.resize(candidates().size());
  std::optional<SolvedDesign>& known = scaled.solved[candidate];
  if (known) return *known;
  scaled.last = scaled.basis.solve(candidates()[candidate].design);
  if (kept_ > most_kept) return scaled.last;
  kept_ += 3 * scaled.last.matrix.elements.size();
  return known.emplace(std::move(scaled.last));
}

Designs& DesignCache::over(const std::vector<const Column*>& columns, const std::vector<std::size_t>& first) {
  const auto found = designs_.find({columns, first});
  if (found != designs_.end()) return found->second;
  return designs_.try_emplace({columns, first}, columns, first).first->second;
}

}  // namespace lockstep::live
