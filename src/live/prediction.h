// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "lockstep/scenario.h"
#include "lockstep/symbolic.h"
#include "src/live/evidence.h"
#include "src/live/recorded_schedule.h"

namespace lockstep::live {

/// How what a schedule predicts of a result and what was measured meet.
struct Meeting {
  bool meets = false;
  /// The measured coefficients are fractions, and the predicted ones. Else what is predicted leaves nothing of the
  /// result but noise.
  bool certain = true;
  std::string why;  ///< where they do not: a sentence's end, "… predicts g0, and g0/2 was measured"
  /// Where measured coefficients are one number times the predicted ones: that number; nothing as well where both are
  /// zero and so meet.
  std::optional<Rational> ratio;

  bool nothing_arrives() const { return meets && !ratio; }
};

/// Several meetings as one.
class Meetings {
 public:
  Meetings() { all_.meets = true; }
  void add(const Meeting& meeting);
  /// The first that does not meet says why; the ratio is that of all.
  const Meeting& all() const { return all_; }

 private:
  Meeting all_;
  bool any_ = false, same_ = true;
};

/// The formulas of a recorded scenario, as the symbolic engine computes them.
class Prediction {
 public:
  /// What is given must outlive it.
  Prediction(const Recording& recording, std::shared_ptr<const Scenario> scenario, Evidence& evidence)
      : Prediction(recording, std::move(scenario), evidence, true) {}
  /// Says only who owns what, for which no formula is needed: not meet().
  static Prediction owners(const Recording& recording, std::shared_ptr<const Scenario> scenario, Evidence& evidence) {
    return {recording, std::move(scenario), evidence, false};
  }

  /// `piece` as verify_run found it, with its coefficients.
  Meeting meet(const VerifiedPiece& piece) const;
  /// Ranks whose optimizers get other elements of a parameter in an optimizer step of the run than the schedule has it,
  /// of those that got any; `pieces` by rank.
  std::vector<int> other_owners(int parameter, int step, const std::map<int, std::vector<int>>& pieces) const;
  /// By parameter of the run: whether each rank's optimizer gets the elements that the schedule gives it. Nothing where
  /// the schedule does not come to its end: where ranks that are to meet own different numbers of elements.
  std::optional<std::vector<bool>> owned_alike(const std::vector<VerifiedPiece>& pieces) const;

 private:
  /// By parameter of the run, rank and micro-batch, counted through the run.
  using Coefficients = std::map<std::tuple<int, int, int>, Rational>;
  Prediction(const Recording& recording, std::shared_ptr<const Scenario> scenario, Evidence& evidence, bool formulas);

  Meeting meet_on(const VerifiedPiece& piece, int rank, std::size_t step) const;
  Meeting compare(const VerifiedPiece& piece, const Coefficients& predicted, std::size_t step) const;
  bool owns(int rank, int buffer, std::size_t step, const Interval& elements) const;
  /// Local elements of a piece on a rank; nothing where these are too many stretches.
  std::optional<Intervals> local_of(int parameter, int piece, int rank, int buffer) const;
  std::string formula(int form, int rank, int buffer, std::size_t step) const;
  /// The contributions of the run that terms of a result of `parameter` are; nothing where they are none.
  std::optional<Coefficients> coefficients(const std::vector<Term>& terms, int parameter) const;
  /// -1 where the rank does not hold it.
  int buffer_of(int rank, int parameter) const;
  std::optional<std::size_t> index_of(int step) const;
  bool explains(const VerifiedPiece& piece, const Coefficients& predicted) const;

  const Recording& recording_;
  std::shared_ptr<const Scenario> scenario_;
  Evidence& evidence_;
  std::shared_ptr<const Timeline> timeline_;
  std::unique_ptr<SymbolicEngine> engine_;
};

}  // namespace lockstep::live
