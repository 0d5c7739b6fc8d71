// SPDX-License-Identifier: Apache-2.0
// Configurations as users write them, in tests/importers/cases: NAME.case.json holds what is asked for and what must
// come of it; the configuration lies beside it.
#include "tests/importers/cases.h"

#include <algorithm>
#include <cstdlib>
#include <memory>

#include "lockstep/check.h"
#include "lockstep/scenario.h"
#include "tests/cases.h"
#include "tests/catch.h"
#include "tests/importers/requests.h"

using namespace lockstep;
using namespace lockstep::importers;

namespace {

bool lists(const std::vector<ImportedKey>& keys, const std::string& key) {
  return std::any_of(keys.begin(), keys.end(), [&](const ImportedKey& one) { return one.key == key; });
}

void compare(const Json& expected, const Imported& imported) {
  for (const Json::Member& member : expected.members()) {
    INFO(member.key);
    if (member.key == "used" || member.key == "ignored") {
      for (const Json& key : member.value.items()) {
        INFO(key.text());
        CHECK(lists(member.key == "used" ? imported.used : imported.ignored, key.text()));
      }
    } else if (member.key == "assumed") {
      for (const Json& part : member.value.items()) {
        INFO(part.text());
        CHECK(std::any_of(imported.assumed.begin(), imported.assumed.end(), [&](const std::string& sentence) {
          return sentence.find(part.text()) != std::string::npos;
        }));
      }
    } else if (member.key != "verdict") {
      const Json* found = imported.scenario.find(member.key);
      REQUIRE(found != nullptr);
      CHECK(write_json(*found) == write_json(member.value));
    }
  }
}

/// Whether there is a built-in framework with the options that the scenario names.
bool is_described(const Json& scenario) {
  const Json& schedule = *scenario.find("schedule");
  const std::string* text = builtin_framework(schedule.find("framework")->text());
  if (text == nullptr) return false;
  Diagnostics diagnostics;
  const Json framework = parse_json(std::make_shared<const Source>(Source{"framework", *text}), diagnostics);
  const Json* options = schedule.find("options");
  if (options == nullptr) return true;
  return std::all_of(options->members().begin(), options->members().end(), [&](const Json::Member& option) {
    return framework.find("options")->find(option.key) != nullptr;
  });
}

}  // namespace

TEST_CASE("every configuration is imported as the scenario that it stands for") {
  for (const Case& one : all_cases()) {
    INFO(one.file.filename().string());
    try {
      const Imported imported = import_configuration(one.request);
      if (std::getenv("LOCKSTEP_UPDATE") != nullptr) {
        update(one, imported);
        continue;
      }
      for (const std::string_view key : {"layout", "model", "batch", "schedule"}) {
        INFO("a case says what it expects of " << key);
        REQUIRE(one.expected.find(key) != nullptr);
      }
      compare(one.expected, imported);
    } catch (const InputError& error) {
      FAIL_CHECK(rendered(error));
    }
  }
}

TEST_CASE("what is imported is a valid scenario with the verdict of its case") {
  int left_out = 0;
  std::size_t number = 0;
  for (const Case& one : all_cases()) {
    if (!lockstep::test::is_tried(number++)) continue;
    INFO(one.file.filename().string());
    try {
      const Imported imported = import_configuration(one.request);
      if (!is_described(imported.scenario)) {
        ++left_out;
        continue;
      }
      const std::string text = write_json(imported.scenario);
      const auto scenario = std::make_shared<const Scenario>(
          read_scenario(std::make_shared<const Source>(Source{one.file.filename().string(), text})));
      const Json* verdict = one.expected.find("verdict");
      if (verdict == nullptr) continue;  // too large to be replayed in every run of the tests
      CheckOptions options;
      options.host = false;
      CHECK(name_of(check_scenario(scenario, options).verdict) == verdict->text());
    } catch (const InputError& error) {
      FAIL_CHECK(rendered(error));
    }
  }
  if (left_out > 0) WARN(left_out << " cases are of frameworks that are not built in, or lack an option");
}
