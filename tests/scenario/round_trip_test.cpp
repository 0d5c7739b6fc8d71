// SPDX-License-Identifier: Apache-2.0
// What `show --resolved` writes is a scenario itself, with the same schedule.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>

#include "lockstep/operation.h"
#include "lockstep/scenario.h"
#include "tests/catch.h"

using namespace lockstep;

namespace {

std::string text(const std::optional<Expression>& expression) { return expression ? expression->to_string() : "-"; }

std::string describe(const Geometry& geometry) {
  return fmt::format("{} {} {} {} {} {}", static_cast<int>(geometry.kind), text(geometry.align), text(geometry.size),
                     geometry.align_parameter.to_string(), text(geometry.align_bucket),
                     geometry.separate ? fmt::format("{}", geometry.separate->items()) : "-");
}

std::string describe(const Step& step) {
  std::string line =
      fmt::format("{} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {}\n", step.name, operation(step.op).name,
                  fmt::join(step.params.items(), ","), static_cast<int>(step.reduction), text(step.by), text(step.when),
                  describe(step.geometry), step.on_owned, step.async, step.buffer, step.from, fmt::join(step.uses, ","),
                  step.what, step.per_rank, text(step.count), step.mean_of_norms);
  line += step.wait_for;
  if (step.over) {
    for (const Over::Pick& pick : step.over->picks) {
      line +=
          fmt::format(" {}:{}", name_of(pick.axis), pick.coordinates ? fmt::format("{}", *pick.coordinates) : "all");
    }
  }
  for (const Only& only : step.only) line += fmt::format(" only {} {}", name_of(only.axis), only.coordinates);
  if (step.root) line += fmt::format(" root {}", step.root->position.value_or(-1));
  for (const auto& [axis, coordinate] : step.root ? step.root->coordinates : std::vector<std::pair<Axis, int>>()) {
    line += fmt::format(" {}={}", name_of(axis), coordinate);
  }
  for (const Step& inner : step.steps) line += "\n  " + describe(inner);
  return line + "\n";
}

std::string describe(const Parameter& p) {
  std::string line =
      fmt::format("{} {} {} {} {} {} {} {} {} {}", p.name, p.shape, name_of(p.dtype), p.stage.value_or(-1), p.chunk,
                  p.tied, p.uses, p.frozen, p.tags, p.micro_batches ? fmt::format("{}", *p.micro_batches) : "all");
  for (const Shard& shard : p.shard)
    line += fmt::format(" shard {} {} {}", name_of(shard.axis), shard.dim, shard.uneven);
  for (const Axis axis : p.partial) line += fmt::format(" partial {}", name_of(axis));
  for (const Axis axis : p.dispatch) line += fmt::format(" dispatch {}", name_of(axis));
  for (const auto& only : p.only) line += fmt::format(" only {} {}", name_of(only.axis), only.coordinates);
  return line + "\n";
}

std::string describe(const Schedule& schedule) {
  std::string all = schedule.result + "\n";
  const Layout& layout = schedule.mesh.layout();
  for (const std::string& axis : axis_names())
    all += fmt::format("{} {}, ", axis, schedule.mesh.size(*axis_named(axis)));
  for (const Axis axis : layout.order) all += fmt::format("{}-", name_of(axis));
  all += fmt::format(" {} {}\n", layout.sequence_parallel, layout.virtual_stages);
  const Batch& batch = schedule.batch;
  all += fmt::format("{}\n", batch.micro_batch_counts);
  for (const auto& [use, tokens] : batch.tokens_of_use) {
    all += fmt::format("{} {}", use, static_cast<int>(tokens.kind));
    for (int m = 0; m < batch.total_micro_batches(); ++m) {
      for (int rank = 0; rank < schedule.mesh.world(); ++rank) {
        const auto at = [&](Axis axis) { return schedule.mesh.coordinate(rank, axis); };
        all += fmt::format(" {}", batch.tokens(use, m, at(Axis::dp), at(Axis::cp), at(Axis::sp)));
      }
    }
    all += "\n";
  }
  for (const auto& [use, loss] : batch.loss_of_use)
    all += fmt::format("{} {} {}\n", use, static_cast<int>(loss.kind), loss.weight.to_string());
  for (const auto& [use, weight] : batch.weight_of_use) all += fmt::format("{} {}\n", use, weight.to_string());
  for (const Parameter& parameter : schedule.model.parameters()) all += describe(parameter);
  for (const Step& step : schedule.steps) all += describe(step);
  return all;
}

void check_round_trip(const std::filesystem::path& path) {
  INFO(path.string());
  const Scenario first = read_scenario_file(path);
  const std::string written = write_json(first.resolved);
  const Scenario second = read_scenario(std::make_shared<const Source>(Source{"resolved.json", written}));
  CHECK(write_json(second.resolved) == written);
  REQUIRE(first.schedule);
  REQUIRE(second.schedule);
  CHECK(describe(*first.schedule) == describe(*second.schedule));
}

}  // namespace

