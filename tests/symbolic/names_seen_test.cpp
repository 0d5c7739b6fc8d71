// SPDX-License-Identifier: Apache-2.0
#include "src/symbolic/parametric/names_seen.h"

#include <memory>
#include <string>

#include "lockstep/scenario.h"
#include "src/symbolic/parametric/world.h"
#include "tests/catch.h"

using namespace lockstep;
using namespace lockstep::parametric;

namespace {

/// So many experts, of which a step chooses these.
std::shared_ptr<const Schedule> choosing(int experts, const std::string& chosen) {
  std::string parameters = R"({ "name": "dense", "shape": [4] })";
  for (int i = 0; i < experts; ++i)
    parameters += R"(, { "name": "expert.)" + std::to_string(i) + R"(", "shape": [4] })";
  const std::string text = R"({ "lockstep": 1, "layout": { "dp": 2 }, "model": { "parameters": [ )" + parameters +
                           R"( ] },
    "schedule": { "steps": [ { "op": "each", "name": "each", "steps": [ { "name": "backward", "op": "backward" } ] },
      { "name": "some", "op": "all_reduce", "over": "dp", "params": [")" +
                           chosen + R"("] } ] } })";
  return read_scenario(std::make_shared<const Source>(Source{"test.json", text})).schedule;
}

bool are_followed(const std::vector<std::shared_ptr<const Schedule>>& schedules) {
  NamesSeen names;
  for (const auto& schedule : schedules) names.add(schedule);
  try {
    names.require_all();
    return true;
  } catch (const OutOfReach&) {
    return false;
  }
}

}  // namespace

TEST_CASE("a step that chooses some parameters of a kind is not followed where their number varies", "[parametric]") {
  const std::string one = "expert.1", all = "expert.*", other = "dense";
  CHECK(are_followed({choosing(4, one)}));
  CHECK(are_followed({choosing(4, one), choosing(4, one), choosing(4, one)}));
  CHECK_FALSE(are_followed({choosing(4, one), choosing(2, one)}));
  CHECK_FALSE(are_followed({choosing(2, one), choosing(4, one), choosing(8, one)}));
  CHECK_FALSE(are_followed({choosing(4, one), choosing(4, one), choosing(4, one), choosing(8, one)}));
  CHECK(are_followed({choosing(2, all), choosing(4, all), choosing(8, all)}));
  CHECK(are_followed({choosing(2, other), choosing(4, other), choosing(8, other)}));
}
