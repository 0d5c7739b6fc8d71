// SPDX-License-Identifier: Apache-2.0
#include "src/live/columns.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "src/live/precision.h"

namespace lockstep::live {

namespace {

/// Several backward calls of one micro-batch add up.
struct Summed {
  Eigen::VectorXd values;
  Dtype dtype = Dtype::float32;
  GradientHash hash;
  std::uint32_t partial = 0;
  bool several = false;
};

/// Ranks that compute one thing in other orders of summation differ by a few roundings.
bool nearly_equal(const Column& a, const Summed& b) {
  const double tolerance = 4 * unit_roundoff(coarser(a.dtype, b.dtype)) + 0x1p-19;
  const double size = std::max(a.values.stableNorm(), b.values.stableNorm());
  return (a.values - b.values).stableNorm() <= tolerance * size;
}

}  // namespace

Columns gather_columns(const CapturedRun& run, SketchFiles& files, const Expected& expected, int step,
                       const std::vector<const SketchedTensor*>& tensors) {
  Columns result;
  std::map<std::pair<int, int>, Summed> contributions;
  std::set<int> non_finite;
  for (const SketchedTensor* tensor : tensors) {
    const std::optional<std::vector<double>> row = files.row(*tensor, step);
    if (!row) {
      if (result.missing.empty())
        result.missing = fmt::format("the sketches of rank {} in optimizer step {} are missing", tensor->rank, step);
      continue;
    }
    if (tensor->non_finite > 0) {
      result.non_finite += tensor->non_finite;
      non_finite.insert(tensor->rank);
    }
    const Eigen::Map<const Eigen::VectorXd> values(row->data(), static_cast<Eigen::Index>(row->size()));
    if (!values.allFinite()) {
      if (result.missing.empty())
        result.missing = fmt::format("a sketch of rank {} in optimizer step {} has sums that are no finite numbers",
                                     tensor->rank, step);
      continue;
    }
    const auto [found, is_new] = contributions.try_emplace({tensor->rank, tensor->micro_batch});
    Summed& sum = found->second;
    if (is_new) {
      sum = {values, tensor->dtype, tensor->hash, tensor->partial, false};
    } else {
      sum.values += values;
      sum.dtype = coarser(sum.dtype, tensor->dtype);
      sum.several = true;
    }
  }
  result.non_finite_ranks.assign(non_finite.begin(), non_finite.end());

  std::map<std::tuple<std::uint64_t, std::uint64_t, Dtype>, std::size_t> by_hash;
  std::map<std::tuple<int, int, int>, std::vector<std::size_t>> by_tokens;  // data, micro-batch and share
  for (auto& [key, sum] : contributions) {
    const auto& [rank, micro_batch] = key;
    if (sum.values.isZero(0)) {
      result.zeros.push_back(key);
      continue;
    }
    const std::tuple hash(sum.hash.lanes[0], sum.hash.lanes[1], sum.dtype);
    std::optional<std::size_t> place;
    if (const auto same = by_hash.find(hash); !sum.several && same != by_hash.end()) {
      // A hash says what a tensor is, and the sketch of one tensor is one: else the file is not what it says.
      if (result.columns[same->second].values == sum.values) place = same->second;
    }
    // Shares of a sum are different things, however near they are.
    std::vector<std::size_t>& beside =
        by_tokens[{run.data_coordinate(rank), micro_batch, run.coordinates(rank, sum.partial)}];
    for (const std::size_t one : beside) {
      if (!place && nearly_equal(result.columns[one], sum)) place = one;
    }
    if (!place) {
      place = result.columns.size();
      result.columns.push_back({rank, step, micro_batch, {}, std::move(sum.values), sum.dtype});
      if (!sum.several) by_hash.emplace(hash, *place);
      beside.push_back(*place);
    }
    Column& column = result.columns[*place];
    column.members.push_back(key);
    column.dtype = coarser(column.dtype, sum.dtype);
  }
  for (Column& column : result.columns) {
    std::set<std::tuple<int, int, int>> counted;
    Rational weight(0);
    bool known = true;
    for (const auto& [rank, micro_batch] : column.members) {
      const int share = run.coordinates(rank, contributions.at({rank, micro_batch}).partial);
      if (!counted.emplace(run.data_coordinate(rank), micro_batch, share).second) continue;
      const std::optional<Rational> one = expected.of(rank, micro_batch);
      known = known && one;
      if (one) weight += *one;
    }
    column.different = static_cast<int>(counted.size());
    if (known) column.expected = weight;
    if (column.different == 1) column.likely = &expected;
  }
  return result;
}

}  // namespace lockstep::live
