// SPDX-License-Identifier: Apache-2.0
#include "src/numeric/runs.h"

#include <algorithm>

#include "src/base/at.h"

namespace lockstep::numeric {

std::vector<Run> find_runs(const Model& model, int logical, int piece, const Interval& elements) {
  std::vector<Run> runs;
  find_runs(model, logical, piece, elements, runs);
  return runs;
}

void find_runs(const Model& model, int logical, int piece, const Interval& elements, std::vector<Run>& runs) {
  const std::vector<std::int64_t>& shape = model.logicals()[at(logical)].shape;
  const std::vector<Interval>& dims = model.pieces(logical)[at(piece)].dims;
  // Inner dimensions that the piece has whole, and one more, lie without gaps.
  std::int64_t length = 1;
  for (std::size_t d = dims.size(); d-- > 0;) {
    length *= dims[d].size();
    if (dims[d].size() != shape[d]) break;
  }
  runs.clear();
  for (std::int64_t at = elements.begin; at < elements.end;) {
    const std::int64_t end = std::min(elements.end, (at / length + 1) * length);
    const auto global = static_cast<std::uint64_t>(model.global_index(logical, piece, at));
    if (!runs.empty() && runs.back().global + static_cast<std::uint64_t>(runs.back().count) == global) {
      runs.back().count += end - at;
    } else {
      runs.push_back({at, end - at, global});
    }
    at = end;
  }
}

}  // namespace lockstep::numeric
