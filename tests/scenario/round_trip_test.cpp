// SPDX-License-Identifier: Apache-2.0
// What `show --resolved` writes is a scenario itself, with the same schedule; and so is what is written of a schedule.
#include <filesystem>

#include "lockstep/scenario.h"
#include "lockstep/timeline.h"
#include "src/scenario/editable_steps.h"
#include "src/scenario/step_keys.h"
#include "src/scenario/writing.h"
#include "tests/cases.h"
#include "tests/catch.h"

using namespace lockstep;

namespace {

Scenario read_text(const Json& document) {
  return read_scenario(std::make_shared<const Source>(Source{"written.json", write_json(document)}));
}

bool same_call(const Call& a, const Call& b) {
  return a.rank == b.rank && a.optimizer_step == b.optimizer_step && *a.step == *b.step && *a.buffers == *b.buffers &&
         a.owned == b.owned;
}

bool same_event(const Event& a, const Event& b) {
  return a.op == b.op && a.time == b.time && a.optimizer_step == b.optimizer_step && a.micro_batch == b.micro_batch &&
         a.by == b.by && a.average == b.average && a.root == b.root && a.cuts == b.cuts &&
         std::equal(a.calls.begin(), a.calls.end(), b.calls.begin(), b.calls.end(), same_call);
}

bool same_timeline(const Timeline& a, const Timeline& b) {
  return std::equal(a.events.begin(), a.events.end(), b.events.begin(), b.events.end(), same_event) &&
         a.step_ends == b.step_ends && a.rank_ends == b.rank_ends && a.owned == b.owned && a.family == b.family &&
         a.outcome.kind == b.outcome.kind;
}

/// What is written of a schedule reads back to an equal one, in which the same happens.
void check_written(const Schedule& schedule) {
  const Json json = to_json(schedule);
  const Scenario read = read_text(json);
  REQUIRE(read.schedule);
  CHECK(write_json(to_json(*read.schedule)) == write_json(json));
  CHECK(*read.schedule == schedule);
  constexpr int small_world = 64;
  if (schedule.mesh.world() <= small_world) CHECK(same_timeline(walk(*read.schedule), walk(schedule)));
}

/// Steps are written with the keys that their file says and read back to the same in the same words.
void check_as_written(const Schedule& schedule) {
  Json json = to_json(schedule), list = *json.find("schedule");
  list.set("steps", scenario::list_of(schedule.steps, scenario::as_written));
  json.set("schedule", list);
  const Scenario read = read_text(json);
  REQUIRE(read.schedule);
  CHECK(read.schedule->steps == schedule.steps);
  CHECK(scenario::content_hash(read.schedule->steps) == scenario::content_hash(schedule.steps));
}

void check_round_trip(const std::filesystem::path& path) {
  INFO(path.string());
  const Scenario first = read_scenario_file(path);
  const std::string written = write_json(first.resolved);
  const Scenario second = read_text(first.resolved);
  CHECK(write_json(second.resolved) == written);
  REQUIRE(first.schedule);
  REQUIRE(second.schedule);
  CHECK(*first.schedule == *second.schedule);
  check_written(*first.schedule);
  check_as_written(*first.schedule);
}

}  // namespace

TEST_CASE("a resolved document of the test files gives the same schedule") {
  check_round_trip(LOCKSTEP_SOURCE_DIR "/tests/scenario/files/all_keys.jsonc");
  check_round_trip(LOCKSTEP_SOURCE_DIR "/tests/scenario/files/all_keys_of_files.jsonc");
}

TEST_CASE("a resolved document of each kept scenario gives the same schedule") {
  std::size_t found = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(LOCKSTEP_SOURCE_DIR "/scenarios")) {
    const std::string extension = entry.path().extension().string();
    if (extension != ".json" && extension != ".jsonc") continue;
    if (test::is_tried(found++)) check_round_trip(entry.path());
  }
  CHECK(found > 0);
}

TEST_CASE("two schedules are equal only where every key of every step and parameter is") {
  const Scenario all = read_scenario_file(LOCKSTEP_SOURCE_DIR "/tests/scenario/files/all_keys.jsonc");
  const Json whole = to_json(*all.schedule);
  int refused = 0, unequal = 0;
  const auto check_without = [&](const Json& document, const std::string& what) {
    INFO(what);
    try {
      const bool equal = *read_text(document).schedule == *all.schedule;
      CHECK_FALSE(equal);
      ++unequal;
    } catch (const InputError&) {
      ++refused;
    }
  };
  const auto each_key = [&](const Json& list, const auto& put) {
    for (std::size_t index = 0; index < list.items().size(); ++index) {
      for (const Json::Member& member : list.items()[index].members()) {
        if (member.key == "order") continue;  // the one that there is without it
        Json fewer = list.items()[index];
        fewer.remove(member.key);
        std::vector<Json> items = list.items();
        items[index] = fewer;
        check_without(put(Json::array(items)), write_json(list.items()[index]) + " without " + member.key);
      }
    }
  };
  const auto with = [](Json object, const char* key, const Json& value) {
    object.set(key, value);
    return object;
  };
  const Json& model = *whole.find("model");
  const Json& schedule = *whole.find("schedule");
  each_key(*model.find("parameters"),
           [&](const Json& list) { return with(whole, "model", with(model, "parameters", list)); });
  each_key(*schedule.find("steps"),
           [&](const Json& list) { return with(whole, "schedule", with(schedule, "steps", list)); });
  const std::vector<Json>& steps = schedule.find("steps")->items();
  for (std::size_t index = 0; index < steps.size(); ++index) {
    if (steps[index].find("steps") == nullptr) continue;
    each_key(*steps[index].find("steps"), [&](const Json& body) {
      std::vector<Json> changed = steps;
      changed[index].set("steps", body);
      return with(whole, "schedule", with(schedule, "steps", Json::array(changed)));
    });
  }
  for (const char* part : {"layout", "batch"}) {
    each_key(Json::array({*whole.find(part)}), [&](const Json& list) { return with(whole, part, list.items()[0]); });
  }
  CHECK(unequal > 50);
  CHECK(refused > 40);
}

