// SPDX-License-Identifier: Apache-2.0
//
// Proofs of scenarios whose model file refuses some sizes, or counts stages from the end.
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <random>
#include <string>

#include "lockstep/prove.h"
#include "src/scenario/open_sizes.h"
#include "src/symbolic/parametric/layouts.h"
#include "tests/catch.h"

using namespace lockstep;

namespace {

/// A model file, and scenarios of it in the same folder.
class ModelFile {
 public:
  ModelFile(const std::string& parameters, const std::string& refuses)
      : folder_(std::filesystem::temp_directory_path() / ("lockstep-model-" + std::to_string(std::random_device()()))) {
    std::filesystem::create_directories(folder_);
    std::ofstream(folder_ / "model.jsonc")
        << R"({ "lockstep_model": 1, "name": "own", "sizes": { "layers": { "default": 2, "help": "layers" } }, )"
        << R"("rules": [ { "refuse": ")" << refuses << R"(", "because": "not at these sizes" } ], "parameters": [ )"
        << parameters << " ] }";
  }
  ModelFile(const ModelFile&) = delete;
  ModelFile& operator=(const ModelFile&) = delete;
  ~ModelFile() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }

  std::string file() const { return (folder_ / "test.json").string(); }
  /// The mean over micro-batches and dp, then this step.
  Scenario scenario(const std::string& layout, const std::string& step = "") const {
    const std::string text = R"({ "lockstep": 1, "layout": )" + layout + R"(,
      "model": { "preset": "./model.jsonc" }, "batch": { "tokens": "even" }, "schedule": { "steps": [
        { "name": "each", "op": "each", "steps": [ { "name": "backward", "op": "backward", "by": "1/micro_batches" } ] },
        { "name": "mean", "op": "all_reduce", "over": "dp", "reduce": "avg" })" +
                             (step.empty() ? "" : ", " + step) + " ] } }";
    return read_scenario(std::make_shared<const Source>(Source{file(), text}));
  }

 private:
  std::filesystem::path folder_;
};

const std::string one_parameter = R"({ "name": "w", "shape": [8] })";

}  // namespace

TEST_CASE("a stage that a model file counts from the end is one that a step names at a single size", "[parametric]") {
  const ModelFile model(
      R"({ "name": "first", "shape": [8], "stage": 0 }, { "name": "last_but_one", "shape": [8], "stage": -2 })",
      "pp < 2");
  const Prover prover(model.scenario(
      R"({ "pp": 4, "dp": 2 })",
      R"({ "name": "half", "op": "scale", "by": "1/2", "only": { "pp": [3] }, "params": ["last_but_one"] })"));
  CHECK(prover.proof().verdict == Proof::Verdict::wrong);
  CHECK(prover.proof().statement == "wrong for pp = 5, of the sizes that could be followed");
  CHECK(prover.proof().wrong_parameters == std::vector<std::string>{"last_but_one"});
  REQUIRE(prover.proof().counterexample);
  CHECK(prover.proof().counterexample->sizes.axes.at(Axis::pp) == 5);
}

TEST_CASE("the layout that stands for all has 2 where the file has more than 1, and 1 elsewhere", "[parametric]") {
  const ModelFile model(one_parameter, "dp < 2");
  parametric::Layouts layouts(model.scenario(R"({ "dp": 8, "pp": 1 })"));
  REQUIRE_FALSE(layouts.enter());
  CHECK(layouts.base().axes.at(Axis::dp) == 2);
  CHECK(layouts.base().axes.at(Axis::pp) == 1);
  CHECK(layouts.own().axes.at(Axis::dp) == 8);
}

TEST_CASE("the sizes up to 64 that a rule refuses are listed, whether or not they were tried", "[parametric]") {
  const ModelFile model(one_parameter, "dp * 2 == 14");
  const Prover prover(model.scenario(R"({ "dp": 2 })"));
  CHECK(prover.proof().verdict == Proof::Verdict::right);
  REQUIRE(prover.proof().refused.size() == 1);
  const Proof::Refused& refused = prover.proof().refused.front();
  CHECK(refused.axis == Axis::dp);
  CHECK(refused.tried == 64);
  CHECK(!refused.from);
  CHECK(refused.sizes == std::vector<int>{7});
  CHECK(refused.why == "not at these sizes");
  CHECK(prover.proof().rules.empty());  // it is listed
}

TEST_CASE("where the second size of a cut axis is refused beside those of others, one other layout is read",
          "[parametric]") {
  // dp is cut at 5. From there on 5 and 6 are read, with tp 2 and 3; 6 beside 3 is refused.
  const ModelFile model(one_parameter, "dp > 5 and tp > 2");
  const Scenario scenario =
      model.scenario(R"({ "dp": 2, "tp": 1 })", R"({ "name": "half", "op": "scale", "by": "1", "when": "dp >= 5" })");
  std::map<std::pair<int, int>, int> read;  // dp and tp
  Prover::Options options;
  options.read = [&](const Sizes& sizes) {
    Scenario one = scenario::read_scenario_of_open_sizes(scenario.document, model.file(), {sizes});
    ++read[{one.layout.dp, one.layout.tp}];
    return one;
  };
  const Prover prover(scenario, options);
  CHECK(prover.proof().statement == "right for every size");
  CHECK(prover.proof().verdict == Proof::Verdict::right);
  CHECK(read.contains({5, 2}));
  CHECK(read.contains({6, 2}));
  CHECK_FALSE(read.contains({7, 2}));
  CHECK_FALSE(read.contains({8, 2}));
}
