// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "lockstep/gradient_state.h"
#include "src/symbolic/parametric/stretches.h"

namespace lockstep::parametric {

/// What the class has on single ranks: its functions, evaluated at their coordinates.
class ClassValues {
 public:
  /// Where a rank stands among the names of each level, in a stretch of elements.
  class Assignment;

  ClassValues(World& world, const ClassResult& result, Stretches& stretches);

  /// Whether a rank that holds the parameter answers for elements with these owners.
  bool owned(int optimizer_step, int rank, const std::vector<Coordinates>& owners) const;
  /// What the rank has there for its optimizer: every contribution with its coefficient relative to what `backward`
  /// added, as SymbolicEngine::terms() has them. Throws OutOfReach where a piece of another shape is mixed in.
  std::vector<Term> held(int optimizer_step, int rank, int buffer, const std::vector<Coordinates>& owners);
  /// What one device has, in the same way.
  std::vector<Term> expected(int optimizer_step, int logical, int piece, const std::vector<Coordinates>& owners);

 private:
  const std::vector<Term>& support(int logical, int piece, int optimizer_step);
  /// Quotient of two polynomials for the contributor with these coordinates.
  Rational quotient(int value, int factor, const Coordinates& contributor, int micro_batch);
  int factor_of(int atom, const Coordinates& contributor, const std::vector<Coordinates>& owners);
  bool told_apart(int logical, int piece, int other, int site_use);
  int atom_of(const Term& term, int optimizer_step) const;

  World& world_;
  const ClassResult& result_;
  Stretches& stretches_;
  std::map<std::tuple<int, int, int>, std::vector<Term>> supports_;
  std::map<Atom, int> atoms_;
  std::map<int, std::set<int>> factors_;  ///< by atom: all that there are
  std::map<std::pair<int, int>, int> quotients_;
  std::map<int, std::optional<Rational>> constants_;  ///< polynomials without a contributor in them
};

}  // namespace lockstep::parametric
