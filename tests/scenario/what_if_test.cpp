// SPDX-License-Identifier: Apache-2.0
// A scenario read with a what-if is what a file that says it would be.
#include "src/scenario/what_if.h"

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/scenario.h"
#include "tests/cases.h"
#include "tests/catch.h"

using namespace lockstep;

namespace {

/// The document as somebody would write it with these sizes, none of which says a part of dp.
Json written_with(const Json& document, const Sizes& sizes) {
  Json changed = document;
  changed.remove("expect");
  if (changed.find("layout") == nullptr) changed.set("layout", Json::object());
  const auto change = [&](const char* part, const std::string& key, const Json& value) {
    Json object = changed.find(part) == nullptr ? Json::object() : *changed.find(part);
    object.set(key, value);
    changed.set(part, object);
  };
  for (const auto& [axis, size] : sizes.axes)
    change("layout", std::string(name_of(axis)), Json::number(std::to_string(size)));
  for (const Axis axis : sizes.any) change("layout", std::string(name_of(axis)), Json::string("any"));
  if (sizes.micro_batches) change("batch", "micro_batches", Json::number(std::to_string(*sizes.micro_batches)));
  return changed;
}

/// What is read, as text; what refuses it where it is refused.
template <class Read>
std::string read_as_text(const Read& read) {
  try {
    const Scenario scenario = read();
    const std::string steps = scenario.schedule == nullptr ? "no sizes\n" : write_json(to_json(*scenario.schedule));
    return write_json(scenario.document) + write_json(scenario.resolved) + steps + (scenario.expect ? "expects" : "");
  } catch (const InputError& error) {
    std::string text;
    for (const Diagnostic& one : error.diagnostics()) text += one.message + "\n";
    return text;
  }
}

Scenario read_small_text(const std::string& text) {
  return read_scenario(std::make_shared<const Source>(Source{"test.json", text}));
}

Scenario small_with_layout(const std::string& layout, const std::string& batch = "{}") {
  return read_small_text(R"({ "lockstep": 1, "layout": )" + layout + R"(, "batch": )" + batch + R"(,
    "model": { "parameters": [ { "name": "w", "shape": [8] } ] },
    "schedule": { "steps": [ { "op": "each", "name": "each", "steps": [ { "name": "backward", "op": "backward" } ] } ] } })");
}

std::string layout_at_sizes(const Scenario& scenario, const Sizes& sizes) {
  return write_json(*read_scenario(scenario.document, scenario.file, {sizes}).document.find("layout"));
}

}  // namespace

TEST_CASE("a scenario at sizes is the file with these sizes in it") {
  const std::vector<Sizes> list = {{{}, {}},
                                   {{{Axis::dp, 3}}, {}},
                                   {{{Axis::tp, 2}, {Axis::dp, 4}}, 4},
                                   {{{Axis::tp, 1}, {Axis::cp, 2}, {Axis::pp, 2}}, 3},
                                   {{{Axis::ep, 2}, {Axis::dp, 4}}, {}},
                                   {{}, 2},
                                   {{{Axis::pp, 1}}, {}, {Axis::dp}},
                                   {{}, {}, {Axis::tp, Axis::pp}}};
  std::size_t number = 0, tried = 0, read = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(LOCKSTEP_SOURCE_DIR "/scenarios")) {
    const std::filesystem::path& path = entry.path();
    const bool is_large = path.parent_path().filename() == "scale";  // a second each
    if (path.extension() != ".json" || is_large || !test::is_tried(number++)) continue;
    ++tried;
    INFO(path.string());
    const std::string file = path.string();
    Json document;
    try {
      document = read_scenario_file(path).document;
    } catch (const InputError&) {
      continue;  // one that shows a mistake
    }
    for (const Sizes& sizes : list) {
      INFO(describe(sizes));
      const std::string there = read_as_text([&] { return read_scenario(document, file, {sizes}); });
      CHECK(there == read_as_text([&] { return read_scenario(written_with(document, sizes), file); }));
      read += there.starts_with("{") ? 1 : 0;
    }
  }
  CHECK(read >= tried);
}

