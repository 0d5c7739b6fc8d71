// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "lockstep/rational.h"
#include "src/live/extraction.h"
#include "src/live/extraction_order.h"
#include "src/live/formula.h"
#include "src/live/region_overlaps.h"
#include "src/symbolic/program_forms.h"

namespace lockstep::live {

/// A contribution with which a sum is made, as two extractions know it: by names and coordinates.
struct ComparedTerm {
  std::string parameter;
  int step = 0, rank = 0, micro_batch = 0;
  int number = -1;        ///< of the rank's contributions to these elements in the micro-batch, from 0; -1: all alike
  std::int64_t move = 0;  ///< by how many row-major indices its element comes after that which holds the sum
  Rational coefficient;

  auto key() const { return std::tie(parameter, step, rank, micro_batch, number, move); }
  friend bool operator<(const ComparedTerm& a, const ComparedTerm& b) {
    return a.key() != b.key() ? a.key() < b.key() : a.coefficient < b.coefficient;
  }
};

/// Sums, by numbers from 0 on that are the same for the same sum in both extractions.
class ComparedSums {
 public:
  int number(std::vector<ComparedTerm> terms);
  const std::vector<ComparedTerm>& terms(int number) const { return *terms_[at(number)]; }

 private:
  std::map<std::vector<ComparedTerm>, int> numbers_;
  std::vector<const std::vector<ComparedTerm>*> terms_;
};

/// Elements [begin, end) that a rank's optimizer reads.
struct ReadStretch {
  Interval elements;
  int sum = 0;  ///< of ComparedSums; below 0: see ComparedSide
  int rank = 0;
};

/// What the optimizers of one extraction read.
class ComparedSide {
 public:
  static constexpr int no_gradient = -1;

  /// All must outlive it.
  ComparedSide(const Extraction& extraction, ComparedSums& sums);

  /// By what indices count: "" where they are those of the parameter; else the box of it that they are of.
  std::map<std::string, std::vector<ReadStretch>> read(int parameter, int step);
  /// Of a key of what read() has last said of a parameter.
  const Region& region_of(int parameter, const std::string& space) const {
    return extraction_.regions[at(region_of_space_.at({parameter, space}))];
  }
  /// Of a sum below no_gradient.
  const std::string& reason_of(int sum) const { return reasons_[at(-2 - sum)]; }
  std::string formula(int sum, int parameter, int step) const;
  CollectiveOrder collectives() const { return order_of_calls(extraction_, meetings_); }
  /// The ranks and micro-batches whose backward yields something of a parameter in a step, ascending.
  std::vector<std::pair<int, int>> contributors(int parameter, int step) const;

 private:
  /// Of no rank yet, counted from the result's first element.
  std::vector<ReadStretch> sums_in(const ExtractedResult& result, const symbolic::Stretches& stretches);
  /// Else squares, of which norms are made, are in it.
  bool is_of_contributions(int form) const;
  void add(const ExtractedResult& result, const symbolic::Stretch& stretch, std::vector<ReadStretch>& all);
  int sum_of(const ExtractedResult& result, const symbolic::Stretch& stretch, const Interval& part);
  int unknown(const std::string& reason);

  const Extraction& extraction_;
  ComparedSums& sums_;
  symbolic::Meetings meetings_;
  symbolic::ProgramForms forms_;
  RegionOverlaps overlaps_;
  RunFormulas formulas_;
  std::vector<std::vector<int>> numbers_;  // by program and contribution
  /// By parameter.
  std::vector<std::vector<std::pair<const ExtractedProgram*, const ExtractedResult*>>> results_;
  /// By parameter and step: how many contributions of one micro-batch there are at most, by rank and micro-batch.
  std::map<std::pair<int, int>, std::map<std::pair<int, int>, int>> contributors_;
  std::map<std::tuple<int, std::int64_t, int, std::int64_t>, int> known_;  // by form, shift, region and place in it
  std::map<std::pair<int, std::string>, int> region_of_space_;
  std::vector<std::string> reasons_;
  std::map<std::string, int> reason_numbers_;
};

}  // namespace lockstep::live
