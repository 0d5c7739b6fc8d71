// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "src/live/candidates.h"
#include "src/live/least_squares.h"

namespace lockstep::live {

/// The candidates over some columns with all that solving them needs of these alone: each is solved once, however many
/// results are explained. The columns must outlive it. Not for several threads.
class Designs {
 public:
  /// What depends on the scale of the columns.
  struct Scaled {
    Basis basis;
    std::vector<std::optional<SolvedDesign>> solved;  // by candidate
    SolvedDesign last;                                // where no more are kept
  };

  /// `first`: where in `columns` those of each earlier optimizer step begin; empty where there are none.
  Designs(std::vector<const Column*> columns, std::vector<std::size_t> first);

  const std::vector<Candidate>& candidates();
  /// At the scale that fits the result of `problem`, which has these columns.
  Scaled& scaled(const Problem& problem);
  /// Valid until the next call.
  const SolvedDesign& solved(Scaled& scaled, std::size_t candidate);

 private:
  std::vector<const Column*> columns_;
  std::vector<std::size_t> first_;
  std::optional<std::vector<Candidate>> candidates_;  // once somebody asks for them
  double largest_ = 0;                                // number of the columns
  std::map<int, Scaled> by_exponent_;
  std::size_t kept_ = 0;  // numbers in solved designs
};

/// Designs by their columns.
class DesignCache {
 public:
  Designs& over(const std::vector<const Column*>& columns, const std::vector<std::size_t>& first = {});

 private:
  std::map<std::pair<std::vector<const Column*>, std::vector<std::size_t>>, Designs> designs_;
};

}  // namespace lockstep::live
