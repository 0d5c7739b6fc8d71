// SPDX-License-Identifier: Apache-2.0
#include "src/symbolic/parametric/layouts.h"

#include <map>
#include <memory>
#include <string>

#include "src/scenario/open_sizes.h"
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

TEST_CASE("sizes that a known rule refuses are not read, but for what it says of them", "[parametric]") {
  const std::string text = R"({ "lockstep": 1, "layout": { "dp": 2, "pp": 2 },
    "model": { "preset": "gpt2-small" }, "schedule": { "framework": "megatron" } })";
  const Scenario scenario = read_scenario(std::make_shared<const Source>(Source{"test.json", text}));
  std::map<Sizes, int> read;
  Prover::Options options;
  options.read = [&](const Sizes& sizes) {
    ++read[sizes];
    return scenario::read_scenario_of_open_sizes(scenario.document, "test.json", {sizes});
  };
  const Layouts layouts(scenario, options);
  const auto sizes = [&](int pp) { return layouts.with(Sizes{{{Axis::pp, pp}}, std::nullopt}); };
  CHECK(layouts.refusal(sizes(13)).empty());  // nobody asked for them
  CHECK(layouts.read(sizes(2)) != nullptr);
  CHECK(layouts.read(sizes(13)) == nullptr);  // 12 layers; now the rule is known
  const std::size_t before = read.size();
  for (int pp = 14; pp < 40; ++pp) CHECK(layouts.read(sizes(pp)) == nullptr);
  CHECK(read.size() == before);
  CHECK(layouts.refusal(sizes(17)) ==
        "12 layers cannot fill pp * virtual_stages = 17 * 1 stages: some would be empty.");
  CHECK(read.size() == before + 1);
  CHECK(layouts.read(sizes(12)) != nullptr);
  CHECK(layouts.refusal(sizes(12)).empty());
}

TEST_CASE("a rule on what the framework derives from sizes is asked where it has derived it", "[parametric]") {
  // torchtitan has sequence_parallel as soon as tp is above 1.
  const std::string text = R"({ "lockstep": 1, "layout": { "dp": 2, "tp": 1 },
    "model": { "preset": "llama3-8b" }, "schedule": { "framework": "torchtitan" } })";
  const Scenario scenario = read_scenario(std::make_shared<const Source>(Source{"test.json", text}));
  CHECK_FALSE(scenario::has_one_value_at_all_sizes(scenario, "sequence_parallel"));
  CHECK(scenario::has_one_value_at_all_sizes(scenario, "virtual_stages"));
  const Layouts layouts(scenario);
  for (const int tp : {1, 2, 3, 4}) {
    const Sizes sizes = layouts.with(Sizes{{{Axis::tp, tp}}, std::nullopt});
    CHECK((layouts.read(sizes) != nullptr) == (layouts.read_whole(sizes) != nullptr));
  }
}
