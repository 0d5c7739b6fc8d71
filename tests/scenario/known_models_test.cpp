// SPDX-License-Identifier: Apache-2.0
// A model that was read at another layout, and is the same here, is not read again; what is read is as if it were.
#include "src/scenario/known_models.h"

#include <filesystem>

#include "lockstep/scenario.h"
#include "src/scenario/open_sizes.h"
#include "tests/cases.h"
#include "tests/catch.h"

using namespace lockstep;

namespace {

Json with_sizes(const Json& document, const std::vector<std::pair<std::string, int>>& sizes, int micro_batches) {
  Json changed = document;
  const auto part = [&](const char* name) {
    return document.find(name) == nullptr ? Json::object() : *document.find(name);
  };
  Json layout = part("layout"), batch = part("batch");
  for (const auto& [axis, size] : sizes) layout.set(axis, Json::number(std::to_string(size)));
  batch.set("micro_batches", Json::number(std::to_string(micro_batches)));
  changed.set("layout", layout);
  changed.set("batch", batch);
  return changed;
}

/// All that a proof takes from a scenario, or what refuses it.
struct Found {
  std::string refused;
  TextsOfExpressions refusing;
  std::optional<Scenario> scenario;
};

Found read(const Json& document, const std::string& file, scenario::KnownModels* known) {
  Found found;
  try {
    found.scenario = scenario::read_scenario_of_open_sizes(document, file, {}, known);
  } catch (const scenario::RefusedSizes& refused) {
    found.refused = refused.what();
    found.refusing = refused.rules;
  } catch (const InputError& error) {
    found.refused = error.what();
  }
  return found;
}

void check_same(const Found& a, const Found& b) {
  CHECK(a.refused == b.refused);
  CHECK(a.refusing == b.refusing);
  REQUIRE(a.scenario.has_value() == b.scenario.has_value());
  if (!a.scenario) return;
  const Scenario &one = *a.scenario, &other = *b.scenario;
  REQUIRE((one.schedule == nullptr) == (other.schedule == nullptr));
  if (one.schedule) CHECK(*one.schedule == *other.schedule);
  CHECK(one.decided_conditions == other.decided_conditions);
  CHECK(one.rules == other.rules);
  REQUIRE(one.preset.has_value() == other.preset.has_value());
  if (one.preset) CHECK(one.preset->family == other.preset->family);
  Json resolved = one.resolved, resolved_other = other.resolved;
  resolved.remove("model");
  resolved_other.remove("model");
  CHECK(write_json(resolved) == write_json(resolved_other));
}

const std::vector<std::vector<std::pair<std::string, int>>> layouts = {
    {},
    {{"dp", 3}},
    {{"tp", 2}},
    {{"tp", 2}, {"dp", 4}},
    {{"tp", 1}, {"pp", 2}},
    {{"pp", 3}},
    {{"cp", 2}},
    {{"ep", 2}, {"dp", 4}},
    {{"ep", 4}, {"dp", 4}},
    {{"ep", 2}, {"dp", 8}},
    {{"dp", 2}},
    {{"pp", 1}},
    {{"virtual_stages", 2}, {"pp", 2}},
};

}  // namespace

TEST_CASE("what is read beside known models is what is read without them") {
  std::size_t number = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(LOCKSTEP_SOURCE_DIR "/scenarios")) {
    const std::filesystem::path& path = entry.path();
    const bool is_large = path.parent_path().filename() == "scale";  // a second each
    if (path.extension() != ".json" || is_large || number++ % 4 != 0 || !test::is_tried(number / 4)) continue;
    INFO(path.string());
    Json document;
    try {
      document = read_scenario_file(path).document;
    } catch (const InputError&) {
      continue;  // one that shows a mistake
    }
    scenario::KnownModels known;
    for (const auto& sizes : layouts) {
      for (const int micro_batches : {2, 4, 3}) {
        const Json changed = with_sizes(document, sizes, micro_batches);
        check_same(read(changed, path.string(), &known), read(changed, path.string(), nullptr));
      }
    }
  }
}

TEST_CASE("a model that names no data axis is read once for all of their sizes, and placed once") {
  const std::string file = std::string(LOCKSTEP_SOURCE_DIR) + "/scenarios/megatron/844.json";
  const Json document = read_scenario_file(file).document;
  scenario::KnownModels known;
  const auto model_of = [&](const std::vector<std::pair<std::string, int>>& sizes, int micro_batches) {
    const Found found = read(with_sizes(document, sizes, micro_batches), file, &known);
    REQUIRE(found.scenario);
    return found.scenario->schedule->model;
  };
  const Model first = model_of({{"tp", 1}, {"dp", 2}}, 2), second = model_of({{"tp", 1}, {"dp", 6}}, 3),
              third = model_of({{"pp", 3}, {"dp", 2}}, 2);
  CHECK(&first.parameters() == &second.parameters());
  CHECK(first.shares_with(second));
  CHECK(&first.parameters() != &third.parameters());
}
