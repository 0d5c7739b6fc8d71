// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "src/base/at.h"
#include "src/symbolic/forms.h"
#include "src/symbolic/interned.h"
#include "src/symbolic/parametric/partitions.h"
#include "src/symbolic/parametric/polynomial.h"

namespace lockstep::parametric {

/// A digit of the rank's number: an axis of the layout, or the part of one in which the two meshes cut alike. It has
/// more than one coordinate.
struct Level {
  Axis axis = Axis::dp;    ///< that it is, or the dense one that it is a digit of
  std::vector<Axis> axes;  ///< all of both meshes that it is a digit of
  int stride = 1;
  int size = 1;       ///< in the schedule at hand
  bool open = false;  ///< the proof is for every size from `least` on, up to `most` where there is one
  int least = 1;
  std::optional<int> most = std::nullopt;
  int polynomial = 0;          ///< its size
  std::vector<int> owners;     ///< owners that have a coordinate here, by number
  std::vector<int> constants;  ///< coordinates that are singled out
  Partitions partitions{0, 0, 1, 1};
  /// Names: of an owner and of a constant; -1 where it is none of this axis.
  int owner_name(int owner) const;
  int constant_name(int coordinate) const;
  int names() const { return 2 + static_cast<int>(owners.size() + constants.size()); }
  bool is_of(Axis one) const { return std::find(axes.begin(), axes.end(), one) != axes.end(); }
};

/// Functions of one partition per level whose values are polynomials, as decision diagrams: a node asks for the
/// partition of one level, and one whose answers are all alike is not there. Interned: equal functions have equal
/// numbers. 0 and 1 are the constant functions; conditions are functions with these two values.
class Diagrams {
 public:
  Diagrams(Polynomials& polynomials, std::vector<Level> levels);

  const std::vector<Level>& levels() const { return levels_; }
  Polynomials& polynomials() { return polynomials_; }
  const Level& at_level(int level) const { return levels_[lockstep::at(level)]; }

  int constant(int polynomial);
  /// 1 where the two names of the level are equal.
  int equal(int level, int a, int b);
  int add(int a, int b) { return apply(Operation::add, a, b); }
  int multiply(int a, int b) { return apply(Operation::multiply, a, b); }
  int subtract(int a, int b) { return add(a, times(b, minus_one_)); }
  int times(int a, int polynomial) { return multiply(a, constant(polynomial)); }
  int complement(int condition) { return subtract(1, condition); }
  int either(int a, int b) { return complement(multiply(complement(a), complement(b))); }
  /// 1 where `a` is not 0 everywhere it is looked at: as a condition.
  int nonzero(int a);
  /// `condition` ? a : b.
  int choose(int condition, int a, int b) { return add(multiply(condition, a), multiply(complement(condition), b)); }
  /// As seen by the rank whose coordinate on the level is that of `name`.
  int at(int a, int level, int name);
  /// Summed over all coordinates that the rank can have on the level: for each block of the other names once, and as
  /// often as there are coordinates without a name where it is alone.
  int sum(int a, int level);
  /// Whether the condition holds for any coordinate of the rank on the level. Where the size is open, a coordinate
  /// without a name counts, although there is none at the smallest sizes: sum() is exact there too.
  int any(int condition, int level);

  /// A way down a diagram: for each level the partition, or -1 for any; and the value there.
  struct Path {
    std::vector<int> partitions;
    int value = 0;
  };
  /// Calls `visit` for every way down, until it returns false; ways to 0 only if `zeros`.
  bool visit(int a, bool zeros, const std::function<bool(const Path&)>& visit) const;
  /// The value, a polynomial, where the partition of each level is the one that `partition_of` gives.
  template <class PartitionOf>
  int value(int a, const PartitionOf& partition_of) const {
    while (level(a) < static_cast<int>(levels_.size())) a = children(a)[lockstep::at(partition_of(level(a)))];
    return children(a).front();
  }
  /// The same function of another set of diagrams whose levels have the same names.
  int import(const Diagrams& other, int a);
  std::size_t nodes() const { return static_cast<std::size_t>(next_); }

 private:
  enum class Operation { add, multiply };
  int apply(Operation operation, int a, int b);
  int import(const Diagrams& other, int a, std::unordered_map<int, int>& known);
  int node(int level, std::vector<int> children);
  template <class Change>
  int rewrite(int a, int level, std::uint64_t kind, const Change& change);
  bool visit(int a, bool zeros, Path& path, const std::function<bool(const Path&)>& visit) const;
  int level(int a) const { return levels_of_[lockstep::at(a)]; }
  const std::vector<int>& children(int a) const { return children_[lockstep::at(a)]; }

  Polynomials& polynomials_;
  std::vector<Level> levels_;
  std::vector<int> levels_of_;              // by node; the number of levels for a constant
  std::vector<std::vector<int>> children_;  // by node; of a constant its polynomial
  std::unordered_map<std::vector<int>, int, symbolic::ListHash> numbers_;
  std::unordered_map<std::uint64_t, int> memo_[2];
  std::unordered_map<std::vector<int>, int, symbolic::ListHash> rewritten_;
  int next_ = 0;
  int minus_one_ = 0;
};

}  // namespace lockstep::parametric
