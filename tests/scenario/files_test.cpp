// SPDX-License-Identifier: Apache-2.0
// Framework and model files: what they expand to, and what is said where they are wrong.
#include <filesystem>
#include <fstream>

#include "src/scenario/allowed_files.h"
#include "tests/catch.h"
#include "tests/scenario/mistakes.h"

using namespace lockstep;

namespace {

const std::string folder = LOCKSTEP_SOURCE_DIR "/tests/scenario/files/";

Json resolved(const std::string& layout, const std::string& model, const std::string& schedule) {
  const std::string text = scenario_with({{"layout", layout}, {"model", model}, {"schedule", schedule}});
  return read_scenario(std::make_shared<const Source>(Source{folder + "test.json", text})).resolved;
}

std::string mistakes(const std::string& model, const std::string& schedule,
                     const std::string& layout = "{ \"pp\": 2, \"dp\": 2 }") {
  return mistakes_in(scenario_with({{"layout", layout}, {"model", model}, {"schedule", schedule}}),
                     folder + "test.json");
}

/// A scenario whose framework or model file has this text.
std::string mistakes_of_file(const std::string& kind, const std::string& text) {
  const std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("lockstep_files_test_" + kind + ".jsonc");
  scenario::include_files_below(path.parent_path());
  std::ofstream(path) << text;
  const std::string reference = "\"" + path.string() + "\"";
  const std::string found = kind == "model"
                                ? mistakes_in(scenario_with({{"model", "{ \"preset\": " + reference + " }"}}))
                                : mistakes_in(scenario_with({{"schedule", "{ \"framework\": " + reference + " }"}}));
  std::filesystem::remove(path);
  return found;
}

std::string framework_with(const std::string& members) {
  return R"({ "lockstep_framework": 1, "name": "f", )" + members + " }";
}

const std::string plain_layout = R"({ "pp": 2, "dp": 2 })";
const std::string ours_model = R"({ "preset": "./ours.model.jsonc" })";

std::string one_line(const Json& value) {
  std::string text;
  for (const char c : write_json(value, 100000)) {
    if (c != '\n' && !(c == ' ' && !text.empty() && text.back() == ' ')) text += c;
  }
  return text;
}

}  // namespace

TEST_CASE("a framework file expands to plain steps without options") {
  const Json plain =
      resolved(plain_layout, ours_model,
               R"({ "framework": "ours.framework.jsonc", "options": { "factor": 0.25, "divisor": "none" } })");
  const std::vector<Json> steps = plain.find("schedule")->find("steps")->items();
  REQUIRE(steps.size() == 3);
  CHECK(one_line(steps[0]) ==
        R"({ "name": "micro_batches", "op": "each", "steps": [ { "name": "backward", "op": "backward" } ]})");
  CHECK(one_line(steps[1]) == R"({ "name": "all_reduce", "op": "all_reduce", "over": "dp", "reduce": "sum" })");
  CHECK(one_line(steps[2]) == R"({ "name": "copy", "op": "copy", "from": "grad", "to": "main_grad" })");
  CHECK(plain.find("layout")->find("order")->text() == "tp-pp-dp");
  CHECK(one_line(*plain.find("schedule")->find("result")) == "\"main_grad\"");
}

TEST_CASE("conditions that depend on the rank or the micro-batch stay, others are decided") {
  const Json plain = resolved(
      R"({ "tp": 2, "pp": 2, "dp": 2 })", ours_model,
      R"({ "framework": "ours.framework.jsonc", "options": { "shard_grads": true, "bucket_elements": 9, "factor": 3 } })");
  const std::vector<Json> steps = plain.find("schedule")->find("steps")->items();
  const std::vector<Json> body = steps[0].find("steps")->items();
  CHECK(body[0].find("by")->text() == "6 / (world * tokens)");
  CHECK(one_line(*body[1].find("params")) == R"(["tag:weight"])");
  CHECK(body[1].find("when")->text() == "micro_batch == last and tp > 1");
  CHECK(steps[1].find("geometry")->find("size")->text() == "9");
  CHECK(steps[1].find("when") == nullptr);
  // "etp": "tp" is not written by the scenario.
  CHECK(plain.find("layout")->find("etp")->text() == "2");
}

