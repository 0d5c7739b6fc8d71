// SPDX-License-Identifier: Apache-2.0
#include "src/symbolic/parametric/counterexample.h"

#include <algorithm>
#include <map>
#include <memory>
#include <string>

#include "src/symbolic/parametric/find_cases.h"
#include "tests/catch.h"

using namespace lockstep;
using namespace lockstep::parametric;

TEST_CASE("of suspects each is looked at once, those of few ranks first", "[parametric]") {
  const std::string text = R"({ "lockstep": 1, "layout": { "tp": 2, "cp": 2, "dp": 2 },
    "model": { "parameters": [ { "name": "w", "shape": [8] } ] },
    "schedule": { "steps": [
      { "op": "each", "name": "each", "steps": [ { "name": "backward", "op": "backward", "by": "1/micro_batches" } ] },
      { "op": "all_reduce", "name": "mean", "over": ["cp", "dp"], "reduce": "avg" },
      { "op": "scale", "name": "double", "by": "2" } ] } })";
  Layouts layouts(read_scenario(std::make_shared<const Source>(Source{"test.json", text})));
  REQUIRE_FALSE(layouts.enter());
  REQUIRE(layouts.axes().size() == 3);
  const std::vector<Case> cases = find_cases(layouts, false);
  std::vector<Reason> reasons;
  std::map<Sizes, int> representatives;  // these are looked at in any case
  for (const Case& one : cases) {
    for (const Reason& reason : reasons_of(one)) {
      reasons.push_back(reason);
      ++representatives[reason.representative->sizes];
    }
  }
  REQUIRE_FALSE(reasons.empty());

  std::map<Sizes, int> visits;
  int before = 0;
  each_suspect(reasons, layouts.base(), layouts.axes(), layouts.micro_batches(), [&](const Sizes& sizes) {
    int ranks = 1;
    for (const auto& [axis, size] : sizes.axes) ranks *= size;
    CHECK(ranks >= before);
    before = ranks;
    ++visits[sizes];
    return true;
  });
  CHECK(visits.size() >= 6 * 6 * 6 * 3);
  for (const auto& [sizes, count] : visits) {
    INFO(describe(sizes));
    const auto known = representatives.find(sizes);
    CHECK(count <= 1 + (known == representatives.end() ? 0 : known->second));
  }
}
