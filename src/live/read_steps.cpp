// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "src/base/budget.h"
#include "src/base/counted.h"
#include "src/live/declarations.h"
#include "src/live/read_program.h"

namespace lockstep::live {

void ProgramReader::step(const Event& event) {
  const auto number = static_cast<int>(event.whole("step"));
  RankStep& step = steps_[number];
  if (step.complete) return event.mistake("a second \"step\" event of this step");
  if (last_contributed_ > number)
    event.mistake(fmt::format("the \"step\" event of optimizer step {} after a contribution to optimizer step {}",
                              number, last_contributed_));
  step.complete = true;
  if (event.find("waiting") != nullptr) step.waiting = declared(event, "waiting");
  read_micro_batches(event, step);
}

void ProgramReader::gap(const Event& event, int line) {
  CaptureGap gap = read_gap(event);
  if (!gap.of_all) gap.parameters = declared(event, "parameters");
  gap.is_wrong = event.boolean("wrong", false);
  gap.line = line;
  gaps_.push_back(std::move(gap));
}

void ProgramReader::end_event(const Event& event) {
  ended_ = true;
  details_.stopped = event.boolean("stopped", false);
  if (event.find("steps") == nullptr) return;
  const std::int64_t steps = event.whole("steps");
  const auto complete =
      std::count_if(steps_.begin(), steps_.end(), [](const auto& one) { return one.second.complete; });
  if (steps != complete)
    event.mistake(*event.find("steps"),
                  fmt::format("\"steps\" is {}, and the program has {}", steps, counted(complete, "\"step\" event")));
}

void ProgramReader::end(const Json& events, Diagnostics& mistakes) {
  // Of many programs what these have in reserve is a third of all.
  program_.calls.shrink_to_fit();
  program_.sources.shrink_to_fit();
  details_.calls.shrink_to_fit();
  details_.contributions.shrink_to_fit();
  if (!ended_)
    mistakes.add(events.place(), "the program has no \"end\": what it does after its last event is not known");
  // Other ranks may have other parameters, of which what is wrong says nothing.
  for (CaptureGap& gap : gaps_) {
    if (!gap.is_wrong || !gap.of_all) continue;
    Budget::spend(std::ssize(numbers_));
    gap.parameters.assign(numbers_.begin(), numbers_.end());
  }
  for (const auto& [step, place, what] : places_) {
    const auto found = steps_.find(step);
    if (found == steps_.end() || !found->second.complete)
      mistakes.add(place, fmt::format("{} of optimizer step {}, which has no \"step\" event", what, step));
  }
}

}  // namespace lockstep::live
