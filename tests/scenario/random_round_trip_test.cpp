// SPDX-License-Identifier: Apache-2.0
// Of any scenario that can be read: what `show --resolved` prints is a scenario with the same schedule, and so is what
// is written of the schedule. LOCKSTEP_TEST_ROUNDS=20 makes it 10,000 of them.
#include <algorithm>

#include "lockstep/scenario.h"
#include "tests/cases.h"
#include "tests/catch.h"
#include "tests/scenario/random_scenario.h"

using namespace lockstep;

namespace {

struct Count {
  unsigned read = 0, edited = 0, without_schedule = 0, frameworks = 0, edited_models = 0;
};

std::optional<Scenario> read_if_valid(const Json& document) {
  try {
    return read_scenario(std::make_shared<const Source>(Source{"random.json", write_json(document)}));
  } catch (const InputError&) {
    return std::nullopt;
  }
}

/// Reads what was made of a scenario; a mistake in it is a failure.
std::optional<Scenario> read_back(const Json& document) {
  try {
    return read_scenario(std::make_shared<const Source>(Source{"written.json", write_json(document)}));
  } catch (const InputError& error) {
    FAIL_CHECK(error.what());
    return std::nullopt;
  }
}

void collect_names(const std::vector<Step>& steps, std::vector<std::string>& names) {
  for (const Step& step : steps) {
    if (!step.name.empty()) names.push_back(step.name);
    collect_names(step.steps, names);
  }
}

void check_preset(const Scenario& first, const Scenario& second) {
  if (first.resolved.find("model")->find("edits") == nullptr) return;
  REQUIRE(second.preset);
  CHECK(second.preset->family == first.preset->family);
  CHECK(second.preset->edits.size() == first.preset->edits.size());
  REQUIRE(second.preset->sizes.size() == first.preset->sizes.size());
  for (const auto& [name, value] : first.preset->sizes) CHECK(second.preset->sizes.at(name).same_as(value));
}

void check(const Scenario& first, Count& count) {
  const std::string resolved = write_json(first.resolved);
  INFO(write_json(first.document));
  INFO(resolved);
  ++count.read;
  if (first.document.find("schedule")->find("framework") != nullptr) ++count.frameworks;
  if (first.document.find("model")->find("edits") != nullptr) ++count.edited_models;
  const std::optional<Scenario> second = read_back(first.resolved);
  if (!second) return;
  CHECK(write_json(second->resolved) == resolved);
  check_preset(first, *second);
  CHECK((first.schedule == nullptr) == (second->schedule == nullptr));
  if (first.schedule == nullptr || second->schedule == nullptr) {
    ++count.without_schedule;
    return;
  }
  CHECK(*second->schedule == *first.schedule);
  const Json plain = to_json(*first.schedule);
  INFO(write_json(plain));
  const std::optional<Scenario> third = read_back(plain);
  if (!third) return;
  REQUIRE(third->schedule);
  CHECK(*third->schedule == *first.schedule);
  CHECK(write_json(to_json(*third->schedule)) == write_json(plain));
}

}  // namespace

TEST_CASE("random scenarios read back from their resolved form and from their schedule") {
  const unsigned all = test::cases(500);
  Count count;
  for (unsigned seed = 1; count.read < all; ++seed) {
    REQUIRE(seed < 20 * all);
    test::RandomScenario random(seed);
    const Json document = random.document();
    const std::optional<Scenario> first = read_if_valid(document);
    if (!first) continue;
    INFO("seed " << seed);
    check(*first, count);
    if (first->schedule == nullptr) continue;
    std::vector<std::string> steps, parameters;
    collect_names(first->schedule->steps, steps);
    for (const Parameter& parameter : first->schedule->model.parameters()) parameters.push_back(parameter.name);
    if (steps.empty()) continue;
    const std::optional<Scenario> edited = read_if_valid(random.with_edits(document, steps, parameters));
    if (!edited) continue;
    ++count.edited;
    check(*edited, count);
  }
  CHECK(count.edited > all / 10);
  CHECK(count.frameworks > all / 10);
  CHECK(count.without_schedule > all / 50);
  CHECK(count.edited_models > all / 50);
}