TEST_CASE("the scenario's own layout and batch go before the framework's") {
  const std::string text =
      scenario_with({{"layout", R"({ "pp": 2, "dp": 2, "order": "dp-pp" })"},
                     {"model", ours_model},
                     {"batch", R"({ "loss": "sum", "micro_batches": 1 })"},
                     {"schedule", R"({ "framework": "ours.framework.jsonc", "result": "grad" })"}});
  const Scenario scenario = read_scenario(std::make_shared<const Source>(Source{folder + "test.json", text}));
  CHECK(scenario.layout.order == std::vector<Axis>{Axis::dp, Axis::pp});
  CHECK(scenario.schedule->batch.loss("main").kind == Loss::Kind::sum);
  CHECK(scenario.schedule->batch.micro_batch_counts == std::vector<int>{1});
  CHECK(scenario.schedule->result == "grad");
}

TEST_CASE("a loss by use leaves main to the framework") {
  const std::string model = R"({ "parameters": [ { "name": "embedding", "shape": [2], "uses": ["main", "aux"] } ] })";
  const std::string text = scenario_with(
      {{"model", model}, {"batch", R"({ "loss": { "aux": "sum" } })"}, {"schedule", R"({ "framework": "megatron" })"}});
  const Scenario scenario = read_scenario(std::make_shared<const Source>(Source{"test.json", text}));
  CHECK(scenario.schedule->batch.loss("main").kind == Loss::Kind::local_mean);
  CHECK(scenario.schedule->batch.loss("aux").kind == Loss::Kind::sum);
}

TEST_CASE("a model file expands to plain parameters, its own sizes before those of its base") {
  const auto parameters = [](const std::string& model) {
    return *resolved(plain_layout, model, R"({ "steps": [] })").find("model")->find("parameters");
  };
  const Json plain = parameters(R"({ "preset": "ours.model.jsonc", "layers": 3, "tie": "word" })");
  REQUIRE(plain.items().size() == 7);
  CHECK(one_line(plain.items()[0]) ==
        R"({ "name": "embedding", "shape": [10, 4], "shard": { "tp": 0 }, "tied": "word"})");
  CHECK(one_line(plain.items()[2]) == R"({ "name": "layers.1.bias", "shape": [8], "micro_batches": [0, 1]})");
  CHECK(one_line(plain.items()[5]) ==
        R"({ "name": "layers.2.weight", "shape": [8, 4], "tags": ["weight", "of_2", "last"], "stage": 1})");
  CHECK(one_line(plain.items()[6]) == R"({ "name": "head", "shape": [4, 10], "stage": -1})");
  CHECK(
      parameters(R"({ "preset": "ours.model.jsonc", "kind": "gated" })").items()[1].find("shape")->items()[0].text() ==
      "16");
  CHECK(parameters(R"({ "preset": "ours.model.jsonc", "kind": "gated" })").items().back().find("frozen")->as_boolean());
}

TEST_CASE("rules refuse with their sentence, at what the scenario wrote") {
  CHECK(mistakes(R"({ "preset": "ours.model.jsonc", "layers": 1 })", R"({ "steps": [] })") ==
        "/model/layers `1`: 1 layers cannot fill 2 stages.\n");
  CHECK(mistakes(ours_model, R"({ "framework": "ours.framework.jsonc", "options": { "factor": -2 } })") ==
        "/schedule/options/factor `-2`: factor is -2; it must be positive.\n");
  CHECK(mistakes(ours_model, R"({ "framework": "ours.framework.jsonc" })",
                 R"({ "pp": 2, "dp": 2, "cp": 2, "order": "cp-dp-pp" })") ==
        "/schedule/framework `\"ours.framework.jsonc\"`: There is no cp here.\n");
}

TEST_CASE("mistakes in a framework file are reported in the file") {
  CHECK(mistakes_of_file("framework", "{ \"lockstep_framework\": 1, \"name\": \"f\" }") ==
        " `{ \"lockstep_framework\": 1, \"na…`: missing key \"steps\" in the framework file: The steps; their values "
        "may be conditional and may use options.\n");
  CHECK(mistakes_of_file("framework", R"({ "lockstep_framework": 2, "name": "f", "steps": [] })") ==
        "/lockstep_framework `2`: this program reads version 1 of this format, found version 2\n");
  CHECK(
      mistakes_of_file("framework", framework_with(R"("steps": [ { "name": "x", "op": "scale", "by": "1 / dq" } ])")) ==
      "/steps/0/by `dq`: unknown name \"dq\" in an expression; did you mean \"dp\"?\n");
  CHECK(mistakes_of_file(
            "framework",
            framework_with(R"("steps": [ { "name": "x", "op": "zero" }, { "name": "x", "op": "zero" } ])")) ==
        "/steps/1/name `\"x\"`: two steps are named \"x\"; give one of them another name\n");
  CHECK(mistakes_of_file("framework",
                         framework_with(R"("options": { "o": { "type": "boolean", "default": 1 } }, "steps": [])")) ==
        "/options/o/default `1`: the default of \"o\": expected true or false, found the number 1\n");
  CHECK(mistakes_of_file("framework", framework_with(R"("let": { "tp": 1 }, "steps": [])")) ==
        "/let/tp `\"tp\"`: \"tp\" has a meaning in expressions already: choose another name\n");
  CHECK(mistakes_of_file("framework",
                         framework_with(R"("steps": [ { "if": "dp + 1", "then": { "name": "x", "op": "zero" } } ])")) ==
        "/steps/0/if `\"dp + 1\"`: expected a condition, but the string \"dp + 1\" is 3\n");
  CHECK(mistakes_of_file(
            "framework",
            framework_with(R"("steps": [ { "iff": true, "if": true, "then": { "name": "x", "op": "zero" } } ])")) ==
        "/steps/0/iff `\"iff\"`: unknown key \"iff\" in a conditional value; did you mean \"if\"?\n");
  CHECK(mistakes_of_file("framework", framework_with(R"("stepps": [], "steps": [])")) ==
        "/stepps `\"stepps\"`: unknown key \"stepps\" in the framework file; did you mean \"steps\"?\n");
}

