// SPDX-License-Identifier: Apache-2.0
#include "src/live/placement.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "src/base/at.h"
#include "src/live/run_layout.h"

namespace lockstep::live {

namespace {

std::int64_t numel(const std::vector<Interval>& box) {
  std::int64_t count = 1;
  for (const Interval& interval : box) count *= interval.size();
  return count;
}

/// The box of a shape that these pieces make together; nothing where they make none.
std::optional<std::vector<Interval>> joined(const DeclaredParameter& parameter, const std::set<int>& pieces,
                                            const std::vector<std::int64_t>& shape) {
  std::int64_t count = 0;
  std::vector<Interval> box, whole;
  for (const std::int64_t size : shape) whole.push_back({0, size});
  for (const int piece : pieces) {
    count += numel(parameter.pieces[at(piece)]);
    const std::optional<std::vector<Interval>> next = bounds_of_piece(parameter, piece, shape);
    if (!next) continue;
    if (box.empty()) box = *next;
    for (std::size_t i = 0; i < next->size(); ++i) {
      box[i].begin = std::min(box[i].begin, (*next)[i].begin);
      box[i].end = std::max(box[i].end, (*next)[i].end);
    }
  }
  if (numel(whole) == count) return whole;
  return numel(box) == count ? std::optional(box) : std::nullopt;
}

/// How many stretches of a dimension the pieces are in.
std::int64_t blocks(const DeclaredParameter& parameter, const std::set<int>& pieces, std::size_t dim) {
  std::set<std::pair<std::int64_t, std::int64_t>> along;
  for (const int piece : pieces) {
    const std::optional<std::vector<Interval>> box = bounds_of_piece(parameter, piece, parameter.shape);
    if (box) along.emplace((*box)[dim].begin, (*box)[dim].end);
  }
  std::int64_t count = 0, end = -1;
  for (const auto& [first, last] : along) {
    if (first > end) ++count;
    end = std::max(end, last);
  }
  return count;
}

class PlacementFinder {
 public:
  PlacementFinder(const CapturedRun& run, const VerifyResult& verified, const std::vector<int>& steps,
                  const AxisNames& names)
      : run_(run), verified_(verified), steps_(steps), axes_(run.header.axes.size()) {
    for (std::size_t axis = 0; axis < axes_; ++axis) {
      if (names[axis] == name_of(Axis::pp) && run.header.sizes[axis] > 1) pipeline_ = axis;
      is_data_.push_back(splits_tokens(names[axis]));
    }
    rank_of_place_.resize(run.place_of_rank.size());
    for (std::size_t rank = 0; rank < run.place_of_rank.size(); ++rank)
      rank_of_place_[at(run.place_of_rank[rank])] = static_cast<int>(rank);
  }

  std::vector<Placement> find() {
    result_.resize(run_.parameters.size());
    boxes();
    partial();
    micro_batches();
    stages();
    return std::move(result_);
  }

 private:
  /// The rank whose coordinate on the axis is the first, the others being the same.
  int first_along(int rank, std::size_t axis) const {
    int stride = 1;
    for (std::size_t i = axis + 1; i < axes_; ++i) stride *= run_.header.sizes[i];
    const int place = run_.place_of_rank[at(rank)];
    return rank_of_place_[at(place - place / stride % run_.header.sizes[axis] * stride)];
  }

  void boxes() {
    std::vector<std::map<int, std::set<int>>> pieces(run_.parameters.size());  // by parameter and rank
    for (const RankRecord& rank : run_.ranks) {
      for (const int step : steps_) {
        const auto found = rank.steps.find(step);
        if (found == rank.steps.end()) continue;
        for (const SketchedTensor& one : found->second.contributions) {
          if (run_.parameters[at(one.parameter)].numel(one.piece) == 0) continue;
          pieces[at(one.parameter)][rank.header.rank].insert(one.piece);
          mark(result_[at(one.parameter)].partial, one.partial);
        }
        for (const SketchedTensor& one : found->second.results)
          mark(result_[at(one.parameter)].redistributed, one.partial);
      }
    }
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      const DeclaredParameter& parameter = run_.parameters[i].declared;
      result_[i].shape = shape_of(parameter, pieces[i]);
      std::map<int, std::vector<Interval>> box;
      for (const auto& [rank, of_rank] : pieces[i]) box[rank] = *joined(parameter, of_rank, result_[i].shape);
      for (const auto& [rank, own] : box) {
        for (std::size_t axis = 0; axis < axes_; ++axis) {
          const auto other = box.find(first_along(rank, axis));
          if (axis == pipeline_ || other == box.end()) continue;
          for (std::size_t dim = 0; dim < own.size(); ++dim) {
            if (own[dim] == other->second[dim]) continue;
            if (is_data_[axis])
              refuse(fmt::format("ranks along {} see different tokens and hold different parts of {}",
                                 run_.header.axes[axis], parameter.name));
            const std::pair<int, int> cut(static_cast<int>(axis), static_cast<int>(dim));
            auto& shard = result_[i].shard;
            if (std::find(shard.begin(), shard.end(), cut) == shard.end()) shard.push_back(cut);
          }
        }
      }
      std::sort(result_[i].shard.begin(), result_[i].shard.end());
    }
  }

