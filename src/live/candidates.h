// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "src/live/least_squares.h"

namespace lockstep::live {

/// A design with its meaning.
struct Candidate {
  Design design;
  bool uniform = false;   ///< one group of all columns of this optimizer step, and none of an earlier one
  bool expected = false;  ///< weighted with what is expected
  bool each = false;      ///< a group for each column
};

/// Ways in which the columns of an optimizer step may have entered, those with few groups first: all with one factor,
/// one for each rank, one for each micro-batch, one for each column; times what is expected, or times 1.
std::vector<Candidate> own_candidates(const std::vector<const Column*>& columns);

/// Each of `own`, with columns of earlier optimizer steps: one factor for each step, for each rank, for each column.
/// `first`: where in `columns` the columns of each earlier step begin.
std::vector<Candidate> candidates_with_earlier(const std::vector<Candidate>& own,
                                               const std::vector<const Column*>& columns,
                                               const std::vector<std::size_t>& first);

}  // namespace lockstep::live