TEST_CASE("a resolved document of the test files gives the same schedule") {
  check_round_trip(LOCKSTEP_SOURCE_DIR "/tests/scenario/files/all_keys.jsonc");
  check_round_trip(LOCKSTEP_SOURCE_DIR "/tests/scenario/files/all_keys_of_files.jsonc");
}

TEST_CASE("a resolved document of each kept scenario gives the same schedule") {
  int found = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(LOCKSTEP_SOURCE_DIR "/scenarios")) {
    const std::string extension = entry.path().extension().string();
    if (extension != ".json" && extension != ".jsonc") continue;
    check_round_trip(entry.path());
    ++found;
  }
  CHECK(found > 0);
}

TEST_CASE("a resolved document names no framework, no preset and no edit, but the order of the axes") {
  const Scenario scenario = read_scenario_file(LOCKSTEP_SOURCE_DIR "/tests/scenario/files/all_keys_of_files.jsonc");
  const Json& resolved = scenario.resolved;
  CHECK(resolved.find("schedule")->find("framework") == nullptr);
  CHECK(resolved.find("schedule")->find("options") == nullptr);
  CHECK(resolved.find("model")->find("preset") == nullptr);
  CHECK(resolved.find("layout")->find("order")->text() == "tp-dp-pp");
}

TEST_CASE("a resolved document keeps the edits of its model, and knows what they are edits of") {
  const auto read = [](const std::string& text) {
    return read_scenario(std::make_shared<const Source>(Source{"test.json", text}));
  };
  const std::string rest = R"( }, "layout": { "tp": 2 }, "schedule": { "framework": "megatron" } })";
  const std::string sizes = R"({ "lockstep": 1, "model": { "preset": "llama", "layers": 2, "hidden": 16, "heads": 4,
    "query_groups": 2, "ffn": 24, "vocab": 32)";
  const Scenario first = read(sizes + R"(, "edits": [ { "set": "mlp.copy_to_tp", "over": "dp" } ])" + rest);
  const std::string written = write_json(first.resolved);
  const Scenario second = read(written);
  CHECK(write_json(second.resolved) == written);
  CHECK(describe(*first.schedule) == describe(*second.schedule));
  REQUIRE(second.preset);
  CHECK(second.preset->family == "gpt");
  CHECK(second.preset->sizes.size() == first.preset->sizes.size());
  for (const auto& [name, value] : first.preset->sizes)
    CHECK(write_json(second.preset->sizes.at(name)) == write_json(value));
  REQUIRE(second.preset->edits.size() == 1);
  CHECK(second.preset->edits.front().action == ModelEdit::Action::over);
  CHECK(second.preset->edits.front().site == "mlp.copy_to_tp");
  CHECK(second.preset->edits.front().axis == Axis::dp);
  // Without the key there is nothing to keep, and an empty list stays one.
  const Scenario unedited = read(sizes + rest);
  CHECK(unedited.resolved.find("model")->find("architecture") == nullptr);
  const Scenario empty = read(sizes + R"(, "edits": [])" + rest);
  const Json* none = empty.resolved.find("model")->find("edits");
  REQUIRE(none != nullptr);
  CHECK(none->items().empty());
}

TEST_CASE("an architecture needs a family, has its sizes, and belongs to parameters") {
  const auto mistake = [](const std::string& model) -> std::string {
    try {
      read_scenario(std::make_shared<const Source>(
          Source{"test.json", R"({ "lockstep": 1, "model": {)" + model + R"( }, "schedule": { "steps": [
            { "name": "each", "op": "each", "steps": [ { "name": "backward", "op": "backward" } ] } ] } })"}));
    } catch (const InputError& error) {
      return error.diagnostics().front().message;
    }
    return "";
  };
  const std::string list = R"("parameters": [ { "name": "w", "shape": [4] } ], )";
  CHECK(mistake(list + R"("architecture": { "family": "gpt", "hidden": 16 })").empty());
  CHECK(mistake(list + R"("architecture": { "hidden": 16 })").find("expected a \"family\"") == 0);
  CHECK(mistake(list + R"("architecture": { "family": "gpt", "hiden": 16 })").find("did you mean \"hidden\"") !=
        std::string::npos);
  CHECK(mistake(R"("preset": "llama", "architecture": { "family": "gpt" })").find("\"architecture\" says what") == 0);
  CHECK(mistake(list + R"("edits": [])").find("this model has none") != std::string::npos);
}