  /// A shape in which the pieces of each rank make a box.
  std::vector<std::int64_t> shape_of(const DeclaredParameter& parameter,
                                     const std::map<int, std::set<int>>& pieces) const {
    std::vector<std::int64_t> shape = parameter.shape;
    const auto no_box = [&]() {
      return std::find_if(pieces.begin(), pieces.end(),
                          [&](const auto& one) { return !joined(parameter, one.second, shape); });
    };
    const auto first = no_box();
    if (first == pieces.end()) return shape;
    for (std::size_t dim = 0; dim < parameter.shape.size(); ++dim) {
      const std::int64_t count = blocks(parameter, first->second, dim);
      if (count < 2 || parameter.shape[dim] % count != 0) continue;
      shape = parameter.shape;
      shape[dim] /= count;
      shape.insert(shape.begin() + static_cast<std::ptrdiff_t>(dim), count);
      if (no_box() == pieces.end()) return shape;
    }
    refuse(fmt::format("rank {} yields a gradient for a part of {} that is no box", first->first, parameter.name));
  }

  [[noreturn]] void refuse(const std::string& what) const {
    throw InputError(
        {Diagnostic{{}, fmt::format("{}: {}, which no placement of a scenario says.", run_.folder, what)}});
  }

  void mark(std::vector<int>& axes, std::uint32_t bits) const {
    for (std::size_t axis = 0; axis < axes_; ++axis) {
      const int number = static_cast<int>(axis);
      if ((bits >> axis & 1) != 0 && std::find(axes.begin(), axes.end(), number) == axes.end()) axes.push_back(number);
    }
  }

  /// Ranks that see the same tokens and hold the same part either yield the same, or each a share of it.
  void partial() {
    for (const VerifiedPiece& piece : verified_.pieces) {
      Placement& placement = result_[at(piece.parameter)];
      std::set<std::pair<int, int>> alone;  // first rank and micro-batch of contributions
      for (const RecoveredCoefficient& one : piece.coefficients) {
        if (one.step == piece.step) alone.insert({one.rank, one.micro_batch});
      }
      for (const RecoveredCoefficient& one : piece.coefficients) {
        if (one.step != piece.step) continue;
        for (std::size_t axis = 0; axis < axes_; ++axis) {
          const int number = static_cast<int>(axis);
          const int first = first_along(one.rank, axis);
          const bool cut = std::any_of(placement.shard.begin(), placement.shard.end(),
                                       [&](const std::pair<int, int>& shard) { return shard.first == number; });
          if (is_data_[axis] || axis == pipeline_ || cut || first == one.rank ||
              !alone.contains({first, one.micro_batch}))
            continue;
          mark(placement.partial, std::uint32_t{1} << axis);
        }
      }
    }
    for (Placement& placement : result_) std::sort(placement.partial.begin(), placement.partial.end());
  }

