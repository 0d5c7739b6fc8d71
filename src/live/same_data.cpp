// SPDX-License-Identifier: Apache-2.0
#include "src/live/same_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <tuple>
#include <utility>

#include "src/base/at.h"
#include "src/live/precision.h"
#include "src/live/words.h"

namespace lockstep::live {

namespace {

using Verdict = VerifiedPiece::Verdict;

constexpr std::size_t most_classes_told = 3;

/// By column, the number of the first that is the same but for rounding, whoever contributed it.
std::vector<std::size_t> without_rounding(const std::vector<Column>& columns) {
  std::vector<std::size_t> same(columns.size()), order(columns.size());
  std::iota(same.begin(), same.end(), std::size_t{0});
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::vector<double> size;
  size.reserve(columns.size());
  for (const Column& column : columns) size.push_back(length(column.values));
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return size[a] < size[b]; });
  // Of one size are few, unless they are the same.
  for (std::size_t i = 0; i < order.size(); ++i) {
    const Column& one = columns[order[i]];
    for (std::size_t j = i; j-- > 0;) {
      const Column& other = columns[order[j]];
      const Dtype dtype = coarser(one.dtype, other.dtype);
      if (size[order[i]] - size[order[j]] > (4 * unit_roundoff(dtype) + 0x1p-19) * size[order[i]]) break;
      if (!nearly_equal(one.values, other.values, dtype)) continue;
      same[order[i]] = same[order[j]];
      break;
    }
  }
  return same;
}

}  // namespace

SameData::SameData(const CapturedRun& run, SketchFiles& files, const Expected& expected, int step, const Cells& cells)
    : run_(run), class_of_(at(run.data_ranks), -1), yields_(at(run.data_ranks), 0) {
  for (const RankRecord& rank : run.ranks) class_of_[at(run.data_coordinate(rank.header.rank))] = 0;
  const auto coordinates =
      static_cast<std::size_t>(std::count_if(class_of_.begin(), class_of_.end(), [](int known) { return known == 0; }));
  std::vector<std::set<int>> holders(run.parameters.size());  // data coordinates of ranks that have it
  for (const RankRecord& rank : run.ranks) {
    for (const int parameter : rank.run_parameters)
      holders[at(parameter)].insert(run.data_coordinate(rank.header.rank));
  }
  bool is_open = coordinates > 1;
  for (auto cell = cells.begin(); is_open && cell != cells.end(); ++cell) {
    // Experts that a rank has alone say nothing of what others have.
    if (holders[at(cell->second.parameter)].size() < coordinates) continue;
    const Columns found = gather_columns(run, files, expected, step, cell->second.contributions);
    if (!found.missing.empty() || found.non_finite > 0) continue;
    tell_apart(found);
    const std::set<int> classes(class_of_.begin(), class_of_.end());
    is_open = classes.size() - classes.count(-1) < coordinates;
  }
  if (!is_open) return;
  const std::vector<std::vector<int>> all = same();
  if (all.empty()) return;
  words_ = all.front().size() == class_of_.size() ? "every data-parallel rank"
                                                  : "data-parallel ranks " + numbers_words(all.front());
  words_ += " yielded the same gradients";
  for (std::size_t i = 1; i < std::min(all.size(), most_classes_told); ++i)
    words_ += ", and so did " + numbers_words(all[i]);
  words_ +=
      ": they read the same data, or the gradients were reduced before; whether they were added up cannot be seen";
}

void SameData::tell_apart(const Columns& found) {
  const std::vector<std::size_t> same = without_rounding(found.columns);
  // By data coordinate: coordinates on all other axes, micro-batch, and what came.
  std::map<int, std::set<std::tuple<int, int, std::size_t>>> yielded;
  for (std::size_t i = 0; i < found.columns.size(); ++i) {
    for (const auto& [rank, micro_batch] : found.columns[i].members) {
      const int data = run_.data_coordinate(rank);
      yielded[data].emplace(run_.other_coordinates(rank, run_.data_axes), micro_batch, same[i]);
      yields_[at(data)] = 1;
    }
  }
  std::map<std::pair<int, std::set<std::tuple<int, int, std::size_t>>>, int> classes;
  for (std::size_t data = 0; data < class_of_.size(); ++data) {
    if (class_of_[data] < 0) continue;
    const auto next = static_cast<int>(classes.size());
    class_of_[data] = classes.try_emplace({class_of_[data], yielded[static_cast<int>(data)]}, next).first->second;
  }
}

std::vector<std::vector<int>> SameData::same() const {
  std::map<int, std::vector<int>> classes;
  for (std::size_t data = 0; data < class_of_.size(); ++data) {
    if (class_of_[data] >= 0 && yields_[data] != 0) classes[class_of_[data]].push_back(static_cast<int>(data));
  }
  std::vector<std::vector<int>> several;
  for (auto& [number, members] : classes) {
    if (members.size() > 1) several.push_back(std::move(members));
  }
  return several;
}

void SameData::doubt(const Cell& cell, std::vector<PieceFinding>& findings) const {
  if (words_.empty()) return;
  std::map<int, std::set<int>> contributed;  // data coordinates, by class
  for (const SketchedTensor* one : cell.contributions) {
    const int data = run_.data_coordinate(one->rank);
    contributed[class_of_[at(data)]].insert(data);
  }
  if (std::none_of(contributed.begin(), contributed.end(), [](const auto& one) { return one.second.size() > 1; }))
    return;
  for (PieceFinding& one : findings) {
    if (one.piece.verdict != Verdict::right || one.piece.coefficients.empty()) continue;
    one.piece.verdict = Verdict::undecided;
    one.summary = words_;
  }
}

void doubt_zeros(std::vector<PieceFinding>& findings) {
  const bool nothing_seen = std::all_of(findings.begin(), findings.end(), [](const PieceFinding& one) {
    return one.piece.verdict == Verdict::right && one.piece.coefficients.empty();
  });
  if (!nothing_seen) return;
  for (PieceFinding& one : findings) {
    one.piece.verdict = Verdict::undecided;
    one.summary = "no rank's backward yielded anything but zeros, so that nothing is seen of what was done with it";
  }
}

}  // namespace lockstep::live
