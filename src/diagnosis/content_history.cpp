// SPDX-License-Identifier: Apache-2.0
#include "src/diagnosis/content_history.h"

#include <algorithm>

#include "src/base/at.h"

namespace lockstep::diagnosis {

namespace {

const SymbolicEngine::Content* at_element(const std::vector<SymbolicEngine::Content>& contents, std::int64_t element) {
  for (const SymbolicEngine::Content& content : contents) {
    if (content.elements.begin <= element && element < content.elements.end) return &content;
  }
  return nullptr;
}

bool touches(const Call& call, int buffer) {
  return call.buffers != nullptr && std::binary_search(call.buffers->begin(), call.buffers->end(), buffer);
}

/// The first event that comes after a rank's part of an optimizer step; all of them belong to a step
/// that was not completed.
std::size_t end_of(const Timeline& timeline, std::size_t rank, int step) {
  const auto index = static_cast<std::size_t>(step);
  return index < timeline.rank_ends.size() ? timeline.rank_ends[index][rank] : timeline.events.size();
}

}  // namespace

ContentHistory record_history(const Schedule& schedule, const Timeline& timeline, const std::vector<Watch>& watches,
                              int last_step) {
  ContentHistory history;
  history.engine = std::make_unique<SymbolicEngine>(schedule, timeline);
  history.entries.resize(watches.size());
  std::vector<std::vector<std::size_t>> watches_of(static_cast<std::size_t>(schedule.mesh.world()));
  for (std::size_t index = 0; index < watches.size(); ++index) {
    watches_of[at(watches[index].rank)].push_back(index);
  }
  const SymbolicEngine& engine = *history.engine;
  history.engine->run([&](std::size_t event_index) {
    const Event& event = timeline.events[event_index];
    if (!operation(event.op).acts()) return;
    for (const Call& call : event.calls) {
      const auto rank = static_cast<std::size_t>(call.rank);
      if (watches_of[rank].empty() || event_index >= end_of(timeline, rank, last_step)) continue;
      for (const std::size_t index : watches_of[rank]) {
        const Watch& watch = watches[index];
        if (!touches(call, watch.buffer)) continue;
        const std::vector<SymbolicEngine::Content> contents =
            engine.content(watch.rank, watch.buffer, call.step->buffer);
        const SymbolicEngine::Content* now = at_element(contents, watch.element);
        if (now != nullptr) history.entries[index].push_back({event_index, call.step, *now});
      }
    }
  });
  return history;
}

const HistoryEntry* content_after(const std::vector<HistoryEntry>& entries, const std::string& name,
                                  std::size_t event) {
  for (auto entry = entries.rbegin(); entry != entries.rend(); ++entry) {
    if (entry->event <= event && entry->step->buffer == name) return &*entry;
  }
  return nullptr;
}

}  // namespace lockstep::diagnosis
