// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "lockstep/mesh.h"

namespace lockstep {

/// Numbers the ranks of a mesh by their coordinates on some axes, so that a table of what these axes decide is as long
/// as they are, and not as the world. Immutable; concurrent reads are safe.
/// An expert mesh that is larger than the world, as an axis of size "any" may leave it, has fewer than twice as many
/// numbers as there are ranks, and some of them no rank.
class CoordinateIndex {
 public:
  /// Of no axes: every rank is number 0.
  CoordinateIndex() = default;
  /// The axes may be of both meshes, and stand in any order.
  CoordinateIndex(const Mesh& mesh, const std::vector<Axis>& axes);

  /// From 0 to size() - 1. Ranks of the same number agree on all of the axes.
  int of(int rank) const {
    int number = 0;
    for (const Digit& digit : digits_) number = number * digit.size + rank / digit.stride % digit.size;
    return number;
  }
  int size() const;
  /// The lowest rank of a number. It grows with the number; from the size of the world on there is none.
  int first_rank(int number) const;

 private:
  struct Digit {
    int stride, size;
  };
  std::vector<Digit> digits_;  // slowest first; each stride is a multiple of the next one's times its size
};

}  // namespace lockstep