TEST_CASE("mistakes in a model file are reported in the file") {
  const auto model_with = [](const std::string& members) {
    return R"({ "lockstep_model": 1, "name": "m", )" + members + " }";
  };
  CHECK(mistakes_of_file(
            "model",
            model_with(
                R"("parameters": [ { "name": "w", "shape": ["hiden"] } ], "sizes": { "hidden": { "default": 2 } })"))
            .rfind("/parameters/0/shape/0 `hiden`:", 0) == 0);
  CHECK(mistakes_of_file("model", model_with(R"("parameters": [ { "name": "w{", "shape": ["5 / 2"] } ])")) ==
        "/parameters/0/shape/0 `\"5 / 2\"`: expected a whole number, but the string \"5 / 2\" is 5/2\n");
  CHECK(mistakes_of_file("model", model_with(R"("sizes": { "hidden": 3 }, "parameters": [])")) ==
        "/sizes/hidden `\"hidden\"`: \"hidden\" is no size of the base of model \"m\"; it has none\n");
  CHECK(mistakes_of_file("model", model_with(R"("parameters": [ { "for": { "step": 2 }, "parameters": [] } ])")) ==
        "/parameters/0/for/step `\"step\"`: \"step\" has a meaning in expressions already: choose another name\n");
  CHECK(mistakes_of_file("model", model_with(R"("base": "gtp", "parameters": [])")) ==
        "/base `\"gtp\"`: unknown model \"gtp\"; did you mean \"gpt\"?\n");
  CHECK(mistakes_of_file("model", model_with(R"("base": "./lockstep_files_test_model.jsonc", "parameters": [])")) ==
        "/base `\"./lockstep_files_test_model.j…`: more than 8 model files stand on each other's \"base\"\n");
  CHECK(
      mistakes_of_file(
          "model",
          model_with(
              R"("parameters": [ { "for": { "i": 2000, "j": 2000 }, "parameters": [ { "name": "w{i}.{j}", "shape": [1] } ] } ])"))
          .find("the model has more than 250000 parameters") != std::string::npos);
}

TEST_CASE("an unknown file name without a path asks for one") {
  CHECK(mistakes(R"({ "preset": "zzz" })", R"({ "steps": [] })") ==
        "/model/preset `\"zzz\"`: unknown model \"zzz\"; a file of your own is given as a path, \"./zzz.jsonc\"\n");
}

TEST_CASE("the files are compiled in byte for byte") {
  const auto check_all = [](const std::string& kind, const std::vector<std::string>& names,
                            const std::string* (*find)(std::string_view)) {
    std::size_t files = 0;
    for (const auto& entry : std::filesystem::directory_iterator(LOCKSTEP_SOURCE_DIR "/" + kind)) {
      if (entry.path().extension() != ".jsonc") continue;
      ++files;
      std::ifstream stream(entry.path(), std::ios::binary);
      const std::string text((std::istreambuf_iterator<char>(stream)), {});
      INFO(entry.path().string());
      REQUIRE(find(entry.path().stem().string()) != nullptr);
      CHECK((*find(entry.path().stem().string()) == text));
    }
    CHECK(files == names.size());
    CHECK(files > 0);
  };
  check_all("frameworks", builtin_frameworks(), builtin_framework);
  check_all("models", builtin_models(), builtin_model);
  CHECK(builtin_framework("nothing") == nullptr);
}
