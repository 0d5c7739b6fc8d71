// SPDX-License-Identifier: Apache-2.0
// Configurations as users write them, in tests/importers/cases: NAME.case.json holds what is asked for and what must
// come of it; the configuration lies beside it.
#include "tests/importers/cases.h"

#include <algorithm>
#include <memory>
#include <set>

#include "lockstep/check.h"
#include "lockstep/scenario.h"
#include "tests/catch.h"

using namespace lockstep;
using namespace lockstep::importers;

namespace {

std::string rendered(const InputError& error) {
  std::string text;
  for (const Diagnostic& diagnostic : error.diagnostics()) text += render(diagnostic);
  return text;
}

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

}  // namespace

TEST_CASE("every configuration is imported as the scenario that it stands for") {
  for (const Case& one : all_cases()) {
    INFO(one.file.filename().string());
    try {
      const Imported imported = import_configuration(one.request);
      for (const std::string_view key : {"layout", "model", "batch", "schedule"}) {
        INFO("a case says what it expects of " << key);
        REQUIRE(one.expected.find(key) != nullptr);
      }
      compare(one.expected, imported);
    } catch (const InputError& error) {
      FAIL(rendered(error));
    }
  }
}

TEST_CASE("what is imported is a valid scenario with the verdict of its case") {
  for (const Case& one : all_cases()) {
    INFO(one.file.filename().string());
    try {
      const std::string text = write_json(import_configuration(one.request).scenario);
      const auto scenario = std::make_shared<const Scenario>(
          read_scenario(std::make_shared<const Source>(Source{one.file.filename().string(), text})));
      const Json* verdict = one.expected.find("verdict");
      if (verdict == nullptr) continue;  // too large to be replayed in every run of the tests
      CheckOptions options;
      options.host = false;
      CHECK(name_of(check_scenario(scenario, options).verdict) == verdict->text());
    } catch (const InputError& error) {
      FAIL(rendered(error));
    }
  }
}
