// SPDX-License-Identifier: Apache-2.0
#include "src/diagnosis/small_replay.h"

#include "lockstep/scenario.h"
#include "src/diagnosis/shrink.h"

namespace lockstep::diagnosis {

std::optional<CheckResult> small_replay(const CheckResult& result) {
  constexpr int small_world = 64;
  const bool decided = parametric_of(result) != nullptr && result.verdict != Verdict::error;
  if (result.timeline != nullptr || !decided || result.scenario->schedule == nullptr) return std::nullopt;
  const FileSizes sizes = smallest_layout(result).sizes;
  const std::shared_ptr<const Scenario> small = sizes.empty() ? nullptr : read_at(*result.scenario, sizes);
  if (small == nullptr || small->schedule == nullptr || small->schedule->mesh.world() > small_world)
    return std::nullopt;
  CheckOptions options;
  options.host = options.blame = options.divergences = options.parametric_where_large = false;
  CheckResult found = check_scenario(small, options);
  if (folded_wrong_names(found) != folded_wrong_names(result)) return std::nullopt;
  return found;
}

}  // namespace lockstep::diagnosis
