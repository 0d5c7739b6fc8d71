// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/diagnostic.h"
#include "lockstep/live.h"

namespace lockstep {

/// A process group as the dumps of PyTorch's Flight Recorder tell of it.
struct FlightGroup {
  std::string name, description;  ///< as PyTorch has them: "0", "default_pg"
  std::vector<int> ranks;         ///< ascending
  bool members_known = false;     ///< the dumps say who belongs to it; else those that called something in it
  std::int64_t first = 0;         ///< number of the first collective that every one of its dumps still has; 0: none
  std::int64_t last = 0;          ///< number of the last one that any rank has issued; 0: none
};

/// What the dumps of a run say of its collectives (docs/flight-recorder.md).
struct FlightResult {
  int world = 0;
  std::vector<int> ranks;             ///< of which there is a dump, ascending
  std::vector<std::string> versions;  ///< of the dumps' format, each once
  std::vector<FlightGroup> groups;    ///< by name
  std::int64_t calls = 0;             ///< collectives in all dumps
  /// The first collective of each group that does not meet; sentences.
  std::vector<std::string> collectives;
  /// Collectives that ranks have issued and that are not over; sentences.
  std::vector<std::string> waiting;
  std::vector<std::string> gaps;   ///< what is missing; sentences
  std::vector<std::string> notes;  ///< sentences

  /// wrong where collectives do not meet; else undecided where ranks wait, where something is missing or where nothing
  /// was compared.
  VerifiedPiece::Verdict verdict() const;
};

/// Aligns the collectives of all ranks by group and number and compares them. `dumps`: files with the JSON of one rank
/// each, whose names say the rank ("trace_3.json") where the dumps do not; `read` is called for one after the other,
/// and no text is kept. `world`: 0 where nobody says it. Throws InputError with everything that is wrong with the
/// dumps. Complexity: n log n in the calls.
FlightResult read_flight_recorder(const std::vector<std::string>& dumps,
                                  const std::function<std::shared_ptr<const Source>(const std::string&)>& read,
                                  int world = 0);

}  // namespace lockstep
