// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <vector>

#include "lockstep/check.h"
#include "src/diagnosis/oracle.h"
#include "src/diagnosis/repairs.h"

namespace lockstep::diagnosis {

/// Whether a replay of all ranks by formula costs less than a second, so that it is done beside what is known already.
bool is_replayed_beside(const Schedule& schedule);

/// Says of repairs that were found at a small layout whether they are right at the file's own sizes: by the symbolic
/// engine where that costs less than a second, else by the parametric one. Refers to the result.
class OwnSizes {
 public:
  explicit OwnSizes(const CheckResult& result)
      : schedule_(*result.scenario->schedule), oracle_(schedule_, schedule_.model.parameters()) {}

  /// Fills in `right_at_own_sizes` and `verified_by`, once for each repair.
  void look_at(FoundRepair& repair);

 private:
  std::optional<bool> replayed(const std::vector<Edit>& edits);
  std::optional<bool> by_classes(const std::vector<Edit>& edits);

  const Schedule& schedule_;
  SymbolicOracle oracle_;
  std::optional<bool> is_replayed_;
};

}  // namespace lockstep::diagnosis
