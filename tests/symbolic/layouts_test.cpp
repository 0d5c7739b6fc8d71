// SPDX-License-Identifier: Apache-2.0
#include "src/symbolic/parametric/layouts.h"

#include <memory>

#include "tests/catch.h"

using namespace lockstep;
using namespace lockstep::parametric;

namespace {

Scenario over_layout(const std::string& layout) {
  const std::string text = R"({ "lockstep": 1, "layout": )" + layout + R"(,
    "model": { "parameters": [ { "name": "w", "shape": [8] } ] },
    "schedule": { "steps": [ { "op": "each", "name": "each", "steps": [ { "name": "backward", "op": "backward" } ] } ] } })";
  return read_scenario(std::make_shared<const Source>(Source{"test.json", text}));
}

}  // namespace

TEST_CASE("what is known of dp_shard and dp_replicate is known of dp", "[parametric]") {
  const Layouts layouts(over_layout(R"({ "dp_shard": 2, "dp_replicate": 2 })"));
  const auto truth = [&](const std::string& condition) {
    const SizeRange three_to_five{Rational(3), Rational(5), false, false};
    const std::map<Axis, SizeRange> sizes = {{Axis::dp_shard, SizeRange::exactly(Rational(2))},
                                             {Axis::dp_replicate, three_to_five}};
    return layouts.truth(Expression::parse(condition).tree(), sizes, std::nullopt);
  };
  CHECK(truth("dp >= 6") == true);
  CHECK(truth("dp < 6") == false);
  CHECK(truth("dp <= 10") == true);
  CHECK(truth("dp > 10") == false);
  CHECK(truth("dp > 6") == std::nullopt);
  CHECK(truth("dp_replicate > 2 and dp_shard == 2") == true);
}
