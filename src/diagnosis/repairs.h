// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "lockstep/check.h"
#include "src/diagnosis/candidates.h"

namespace lockstep::diagnosis {

/// Edits after which everything matches.
struct FoundRepair {
  std::vector<Candidate> edits;      ///< in the order in which they apply
  bool tried_around = false;         ///< whether what follows is known
  int sizes = 0;                     ///< layouts around the file's at which it was tried
  int right_sizes = 0;               ///< and at which it is right
  std::string wrong_at;              ///< the first of them at which it is not: "dp 3, micro-batches 2"
  std::set<std::string> wrong_with;  ///< as Repair has it
  bool other_owners = false;         ///< other ranks own other elements than before
  bool loses_norm = false;           ///< as idioms.h says it, and so what follows
  bool ends_backward = false;
  bool owners_as_reduced = false;
  int distance = 0, factor_place = 0, place = 0;
  bool counts_otherwise = false, repeats = false, moves_only_backward = false;
  bool leaves_loop = false;                           ///< a step that it moves goes into an `each` or out of it
  bool acts_elsewhere = false;                        ///< the first step that it changes acts on nothing that is wrong
  bool looked_for_idle = false, leaves_idle = false;  ///< whether it makes a step do nothing that did something
  int alike = 0;                     ///< steps that it changes beside the first as it changes that one (step_list.h)
  std::size_t said_again = 0;        ///< so many edits, the last ones, drop what is said without them as well
  bool is_alike = false;             ///< another one of its kind stands before it
  bool touches_right = false;        ///< a step that it changes or adds acts on parameters that are right
  double added_bytes = 0;            ///< that the rank that sends most sends more than before, at the small sizes
  bool bytes_known = false;          ///< they are of the file's own sizes, and what was there before ran
  bool looked_at_own_sizes = false;  ///< whether what follows is known
  std::optional<bool> right_at_own_sizes;  ///< of the file; nothing where no engine decides
  std::string verified_by;                 ///< the engine that says so

  bool everywhere() const { return right_sizes == sizes; }
  /// How many edits it is, those that go together counted once.
  std::size_t count() const;
  std::vector<Edit> plain_edits() const;
  Repair plain() const;
};

struct RepairOptions {
  bool pairs = true;  ///< two edits where no single one does it
  /// Ends at the nearest repair that leaves alone what is right and that is right at the sizes around, instead of going
  /// through all edits.
  bool nearest_only = false;
  std::set<std::string> wanted;  ///< nearest_only: steps of which one is hoped for
  /// Where one repair alone is wanted: that with the least of these numbers, one after the other. A repair that is
  /// wrong at a size around must not come before what it would be without; none: all are wanted.
  using Order = std::vector<double>;
  std::function<Order(const FoundRepair&)> order = nullptr;
  /// Whether a repair that is the only one is tried around as well: that decides which of several is the best, and is
  /// told.
  bool alone_around = true;
};

/// What a search left out that was ended by a limit of work, memory or tries.
struct NotTried {
  std::size_t edits = 0;        ///< by themselves
  bool uncounted = false;       ///< so many that they were not counted
  bool pairs = false;           ///< no two edits were tried together
  std::size_t first_edits = 0;  ///< of two, behind which not all second ones were
  bool any() const { return edits > 0 || uncounted || pairs || first_edits > 0; }
};

/// Repairs of a result that does not match, found by applying every edit to a small layout in which the same goes
/// wrong: the best first, in the order of repair_order.h. Empty where none that was tried does it, and for a result
/// that matches or that is no valid file. What is wrong with the model alone has no repair here.
struct RepairSearch {
  std::vector<FoundRepair> repairs;
  int tried = 0;   ///< schedules that were judged
  std::string at;  ///< the small layout at which they are right: "dp 2, micro-batches 2"; "": the file's own
  /// That were right there and are not at the file's own sizes, of those that were looked at because of its size.
  int wrong_at_own_sizes = 0;
  /// Why the search did not go through all edits: half a sentence; "" where it did. What it found until then may be
  /// wrong at the file's own sizes.
  std::string cut_off;
  int limit = 0;  ///< no more schedules may be tried, and that ended it; 0: that did not
  NotTried not_tried;
  std::size_t without_norm = 0;  ///< schedules that match only as a norm or a clip loses a gradient: no repairs
};
RepairSearch find_repairs(const CheckResult& result, const RepairOptions& options = {});

}  // namespace lockstep::diagnosis
