// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "src/symbolic/parametric/evaluation.h"
#include "src/symbolic/parametric/values.h"

namespace lockstep::parametric {

/// Adds up, for every rank, what a class says of it in an optimizer step. Complexity: for each parameter stretches and
/// the ranks that answer for them; functions are evaluated once for each kind of stretch.
class RankTotals {
 public:
  /// Coordinates of one level that are alike in a stretch: each of those with a name by itself, in the order of the
  /// names, and then all others together.
  struct Alike {
    std::vector<int> named;
    int size = 0;    ///< of the level
    int other = -1;  ///< the first of the others; -1: there are none
    std::size_t kinds() const { return named.size() + (other >= 0 ? 1 : 0); }
    int first(std::size_t kind) const { return kind < named.size() ? named[kind] : other; }
    std::vector<int> all(std::size_t kind) const;
  };

  /// `wrong` and `owned` are by rank. All must outlive it.
  RankTotals(const World& world, const ClassResult& result, Evaluation& evaluation, Stretches& stretches,
             ClassValues& values, int optimizer_step);

  /// Elements of a parameter that a rank hands to its optimizer are added to `owned`; where they are wrong, or the norm
  /// is that it counts them in, or nobody owns them, its `wrong` is set. `stretches` counts down. Throws OutOfReach,
  /// also where it comes to 0.
  void add(int logical, std::vector<bool>& wrong, std::vector<std::int64_t>& owned, std::int64_t& stretches);

 private:
  struct Status {
    bool owned = false, wrong = false;
  };

  std::vector<Alike> alike(const Stretch& stretch, int logical, const Coordinates& holders) const;
  /// Which names of a stretch are one, on each level: what is told of the stretch depends on no more.
  std::vector<std::size_t> pattern(const Stretch& stretch, const std::vector<Alike>& levels) const;
  std::vector<Status> statuses(const Stretch& stretch, int logical, const std::vector<Alike>& levels) const;

  const World& world_;
  const ClassResult& result_;
  Evaluation& evaluation_;
  Stretches& stretches_;
  ClassValues& values_;
  int optimizer_step_;
  /// Something is wrong with a norm: that is told of ranks of other stages, too.
  bool counts_norms_ = false;
};

}  // namespace lockstep::parametric
