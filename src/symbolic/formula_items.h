// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "src/symbolic/formula_names.h"

namespace lockstep::formula {

/// One name of a formula with its coefficient: the terms that `g3.1.aux[NAME]` or a leftover
/// stands for, or a sum of such names over ranks.
struct Item {
  int rank = -1;         ///< -1: a leftover that is equal on all ranks
  int micro_batch = -1;  ///< -1: all of the step
  std::string use;       ///< empty: all
  int site = -1;         ///< the parameter that is named; -1: all sites, of the buffer's own element
  Frame frame;
  std::string leftover;
  Rational coefficient;
  std::vector<Axis> axes;   ///< summed over; empty: the rank's alone
  bool base_named = false;  ///< of a sum: the other coordinates are those of `rank`, not the holder's
};

/// `terms` with as few names as they can be told in, own elements before foreign ones,
/// each by rank, micro-batch and use; leftovers last.
std::vector<Item> collect_items(Names& names, const std::vector<Term>& terms);

/// As they stand in a formula: own elements before foreign ones, by rank, micro-batch and use; a sum in front of a name
/// alike.
void sort_items(std::vector<Item>& items);

/// Replaces many ranks with equal coefficients by sums over axes: where such sums are exactly theirs, or theirs but for
/// few, which are then told apart. `items` is ordered as sort_items() leaves it.
std::vector<Item> fold_ranks(Names& names, std::vector<Item> items);

}  // namespace lockstep::formula
