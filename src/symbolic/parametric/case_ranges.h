// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <set>
#include <string>
#include <vector>

#include "src/symbolic/parametric/each_case.h"

namespace lockstep::parametric {

/// Sizes of an axis that belong to one case.
struct CaseRange {
  Span span;
  std::string limit = {};  ///< why none of these sizes is looked at; "" where some are
};

/// The sizes of an axis, in ranges that are a case each as far as the axis is seen by itself: single ones first, and at
/// the end all from some size on, where there is no end. Empty where no size is allowed.
std::vector<CaseRange> ranges_of(const OpenSizes& together, Axis axis);

/// Up to two sizes of an axis that are allowed beside base, those that were tried before first, and the largest of
/// these.
std::vector<int> allowed_in(const OpenSizes& together, Axis axis, const Span& span);

/// Sizes up to which each one is a case of its own where a schedule singles coordinates out.
inline constexpr int most_exact = 40;

/// Coordinates of an axis that are singled out at several sizes, counted from the first on and, as the last but one is,
/// from the end.
struct SingledOut {
  std::set<int> named = {0}, from_end = {1};
  void add(const SingledOut& other);
  /// The least size at which all of them differ. A smaller one has less coordinates, or some of them are one.
  int least() const { return *named.rbegin() + *from_end.rbegin() + 1; }
};
/// Whether there are any at these sizes.
bool singles_out(const Layouts& layouts, Axis axis, const Sizes& sizes);
SingledOut singled_out(const Layouts& layouts, Axis axis, const Sizes& one, const Sizes& other);
/// "it singles out the coordinate 60 of dp, …": why sizes are not looked at.
std::string too_many_singled_out(const SingledOut& known, Axis axis);

}  // namespace lockstep::parametric