  /// Where backward yields a parameter's gradient on every rank in the same micro-batches, and not in all.
  void micro_batches() {
    std::vector<std::map<std::pair<int, int>, std::set<int>>> passes(run_.parameters.size());  // by rank and step
    int all = 0;
    for (const RankRecord& rank : run_.ranks) {
      for (const int step : steps_) {
        const auto found = rank.steps.find(step);
        if (found == rank.steps.end()) continue;
        all = std::max(all, found->second.micro_batches);
        for (const SketchedTensor& one : found->second.contributions) {
          if (one.hash != zero_hash_) passes[at(one.parameter)][{rank.header.rank, step}].insert(one.micro_batch);
        }
      }
    }
    std::set<int> measured;
    for (const VerifiedPiece& piece : verified_.pieces) measured.insert(piece.parameter);
    for (std::size_t i = 0; i < passes.size(); ++i) {
      if (passes[i].empty()) {
        // Some optimizers get zeros of what nobody used.
        if (measured.contains(static_cast<int>(i))) {
          result_[i].micro_batches.emplace();
        } else {
          result_[i].untouched = true;
        }
        continue;
      }
      const std::set<int>& first = passes[i].begin()->second;
      const bool same =
          std::all_of(passes[i].begin(), passes[i].end(), [&](const auto& one) { return one.second == first; });
      if (same && static_cast<int>(first.size()) < all) result_[i].micro_batches.emplace(first.begin(), first.end());
    }
  }

  /// A stage holds what one of its ranks declares.
  void stages() {
    if (!pipeline_) return;
    std::vector<std::map<int, StageName>> names(run_.parameters.size());
    for (const RankRecord& rank : run_.ranks) {
      const int stage = run_.coordinates(rank.header.rank, std::uint32_t{1} << *pipeline_);
      for (std::size_t i = 0; i < rank.parameters.size(); ++i)
        names[at(rank.run_parameters[i])].emplace(stage,
                                                  StageName{stage, rank.parameters[i].chunk, rank.parameters[i].name});
    }
    for (std::size_t i = 0; i < names.size(); ++i) {
      for (const auto& [stage, name] : names[i]) result_[i].stages.push_back(name);
    }
  }

  const CapturedRun& run_;
  const VerifyResult& verified_;
  const std::vector<int>& steps_;
  std::size_t axes_;
  std::vector<bool> is_data_;
  std::optional<std::size_t> pipeline_;  // the axis
  std::vector<int> rank_of_place_;
  GradientHash zero_hash_;
  std::vector<Placement> result_;
};

}  // namespace

std::optional<std::vector<Interval>> bounds_of_piece(const DeclaredParameter& parameter, int piece,
                                                     const std::vector<std::int64_t>& shape) {
  const std::vector<Interval>& own = parameter.pieces[at(piece)];
  if (numel(own) <= 0 || std::find(shape.begin(), shape.end(), 0) != shape.end()) return std::nullopt;
  std::vector<Interval> box;
  if (own.size() == parameter.shape.size() && own.size() > 1) {
    for (std::size_t dim = 0; dim < own.size(); ++dim) {
      // One dimension may be two.
      const std::int64_t size = shape[box.size()];
      if (size == parameter.shape[dim]) {
        box.push_back(own[dim]);
        continue;
      }
      const std::int64_t block = parameter.shape[dim] / size;
      const std::int64_t first = own[dim].begin / block, last = (own[dim].end - 1) / block;
      box.push_back({first, last + 1});
      box.push_back(first == last ? Interval{own[dim].begin - first * block, own[dim].end - first * block}
                                  : Interval{0, block});
    }
    return box;
  }
  // From the first dimension on in which a range spans several places, it ends one row and begins the next.
  std::int64_t begin = own.front().begin, last = own.front().end - 1, suffix = 1;
  for (const std::int64_t size : shape) suffix *= size;
  bool spans = false;
  for (const std::int64_t size : shape) {
    suffix /= size;
    box.push_back(spans ? Interval{0, size} : Interval{begin / suffix, last / suffix + 1});
    spans = spans || box.back().size() > 1;
    begin %= suffix;
    last %= suffix;
  }
  return box;
}

std::optional<std::vector<Interval>> box_of_piece(const DeclaredParameter& parameter, int piece,
                                                  const std::vector<std::int64_t>& shape) {
  std::optional<std::vector<Interval>> box = bounds_of_piece(parameter, piece, shape);
  if (box && numel(*box) != numel(parameter.pieces[at(piece)])) box.reset();
  return box;
}

std::vector<Placement> find_placements(const CapturedRun& run, const VerifyResult& verified,
                                       const std::vector<int>& steps, const AxisNames& names) {
  return PlacementFinder(run, verified, steps, names).find();
}

}  // namespace lockstep::live
