// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "lockstep/check.h"
#include "lockstep/live.h"
#include "src/live/record.h"
#include "tests/live/run_writer.h"

namespace lockstep::test {

/// A collective's line. `micro_batch` "null": outside of backward passes.
inline std::string call(const std::string& op, const std::vector<int>& group, int elements,
                        const std::string& micro_batch, const std::string& parameters,
                        const std::string& reduce = "sum", const std::string& site = "train.py:9 in main") {
  return fmt::format(
      R"({{"event":"collective","step":0,"micro_batch":{},"op":"{}","group":[{}],"elements":{},"dtype":"float32",)"
      R"("reduce":"{}","async":false,"call":"{}","parameters":[{}]}})",
      micro_batch, op, fmt::join(group, ","), elements, reduce, site, parameters);
}

/// The line of a gradient that a rank scales.
inline std::string scaled(const std::string& op, double by, const std::string& parameters,
                          const std::string& site = "train.py:11 in main") {
  return fmt::format(R"({{"event":"scale","step":0,"op":"{}","by":{},"call":"{}","parameters":[{}]}})", op, by, site,
                     parameters);
}

inline bool says(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

/// "zero; micro_batches(backward; …); …" with what each step has besides its name and op.
inline std::string words(const Json& steps) {
  std::string text;
  for (const Json& step : steps.items()) {
    text += text.empty() ? "" : "; ";
    text += step.find("name")->text();
    for (const Json::Member& member : step.members()) {
      if (member.key == "name" || member.key == "op") continue;
      std::string value = write_json(member.value);
      value.erase(std::remove(value.begin(), value.end(), '\n'), value.end());
      text += member.key == "steps" ? "(" + words(member.value) + ")" : " " + member.key + "=" + value;
    }
  }
  return text;
}
inline std::string words(const RecordedRun& run) { return words(*run.scenario.find("schedule")->find("steps")); }

inline CheckResult checked(const RecordedRun& run) {
  CheckOptions options;
  options.host = false;
  return check_scenario(live::read_recorded(run.scenario), options);
}

}  // namespace lockstep::test
