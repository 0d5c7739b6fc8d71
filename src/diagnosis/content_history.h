// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/symbolic.h"

namespace lockstep::diagnosis {

/// One element of a rank's buffer that is watched while the schedule is replayed.
struct Watch {
  int rank = 0;
  int buffer = 0;  ///< index into its LocalModel
  std::int64_t element = 0;
};

/// What a watched element held after an event that acted on it, changed or not.
struct HistoryEntry {
  std::size_t event = 0;
  const Step* step = nullptr;  ///< the rank's own; `step->buffer` is the buffer that it wrote
  SymbolicEngine::Content content;
};

/// How watched elements came to hold what they hold in the end.
struct ContentHistory {
  std::unique_ptr<SymbolicEngine> engine;          ///< owner of the forms
  std::vector<std::vector<HistoryEntry>> entries;  ///< by watch, in order of `event`
};

/// Replays the schedule with an engine of its own and writes down what becomes of the watched
/// elements, on each rank up to the end of optimizer step `last_step`.
/// Complexity: one run of the symbolic engine, and a look at each watch for each step that touches it.
ContentHistory record_history(const Schedule& schedule, const Timeline& timeline, const std::vector<Watch>& watches,
                              int last_step);

/// The content of a buffer after `event`, or null where nothing had been written to it.
const HistoryEntry* content_after(const std::vector<HistoryEntry>& entries, const std::string& name, std::size_t event);

}  // namespace lockstep::diagnosis
