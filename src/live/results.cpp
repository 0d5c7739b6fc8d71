// SPDX-License-Identifier: Apache-2.0
#include "src/live/results.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "src/live/precision.h"

namespace lockstep::live {

std::vector<SameResult> distinct_results(const CapturedRun& run, const std::vector<const SketchedTensor*>& results) {
  std::vector<SameResult> groups;
  std::map<std::pair<std::uint32_t, int>, std::size_t> sums;  // partial axes, and the coordinates on all others
  std::map<std::tuple<bool, std::uint64_t, std::uint64_t, Dtype, std::uint64_t, double>, std::size_t> bits;
  for (const SketchedTensor* result : results) {
    if (result->partial != 0 && result->row >= 0) {
      const auto [found, is_new] =
          sums.try_emplace({result->partial, run.other_coordinates(result->rank, result->partial)}, groups.size());
      if (is_new) groups.push_back({result, {}, {}});
      groups[found->second].ranks.push_back(result->rank);
      groups[found->second].shares.push_back(result);
      continue;
    }
    const bool some = result->row >= 0;
    const std::tuple same = some
                                ? std::tuple(true, result->hash.lanes[0], result->hash.lanes[1], result->dtype,
                                             std::uint64_t{result->non_finite}, result->loss_scale)
                                : std::tuple(false, std::uint64_t{0}, std::uint64_t{0}, Dtype{}, std::uint64_t{0}, 0.0);
    const auto [found, is_new] = bits.try_emplace(same, groups.size());
    if (is_new) {
      groups.push_back({result, {result->rank}, {}});
    } else if (groups[found->second].ranks.back() != result->rank) {
      groups[found->second].ranks.push_back(result->rank);
    }
  }
  return groups;
}

SketchedTensor whole(const SameResult& result) {
  SketchedTensor all = *result.first;
  for (std::size_t i = 1; i < result.shares.size(); ++i) {
    all.non_finite += result.shares[i]->non_finite;
    all.dtype = coarser(all.dtype, result.shares[i]->dtype);
  }
  return all;
}

std::optional<int> read_result(SketchFiles& files, int step, const SameResult& result, Vector& values) {
  const std::vector<const SketchedTensor*> shares =
      result.shares.empty() ? std::vector<const SketchedTensor*>{result.first} : result.shares;
  values.clear();
  for (const SketchedTensor* share : shares) {
    const std::optional<std::vector<double>> row = files.row(*share, step);
    if (!row) return share->rank;
    if (values.empty())
      values = *row;
    else
      add(values, *row);
  }
  return std::nullopt;
}

}  // namespace lockstep::live
