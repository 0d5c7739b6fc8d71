// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/expression.h"
#include "lockstep/schedule.h"
#include "src/symbolic/parametric/size_ranges.h"
#include "src/symbolic/parametric/world.h"

namespace lockstep::parametric {

/// What is seen, at every size that is open, of the expressions by which one step aligns what it cuts: whether slices
/// come out even, and whether buckets begin where their parameters may.
class Alignment {
 public:
  /// `cuts`: whether the step cuts anything. Refers to the world.
  Alignment(const World& world, const Step& step, bool cuts);

  /// Whether n, the number of ranks in the step's group, is one of several.
  bool is_open() const { return !n_.powers.empty(); }
  /// Whether n divides the alignment at every size. False where that is not seen.
  bool is_multiple_of_n(const Expression& alignment) const;
  /// Whether a bucket that begins at a multiple of its "align_bucket" begins at one of "align_parameter", so that what
  /// is in it lies there as it would from 0 on. False where that is not seen.
  bool begins_aligned(const Geometry& geometry) const;
  /// Throws OutOfReach where the size or the alignment of a bucket may be no positive whole number, which is refused.
  static void require_whole_and_positive(const Step& step);
  /// Throws DependsOnSizes where a number of the geometry may be larger at some sizes than a cut can count, which is
  /// refused.
  void require_countable(const Step& step) const;

 private:
  /// A number times powers of sizes that are open, by their levels.
  struct Multiple {
    Rational factor{1};
    std::map<int, int> powers;
    Multiple& operator*=(const Multiple& other);
    bool divides(const Multiple& other) const;
  };
  Multiple size_of(Axis axis) const;
  void multiply_by_level(Multiple& product, int level) const;
  std::optional<Multiple> named(const std::string& name) const;
  /// Between which numbers a name is that counts ranks; nothing for others.
  std::optional<SizeRange> range_of(const std::string& name) const;
  std::optional<std::vector<Multiple>> multiples_of(const Expression::Node& node) const;
  /// The value of an expression that is the same at every size.
  std::optional<Rational> value_of(const Expression& expression) const;

  const World& world_;
  std::string step_;
  std::vector<Over::Pick> picks_;  // that make up n_
  Multiple n_;
};

}  // namespace lockstep::parametric
