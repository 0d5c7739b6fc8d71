// SPDX-License-Identifier: Apache-2.0
#include "src/scenario/framework_options.h"

#include <filesystem>
#include <optional>

#include "src/scenario/named_file.h"

namespace lockstep::scenario {

std::vector<FrameworkOption> framework_options(const Scenario& scenario) {
  const Json* schedule = scenario.document.find("schedule");
  const Json* framework = schedule == nullptr ? nullptr : schedule->find("framework");
  if (framework == nullptr) return {};
  Diagnostics ignored;  // of a file that was read before
  const std::filesystem::path folder = std::filesystem::path(scenario.file).parent_path();
  const std::optional<NamedFile> file = load_named_file(*framework, FileKind::framework, folder, folder, ignored);
  const Json* known = file ? file->document.find("options") : nullptr;
  if (known == nullptr) return {};
  const Json* given = schedule->find("options");
  std::vector<FrameworkOption> options;
  for (const Json::Member& member : known->members()) {
    const Json* default_value = member.value.find("default");
    if (default_value == nullptr) continue;
    const Json* type = member.value.find("type");
    const Json* allowed = member.value.find("allowed");
    const Json* value = given == nullptr ? nullptr : given->find(member.key);
    options.push_back({member.key, type == nullptr ? "" : type->text(), *default_value,
                       value == nullptr ? *default_value : *value,
                       allowed == nullptr ? std::vector<Json>() : allowed->items(), value != nullptr});
  }
  return options;
}

}  // namespace lockstep::scenario
