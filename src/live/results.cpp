// SPDX-License-Identifier: Apache-2.0
#include "src/live/results.h"

#include <algorithm>
#include <map>
#include <utility>

#include "src/live/precision.h"

namespace lockstep::live {

std::vector<SameResult> distinct_results(const CapturedRun& run, const std::vector<const SketchedTensor*>& results) {
  std::vector<SameResult> groups;
  std::map<std::pair<std::uint32_t, int>, std::size_t> sums;  // partial axes, and the coordinates on all others
  for (const SketchedTensor* result : results) {
    if (result->partial != 0 && result->row >= 0) {
      const auto [found, is_new] =
          sums.try_emplace({result->partial, run.other_coordinates(result->rank, result->partial)}, groups.size());
      if (is_new) groups.push_back({result, {}, {}});
      groups[found->second].ranks.push_back(result->rank);
      groups[found->second].shares.push_back(result);
      continue;
    }
    const auto same = std::find_if(groups.begin(), groups.end(), [&](const SameResult& group) {
      const SketchedTensor& first = *group.first;
      return group.shares.empty() && (first.row < 0) == (result->row < 0) &&
             (result->row < 0 || (first.hash == result->hash && first.dtype == result->dtype &&
                                  first.non_finite == result->non_finite && first.loss_scale == result->loss_scale));
    });
    if (same == groups.end()) {
      groups.push_back({result, {result->rank}, {}});
    } else if (same->ranks.back() != result->rank) {
      same->ranks.push_back(result->rank);
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

std::optional<int> read_result(SketchFiles& files, int step, const SameResult& result, Eigen::VectorXd& values) {
  const std::vector<const SketchedTensor*> shares =
      result.shares.empty() ? std::vector<const SketchedTensor*>{result.first} : result.shares;
  values.resize(0);
  for (const SketchedTensor* share : shares) {
    const std::optional<std::vector<double>> row = files.row(*share, step);
    if (!row) return share->rank;
    const Eigen::Map<const Eigen::VectorXd> one(row->data(), static_cast<Eigen::Index>(row->size()));
    if (values.size() == 0)
      values = one;
    else
      values += one;
  }
  return std::nullopt;
}

}  // namespace lockstep::live
