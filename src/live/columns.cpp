// SPDX-License-Identifier: Apache-2.0
#include "src/live/columns.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "src/live/precision.h"
#include "src/live/run_layout.h"

namespace lockstep::live {

namespace {

/// Several backward calls of one micro-batch add up.
struct Summed {
  Vector values;
  Dtype dtype = Dtype::float32;
  GradientHash hash;
  std::uint32_t partial = 0;
  bool several = false;
};

/// See Columns::unsaid_axis.
int find_unsaid_axis(const CapturedRun& run, int parameter, const Columns& found,
                     const std::map<std::pair<int, int>, Summed>& contributions) {
  std::map<std::pair<int, int>, int> column_of;  // by rank and micro-batch; -1: zeros
  for (const std::pair<int, int>& zero : found.zeros) column_of[zero] = -1;
  for (std::size_t i = 0; i < found.columns.size(); ++i) {
    for (const std::pair<int, int>& member : found.columns[i].members) column_of[member] = static_cast<int>(i);
  }
  for (std::size_t axis = 0; axis < run.header.axes.size(); ++axis) {
    if (is_said_along(run, axis, parameter)) continue;
    const std::uint32_t bit = std::uint32_t{1} << axis;
    std::map<std::pair<int, int>, int> first;  // by the coordinates on all other axes, and micro-batch
    for (const auto& [member, column] : column_of) {
      const auto& [rank, micro_batch] = member;
      if ((contributions.at(member).partial & bit) != 0) continue;
      const auto [same, is_new] = first.try_emplace({run.other_coordinates(rank, bit), micro_batch}, column);
      if (!is_new && same->second != column) return static_cast<int>(axis);
    }
  }
  return -1;
}

}  // namespace

std::vector<const Column*> pointers(const std::vector<Column>& columns) {
  std::vector<const Column*> all;
  all.reserve(columns.size());
  for (const Column& column : columns) all.push_back(&column);
  return all;
}

bool is_said_along(const CapturedRun& run, std::size_t axis) {
  const std::string& name = run.header.axes[axis];
  return (run.data_axes >> axis & 1) != 0 || run.header.sizes[axis] == 1 || splits_sequence(name) ||
         name == name_of(Axis::pp) || run.placed_axes.contains(name);
}

bool is_said_along(const CapturedRun& run, std::size_t axis, int parameter) {
  if ((run.data_axes >> axis & 1) != 0 || run.header.sizes[axis] == 1) return true;
  if (run.header.axes[axis] == name_of(Axis::pp)) return !run.perhaps_tied.contains(parameter);
  return is_said_along(run, axis) && !run.apart.contains({axis, parameter});
}

bool nearly_equal(const Vector& a, const Vector& b, Dtype dtype) {
  const double tolerance = 4 * unit_roundoff(dtype) + 0x1p-19;
  return length(difference(a, b)) <= tolerance * std::max(length(a), length(b));
}

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
    const Vector& values = *row;
    if (!is_finite(values)) {
      if (result.missing.empty())
        result.missing = fmt::format("a sketch of rank {} in optimizer step {} has sums that are no finite numbers",
                                     tensor->rank, step);
      continue;
    }
    if (is_zero(values) && tensor->non_finite == 0 && !result.zero_hashes.add(*tensor) && result.missing.empty())
      result.missing = fmt::format("a sketch of rank {} in optimizer step {} {}", tensor->rank, step, not_of_zeros);
    const auto [found, is_new] = contributions.try_emplace({tensor->rank, tensor->micro_batch});
    Summed& sum = found->second;
    if (is_new) {
      sum = {values, tensor->dtype, tensor->hash, tensor->partial, false};
    } else {
      add(sum.values, values);
      sum.dtype = coarser(sum.dtype, tensor->dtype);
      sum.several = true;
    }
  }
  result.non_finite_ranks.assign(non_finite.begin(), non_finite.end());

  std::map<std::tuple<std::uint64_t, std::uint64_t, Dtype>, std::size_t> by_hash;
  std::map<std::tuple<int, int, int>, std::vector<std::size_t>> by_tokens;  // data, micro-batch and share
  for (auto& [key, sum] : contributions) {
    const auto& [rank, micro_batch] = key;
    if (is_zero(sum.values)) {
      result.zeros.push_back(key);
      continue;
    }
    const std::tuple hash(sum.hash.lanes[0], sum.hash.lanes[1], sum.dtype);
    std::optional<std::size_t> place;
    if (const auto same = by_hash.find(hash); !sum.several && same != by_hash.end()) {
      // A hash says what a tensor is, and the sketch of one tensor is one, but for the digits that a file keeps: else
      // the file is not what it says.
      if (nearly_equal(result.columns[same->second].values, sum.values, Dtype::float64)) place = same->second;
    }
    // Shares of a sum are different things, however near they are.
    std::vector<std::size_t>& beside =
        by_tokens[{run.data_coordinate(rank), micro_batch, run.coordinates(rank, sum.partial)}];
    for (const std::size_t one : beside) {
      const Column& column = result.columns[one];
      if (!place && nearly_equal(column.values, sum.values, coarser(column.dtype, sum.dtype))) place = one;
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
  if (!tensors.empty()) result.unsaid_axis = find_unsaid_axis(run, tensors.front()->parameter, result, contributions);
  return result;
}

bool ZeroHashes::add(const SketchedTensor& tensor) {
  return hashes_.try_emplace(tensor.dtype, tensor.hash).first->second == tensor.hash;
}

}  // namespace lockstep::live