TEST_CASE("sizes of dp, of its parts and of the expert mesh take each other's place") {
  const Scenario whole = small_with_layout(R"({ "dp": 4, "tp": 2 })");
  CHECK(layout_at_sizes(whole, {{{Axis::dp_shard, 2}, {Axis::dp_replicate, 3}}, {}}) ==
        "{ \"tp\": 2, \"dp_shard\": 2, \"dp_replicate\": 3 }\n");
  CHECK(layout_at_sizes(whole, {{{Axis::dp, 6}, {Axis::dp_shard, 2}}, {}}) ==
        "{ \"dp\": 6, \"tp\": 2, \"dp_shard\": 2 }\n");
  const Scenario parts = small_with_layout(R"({ "dp_shard": 2, "dp_replicate": 2, "tp": 2, "etp": 2 })");
  CHECK(layout_at_sizes(parts, {{{Axis::tp, 3}, {Axis::ep, 2}, {Axis::edp, 5}}, {}}) ==
        "{ \"tp\": 3, \"etp\": 3, \"ep\": 2, \"dp\": 10 }\n");
  CHECK(layout_at_sizes(whole, {{{Axis::edp, 5}}, {}}) == "{ \"dp\": 5, \"tp\": 2 }\n");
}

TEST_CASE("every optimizer step has the micro-batches that are asked for") {
  const Scenario steps = small_with_layout("{}", R"({ "micro_batches": [4, 3], "steps": 2 })");
  const Scenario there = read_scenario(steps.document, steps.file, {{{}, 5}});
  CHECK(there.schedule->batch.micro_batch_counts == std::vector<int>{5, 5});
  const Scenario one = read_scenario(small_with_layout("{}").document, "test.json", {{{}, 5}});
  CHECK(one.schedule->batch.micro_batch_counts == std::vector<int>{5});
}

TEST_CASE("a scenario with other edits and options is the file that has them, and reads back from its document") {
  const std::string parts = R"({ "lockstep": 1, "layout": { "dp": 2 }, "model": { "preset": "gpt2-small" },
    "schedule": { "framework": "ddp", )";
  const std::string expects = R"(, "expect": { "verdict": "mismatch" } })";
  const Scenario file =
      read_small_text(parts + R"("edits": [ { "drop": "zero" }, { "duplicate": "dp_scale" } ] })" + expects);
  const Scenario there = read_scenario(file.document, file.file,
                                       {.edits = {Edit::drop("dp_all_reduce")},
                                        .left_out = {0},
                                        .options = {{"gradient_accumulation", {}, Json::string("sum")}}});
  const Scenario written =
      read_small_text(parts + R"("edits": [ { "duplicate": "dp_scale" }, { "drop": "dp_all_reduce" } ],
      "options": { "gradient_accumulation": "sum" } } })");
  CHECK(*there.schedule == *written.schedule);
  CHECK(there.edits.size() == 2);
  CHECK_FALSE(there.expect);
  CHECK(write_json(there.document) == write_json(written.document));
  CHECK(*read_scenario(there.document, there.file).schedule == *there.schedule);
  const Scenario unedited = read_scenario(file.document, file.file, {.left_out = {0, 1}});
  CHECK(*unedited.schedule == *read_small_text(parts + R"("options": {} } })").schedule);
  CHECK(read_if_allowed(file, {.edits = {Edit::drop("nothing")}}) == nullptr);
  CHECK(read_if_allowed(file, {})->schedule->steps == file.schedule->steps);
}

TEST_CASE("what is refused at other sizes is refused at its place in the file") {
  const Scenario file =
      small_with_layout(R"({ "dp": 2, "tp": 2 })", R"({ "micro_batches": 1, "tokens": [[[[3]], [[4]]]] })");
  const auto mistake = [&](const Sizes& sizes) {
    try {
      read_scenario(file.document, file.file, {sizes});
    } catch (const InputError& error) {
      REQUIRE(error.diagnostics().size() == 1);
      return error.diagnostics().front();
    }
    FAIL("it is not refused");
    return Diagnostic();
  };
  const auto at_key = [&](const char* part, const char* key) { return file.document.find(part)->find(key)->place(); };
  const Diagnostic size = mistake({{{Axis::dp, 0}}, {}});
  CHECK(size.place.begin == at_key("layout", "dp").begin);
  CHECK(size.place.source == at_key("layout", "dp").source);
  const Diagnostic tokens = mistake({{{Axis::dp, 3}}, {}});
  CHECK(tokens.message == "tokens[0] has 2 entries, expected 3: one for each dp rank");
  CHECK(tokens.place.source == file.document.place().source);
  CHECK(mistake({{}, 2}).place.begin == at_key("batch", "tokens").begin);
}