TEST_CASE("coordinates of steps are written as the file has them, and mean the same at other sizes") {
  const auto with_stages = [](const std::string& pp, const Json& steps) {
    Diagnostics diagnostics;
    Json document = parse_json(std::make_shared<const Source>(Source{"test.json", R"({
      "lockstep": 1, "layout": { "dp": 2, "pp": )" + pp + R"( },
      "model": { "parameters": [ { "name": "w", "shape": [4], "stage": "all" } ] } })"}),
                               diagnostics);
    document.set("schedule", Json::object({{"steps", {}, steps}}));
    return read_text(document);
  };
  Diagnostics diagnostics;
  const Json steps = parse_json(std::make_shared<const Source>(Source{"steps.json", R"([
    { "name": "each", "op": "each", "steps": [ { "name": "backward", "op": "backward" } ] },
    { "name": "ends", "op": "all_reduce", "over": { "pp": ["last", "first"] } },
    { "name": "mean", "op": "all_reduce", "over": "dp", "only": { "pp": [0, -1] } },
    { "name": "send", "op": "broadcast", "over": "pp", "root": { "pp": "last" } } ])"}),
                                diagnostics);
  const Scenario four = with_stages("4", steps);
  const Json written = *to_json(*four.schedule).find("schedule")->find("steps");
  CHECK(written.same_as(steps));
  const Scenario three = with_stages("3", written);
  const std::vector<Step>& at_three = three.schedule->steps;
  CHECK(at_three[1].over->picks[0].coordinates == std::vector<int>{0, 2});
  CHECK(at_three[2].only[0].coordinates == std::vector<int>{0, 2});
  CHECK(at_three[3].root->coordinates == std::vector<std::pair<Axis, int>>{{Axis::pp, 2}});
  // At the same sizes they may be written in another way.
  Over by_number = *four.schedule->steps[1].over;
  by_number.picks[0].written.clear();
  CHECK(by_number == *four.schedule->steps[1].over);
  CHECK(write_json(to_json(with_stages("1", steps).schedule->steps[1])) == write_json(steps.items()[1]));
}

TEST_CASE("a number of micro-batches that all optimizer steps have is written once, and others step by step") {
  const auto written = [](const std::string& batch) {
    const std::string text =
        R"({"lockstep": 1, "layout": {"dp": 2}, "model": {"parameters": [{"name": "w", "shape": [4]}]},
            "schedule": {"steps": [{"name": "zero", "op": "zero"}]}, "batch": )" +
        batch + "}";
    const Scenario scenario = read_scenario(std::make_shared<const Source>(Source{"test.json", text}));
    return write_json(*to_json(*scenario.schedule).find("batch")->find("micro_batches"));
  };
  CHECK(written(R"({"micro_batches": 3})") == "3\n");
  CHECK(written(R"({"micro_batches": [2, 2], "steps": 2})") == "2\n");
  CHECK(written(R"({"micro_batches": [2, 2, 1], "steps": 3})") == "[2, 2, 1]\n");
}

TEST_CASE("expressions are equal where working out their constants makes them so") {
  const auto equal = [](const char* a, const char* b) { return Expression::parse(a) == Expression::parse(b); };
  CHECK(equal("0.5 * dp", "1/2 * dp"));
  CHECK(equal("(1 / dp)", "1/dp"));
  CHECK(equal("rank.pp == last", "rank.pp == last"));
  CHECK(Expression(Rational(1, 2)) == Expression::parse("0.5"));
  CHECK_FALSE(equal("dp", "cp"));
  CHECK_FALSE(equal("rank.pp == 0", "rank.dp == 0"));
  CHECK_FALSE(equal("rank.pp == first", "rank.pp == last"));
  CHECK_FALSE(equal("dp / tp", "dp * tp"));
  CHECK_FALSE(equal("sum(tokens, dp)", "sum(tokens, dp, micro_batch)"));
  CHECK_FALSE(equal("sum(tokens, dp)", "sum(tokens, cp)"));
  CHECK_FALSE(equal("tokens.a", "tokens"));
  CHECK_FALSE(equal("min(dp, 2)", "max(dp, 2)"));
  CHECK_FALSE(equal("dp == 'a'", "dp == 'b'"));
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
  CHECK(*first.schedule == *second.schedule);
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
