// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <vector>

#include "lockstep/scenario.h"

/// The mistakes in a scenario, one line each: "POINTER `TEXT`: MESSAGE", where TEXT is what stands
/// at the place that is blamed.
inline std::string mistakes_in(const std::string& text, const std::string& file = "test.json") {
  try {
    lockstep::read_scenario(std::make_shared<const lockstep::Source>(lockstep::Source{file, text}));
  } catch (const lockstep::InputError& error) {
    std::string lines;
    for (const lockstep::Diagnostic& diagnostic : error.diagnostics()) {
      const lockstep::Place& place = diagnostic.place;
      std::string at = place.source ? place.source->text.substr(place.begin, place.end - place.begin) : "";
      at = at.substr(0, at.find('\n'));
      if (at.size() > 30) at = at.substr(0, 30) + "…";
      lines += place.pointer.text() + " `" + at + "`: " + diagnostic.message + "\n";
    }
    return lines;
  }
  return "";
}

/// A small right scenario with some of its parts replaced. `parts`: layout, model, batch, schedule,
/// expect, top (further members); or parameter (a third one), step (behind all others), inner
/// (behind `backward`), edit.
inline std::string scenario_with(const std::map<std::string, std::string>& parts) {
  const auto part = [&](const std::string& name, const std::string& fallback) {
    const auto found = parts.find(name);
    return found != parts.end() ? found->second : fallback;
  };
  const auto further = [&](const std::string& name) {
    return parts.count(name) > 0 ? ",\n    " + parts.at(name) : std::string();
  };
  const std::string model =
      "{ \"parameters\": [\n    { \"name\": \"w\", \"shape\": [4, 6], \"tags\": [\"norm\"] },\n"
      "    { \"name\": \"v\", \"shape\": [6], \"stage\": 1 }" +
      further("parameter") + " ] }";
  const std::string schedule =
      "{ \"steps\": [\n    { \"name\": \"micro_batches\", \"op\": \"each\", \"steps\": [\n"
      "    { \"name\": \"backward\", \"op\": \"backward\" }" +
      further("inner") +
      " ] },\n"
      "    { \"name\": \"dp_all_reduce\", \"op\": \"all_reduce\", \"over\": \"dp\" }" +
      further("step") + " ]" + (parts.count("edit") > 0 ? ",\n    \"edits\": [ " + parts.at("edit") + " ]" : "") + " }";
  return "{\n  " + part("top", "\"lockstep\": 1") + ",\n  \"layout\": " + part("layout", "{ \"pp\": 2, \"dp\": 2 }") +
         ",\n  \"model\": " + part("model", model) + ",\n  \"batch\": " + part("batch", "{}") +
         ",\n  \"schedule\": " + part("schedule", schedule) +
         ",\n  \"expect\": " + part("expect", "{ \"verdict\": \"match\" }") + "\n}\n";
}
