// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "lockstep/prove.h"
#include "src/symbolic/parametric/class_run.h"
#include "src/symbolic/parametric/grid.h"

namespace lockstep::parametric {

/// A scenario at a layout that stands for a case, with the classes that went through it.
struct Representative {
  Sizes sizes;
  std::shared_ptr<const Scenario> scenario;
  std::unique_ptr<World> world;
  std::unique_ptr<StepSelections> selections;
  std::vector<ClassResult> results;
};

/// No axis has more ranks than a layout may have, and there are no more micro-batches.
inline constexpr int largest_size = 1 << 20;

/// Some sizes: each axis has one size, or every one from a least one on, up to a largest one where there is an end.
struct CaseSizes {
  std::map<Axis, int> exact, least;
  std::map<Axis, int> most;  ///< of axes in `least`; larger than that
  std::optional<int> exact_micro_batches, least_micro_batches, most_micro_batches;

  bool holds(const Sizes& sizes) const;
  bool operator==(const CaseSizes&) const = default;
};
/// "pp ≥ 2 and dp = 1"
std::string describe(const CaseSizes& sizes);

/// Sizes all of which go through the same.
struct Case : CaseSizes {
  /// The first stands for the case; the others have the classes that it lacks.
  std::vector<Representative> representatives;
  std::optional<Proof::Limit> limit;
  /// Of the limit: conditions on sizes that hold at some of these and not at others, if that is what it is. Of several
  /// the first that cuts the case is enough.
  std::vector<std::shared_ptr<const Expression::Node>> depends_on;
};

/// A way in which sizes of a case are wrong: those of its sizes from these on, where the value is not zero.
struct Reason {
  const Case* of = nullptr;
  const Representative* representative = nullptr;
  const ClassResult* result = nullptr;
  const Cell* cell = nullptr;
  std::map<Axis, int> least;  ///< of the axes that are open in the case
  bool by_cut = false;        ///< only where the cuts give elements the owners that the cell names
};

/// A sum of products of powers of sizes (the micro-batches are one of them).
using SizeTerms = std::vector<std::pair<Polynomials::Monomial, Rational>>;
/// The sum that stands with each product of powers of tokens and coordinates, which count as independent: a value is
/// zero where all of them are.
using TokenParts = std::map<Polynomials::Monomial, SizeTerms>;
TokenParts by_tokens(const Polynomials& polynomials, int value);

/// Whether the value is wrong at all sizes where the reason applies otherwise, as far as signs show it.
bool always(const Reason& reason);
/// Whether the reason applies to sizes of its case, cuts aside. Tokens count as independent unknowns.
bool applies(const Reason& reason, const Sizes& sizes);
/// Reasons of a case without those that others make superfluous.
std::vector<Reason> reasons_of(const Case& one);
/// Sizes at which a reason's value is zero, those that it depends on. Of one size all there are, also at sizes of other
/// cases; of several the first 16 where it applies otherwise, up to 64 (two), 16 (three) or 8.
std::vector<Sizes> zeros_of(const Reason& reason);
/// Where the value depends on one size alone: the sizes at which the reason would apply but for its value, which is
/// zero there. All there are.
std::optional<std::vector<Sizes>> zeros_of_the_one_size(const Reason& reason);
/// Of each open size that the value depends on, one more than the value has zeros in it, from the least one on: beside
/// each other they are not all zeros.
std::map<Variable, std::set<int>> sizes_beside_zeros(const Reason& reason);

/// What the reasons come to, in words.
std::string statement_of(const std::vector<Case>& cases, const std::vector<Reason>& reasons,
                         const std::vector<Axis>& axes, bool micro_batches, const StatementWords& words = {});

}  // namespace lockstep::parametric
