// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/communication.h"
#include "lockstep/intervals.h"
#include "lockstep/prove.h"
#include "lockstep/scenario.h"

namespace lockstep {

/// A stretch of elements of a parameter, and every rank that gets the one formula for it or the other.
struct DifferingElements {
  Interval elements;           ///< local
  std::vector<int> ranks;      ///< in the old one, ascending
  std::vector<int> new_ranks;  ///< and in the new one, where others own the elements there; else empty
};

/// Elements of a parameter that optimizers get otherwise, with these two formulas.
struct GradientDifference {
  std::string parameter;
  std::vector<DifferingElements> where;  ///< first those that the same ranks own in both; none twice; at least one
  std::int64_t more = 0;                 ///< how many elements there are beyond those
  std::string before, after;             ///< what they get
  /// Of a scenario against code: the steps, and the calls with their lines, that have made it so; else empty.
  std::vector<std::string> before_by = {}, after_by = {};
};

/// A parameter of which ranks hand other elements to their optimizers.
struct OwnershipDifference {
  std::string parameter;
  int ranks = 0;            ///< how many
  int rank = 0;             ///< the first of them
  Intervals before, after;  ///< what it owns
};

/// A parameter of which ranks' gradient norms count elements otherwise.
struct NormDifference {
  std::string parameter;      ///< "" for a norm that one of them takes and the other does not
  int rank = 0;               ///< the first of them
  std::string before, after;  ///< how often
};

/// What one of two schedules does.
struct ComparedSchedule {
  std::shared_ptr<const Scenario> scenario;
  std::shared_ptr<const Timeline> timeline;
  Outcome::Kind outcome = Outcome::Kind::complete;
  Communication communication;  ///< of the compared optimizer step
};

/// A step of one of the two lists or of both, which have the same name.
struct StepDifference {
  const StepCommunication* before = nullptr;  ///< null: there is none
  const StepCommunication* after = nullptr;
  /// It comes earlier or later than most others that both have.
  bool moved = false;
  bool changed() const;
};

/// Two schedules at every size that both allow, whatever theirs are.
struct EverySize {
  SameProof proof;
  /// The layout with the fewest ranks at which they differ, and what an optimizer gets there, confirmed by replays.
  std::optional<Sizes> smallest;
  GradientDifference difference;
};

/// Two schedules over the same ranks and parameters: do they hand the same gradients to the optimizers?
struct ScheduleComparison {
  ComparedSchedule before, after;
  /// Why they cannot be compared, full sentences; with one of them nothing below is set.
  std::vector<std::string> apart;
  /// The first optimizer step (from 0) in which they differ, else the last that both complete; -1: they complete none.
  int step = -1;
  bool complete = true;                        ///< both complete every optimizer step
  std::vector<GradientDifference> gradients;   ///< in model order
  std::vector<OwnershipDifference> ownership;  ///< the same
  std::vector<NormDifference> norms;           ///< what the gradient norms of that step count otherwise
  bool has_norm = false;                       ///< one of them takes one
  /// Whether formulas are of the plain gradients of ranks' losses: the two schedules' `backward` steps multiply them
  /// with different factors. Otherwise they are of what `backward` adds, as in a check.
  bool plain = false;
  /// Of all ranks' owned elements in the new one those that were compared: with what the same rank owns in the old one,
  /// or else with what others own there.
  std::int64_t elements = 0;

  std::optional<EverySize> every_size;  ///< where it was asked for

  bool same_gradients() const { return apart.empty() && complete && gradients.empty(); }
  /// The same, and norms that count every element as often.
  bool same() const { return same_gradients() && norms.empty(); }
};

/// The steps that communicate, in the order of the new schedule, and those that it no longer has where they stood.
/// Refers to the comparison.
std::vector<StepDifference> step_differences(const ScheduleComparison& comparison);

/// Replays both symbolically and compares, exactly. Where a rank owns an element in one of them alone, the values of
/// that element's owners are compared, whoever they are. Throws InputError where one is too large to be checked, and
/// std::runtime_error where this machine's memory is too small for both. Complexity: two symbolic replays; near linear
/// in the pieces that ranks own, and linear in the differences.
ScheduleComparison compare(std::shared_ptr<const Scenario> before, std::shared_ptr<const Scenario> after);

/// The same for every size at once, by the parametric engine. Complexity: as SameProver, and where they differ replays
/// of up to 40 small layouts.
EverySize compare_every_size(const Scenario& before, const Scenario& after);

}  // namespace lockstep
