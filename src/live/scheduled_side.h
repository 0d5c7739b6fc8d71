// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/live.h"
#include "lockstep/scenario.h"
#include "lockstep/timeline.h"
#include "src/diagnosis/handed_over.h"
#include "src/live/compared_contents.h"

namespace lockstep::live {

/// Elements of a box that follow each other as row-major indices of the whole as well.
struct BoxRun {
  Interval own;            ///< in the box's own order
  std::int64_t begin = 0;  ///< index of the first in the whole
};
/// Of elements [part) of a box; nothing where it falls into too many. Complexity: linear in them.
std::optional<std::vector<BoxRun>> runs_of_box(const std::vector<std::int64_t>& shape, const std::vector<Interval>& box,
                                               const Interval& part);

/// What a scenario's optimizers get, and what those of code get in its terms: sums of the contributions that the
/// scenario knows, counted in row-major indices of whole parameters.
class ScheduledSide {
 public:
  /// `logical_of`: by name of the code, the scenario's logical parameter. `steps`: the code's numbers of its optimizer
  /// steps. `loss`: what each of its backwards is the gradient of; where that is known, coefficients are of the plain
  /// gradients of summed losses. All must outlive it.
  ScheduledSide(const Scenario& scenario, const std::map<std::string, int>& logical_of, const std::vector<int>& steps,
                std::optional<CapturedLoss> loss, ComparedSums& sums);

  const Timeline& timeline() const { return timeline_; }
  /// Optimizer steps that it completes.
  int steps() const { return static_cast<int>(replayed_.steps.size()); }

  std::vector<ReadStretch> read(int logical, int step);
  /// The number of a sum of the code's; below 0 where nobody knows, for reason().
  int of_code(const std::vector<ComparedTerm>& terms);
  int unknown(const std::string& reason);
  const std::string& reason(int sum) const { return reasons_[at(-2 - sum)]; }

  /// As `check` writes it, of a logical parameter in a step, seen from a rank.
  std::string formula(int sum, int logical, int rank, int step) const;
  /// The steps that change what a rank holds of a parameter, in their order.
  std::vector<std::string> step_names(int logical, int rank, int step) const;
  /// Who contributes to a parameter: ranks and micro-batches, ascending.
  std::vector<std::pair<int, int>> contributors(int logical, int step) const;
  /// Whether two ranks that hold one piece of a parameter yield one gradient of it. Nothing where they do not.
  std::optional<bool> one_gradient(int logical, int rank, int other) const;
  /// Some contribution is multiplied otherwise than by the code's loss, so that formulas are of plain gradients.
  bool plain() const { return plain_; }
  /// Some contribution that was read is multiplied.
  bool scales() const { return scales_; }

 private:
  int step_of(int micro_batch) const;  // counted through all steps
  /// Below 0: the rank holds none of it, or of its copies where one stands for all.
  int buffer_of(int rank, int logical) const;
  /// What a term of the scenario's is multiplied by, with the code's loss; nothing where that is not known.
  std::optional<Rational> loss_factor(int source, int step, int micro_batch, int logical, int site_use) const;
  Rational loss_factor(int source, int step, int micro_batch, const std::string& use) const;  // of a known loss
  Rational by(int source, int step, int micro_batch, int logical, int site_use) const;
  Rational scaled(const Rational& coefficient, bool of_schedule, int source, int step, int micro_batch, int logical,
                  int site_use);
  /// A term's coefficient in formulas.
  Rational written(const ComparedTerm& term) const;
  int sum_of(const std::vector<Term>& terms, int logical, int piece, const BoxRun& run);

  const Schedule& schedule_;
  const std::map<std::string, int>& logical_of_;
  const std::vector<int>& run_steps_;
  std::optional<CapturedLoss> loss_;
  ComparedSums& sums_;
  Timeline timeline_;
  diagnosis::Replayed replayed_;
  Contributions contributions_;
  bool plain_ = false;
  bool scales_ = false;
  std::vector<char> apart_;  // by logical parameter
  std::vector<std::string> reasons_;
  std::map<std::string, int> reason_numbers_;
};

}  // namespace lockstep::live
