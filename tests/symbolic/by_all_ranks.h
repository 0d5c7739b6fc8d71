// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "lockstep/symbolic.h"

namespace lockstep::test {

/// The verdict of the symbolic engine, which replays every rank: "match", "mismatch", "race", or how else it ends.
inline std::string by_all_ranks(const Schedule& schedule) {
  try {
    const Timeline timeline = walk(schedule);
    SymbolicEngine engine(schedule, timeline);
    const SymbolicResult result = engine.run();
    if (!timeline.step_ends.empty() && !result.match) return "mismatch";
    if (timeline.outcome.kind == Outcome::Kind::complete) return "match";
    return timeline.outcome.kind == Outcome::Kind::race ? "race" : "stuck";
  } catch (const InputError&) {
    return "error";
  }
}

}  // namespace lockstep::test
