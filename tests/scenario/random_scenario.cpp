// SPDX-License-Identifier: Apache-2.0
#include "tests/scenario/random_scenario.h"

#include <algorithm>
#include <memory>

#include "lockstep/scenario.h"

namespace lockstep::test {

namespace {

Json parsed(const std::string& text) {
  Diagnostics diagnostics;
  Json value = parse_json(std::make_shared<const Source>(Source{"random", text}), diagnostics);
  if (!diagnostics.empty()) throw InputError(diagnostics.sorted());
  return value;
}

const std::vector<const char*> expressions = {"2",
                                              "0.5",
                                              "\"1/3\"",
                                              "\"dp\"",
                                              "\"1 / dp\"",
                                              "\"world / (tp * pp)\"",
                                              "\"rank.dp + 1\"",
                                              "-1.5",
                                              "\"0.25\"",
                                              "\"lcm(dp, 3)\"",
                                              "\"- 1/2\"",
                                              "\"1e-3 * dp\"",
                                              "\"1/sum(tokens,dp,cp,sp,micro_batch)\"",
                                              "\"max(1,rank.pp)-min(dp , 2)/7\"",
                                              "\"(dp - 1) - (cp - 2) / (2 / 3)\""};
const std::vector<const char*> conditions = {"true",
                                             "\"rank.pp == 0\"",
                                             "\"rank.pp==last\"",
                                             "\"not rank.dp == 0 and (step == 0 or dp > 1)\"",
                                             "\"world >= 2\"",
                                             "\"rank.tp != first\"",
                                             "\"not (rank.dp < 1 or rank.cp == last)\"",
                                             "\"dp == 2 or tp == 1\""};
const std::vector<const char*> groups = {"\"dp\"",
                                         "\"tp\"",
                                         "\"cp\"",
                                         "\"pp\"",
                                         "[\"dp\", \"cp\"]",
                                         "[\"cp\",\"sp\",\"dp\"]",
                                         "\"dp_shard\"",
                                         "[\"dp_replicate\"]",
                                         "[]",
                                         "\"edp\"",
                                         "[\"ep\",\"edp\"]",
                                         "\"edp_shard\"",
                                         "{\"pp\": [\"first\", \"last\"]}",
                                         "{\"dp\": \"all\", \"pp\": [0, -1]}",
                                         "{\"pp\": \"last\"}",
                                         "{\"tp\": [0], \"dp\": \"all\"}"};
const std::vector<const char*> selectors = {
    "\"*\"",          "\"tag:norm\"", "[\"tag:norm\", \"!p1\"]",       "[\"!tag:norm\"]",
    "\"p?\"",         "[\"p0\"]",     "[\"shard:tp\", \"numel > 4\"]", "\"tied:word\"",
    "\"chunk == 0\"", "\"*.weight\""};
const std::vector<const char*> coordinates = {"0", "\"last\"", "[\"first\", \"last\"]", "-1", "[0, 1]", "[1, 0, 0]"};
const std::vector<const char*> geometries = {
    R"({ "kind": "parameter" })",
    R"({ "kind": "rows" })",
    R"({ "kind": "flat" })",
    R"({ "kind": "flat", "align": "2 * n" })",
    R"({ "kind": "bucket" })",
    R"-({ "kind": "bucket", "size": 100, "align_parameter": 8, "align_bucket": "lcm(n, 4)" })-",
    R"({ "kind": "bucket", "size": "64 * n", "separate": "tag:norm" })",
    R"({ "kind": "bucket", "separate": [], "align_parameter": "32 + 32" })",
    R"({ "kind": "bucket", "separate": ["p0", "tied:word"] })"};

}  // namespace

Json RandomScenario::any_of(const std::vector<const char*>& texts) { return parsed(one_of(texts)); }

void RandomScenario::maybe(Json& object, const char* key, int percent, const std::vector<const char*>& texts) {
  if (chance(percent)) object.set(key, any_of(texts));
}

Json RandomScenario::document() {
  Json document = Json::object({{"lockstep", {}, Json::number("1")}});
  const bool plain = chance(40);
  if (chance(95)) document.set("layout", layout());
  document.set("model", chance(plain ? 80 : 30) ? parameters() : preset());
  if (chance(80)) document.set("batch", batch());
  document.set("schedule", plain ? steps() : framework());
  maybe(document, "name", 10, {"\"a name\""});
  maybe(document, "expect", 10, {R"({ "verdict": "match" })", R"({ "verdict": "mismatch", "ratio": "1/2" })"});
  return document;
}

Json RandomScenario::layout() {
  const std::vector<const char*> sizes = {"1", "2", "2", "3", "4"}, few = {"1", "2"};
  const int any = chance(6) ? below(6) : -1;
  Json layout = Json::object();
  const auto size = [&](const char* axis, int percent, const std::vector<const char*>& values) {
    maybe(layout, axis, percent, values);
  };
  size("tp", 35, few);
  size("cp", 20, few);
  size("sp", 8, few);
  size("pp", 35, few);
  size("ep", 12, few);
  size("etp", 8, few);
  switch (below(5)) {
    case 0:
      size("dp_shard", 100, few);
      size("dp_replicate", 100, few);
      break;
    case 1:
      size("dp", 100, {"2", "4"});
      size("dp_shard", 50, few);
      size("dp_replicate", 30, few);
      break;
    default:
      size("dp", 80, sizes);
  }
  const std::vector<const char*> open = {"tp", "cp", "dp", "pp", "dp_shard", "dp_replicate"};
  if (any >= 0) layout.set(open[static_cast<std::size_t>(any)], Json::string("any"));
  maybe(layout, "order", 25,
        {"\"tp-cp-sp-ep-dp-pp\"", "\"tp-cp-sp-ep-pp-dp\"", "\"dp-tp-pp\"", "\"pp-dp-ep-sp-cp-tp\"", "\"tp-dp-pp\""});
  maybe(layout, "sequence_parallel", 25, {"true", "true", "false"});
  maybe(layout, "virtual_stages", 12, few);
  return layout;
}

Json RandomScenario::preset() {
  Json model =
      any_of({R"({ "preset": "llama", "query_groups": 2 })", R"({ "preset": "gpt2", "positions": 16 })",
              R"({ "preset": "gpt" })", R"({ "preset": "moe", "experts": 4, "moe_ffn": 8, "query_groups": 2 })"});
  maybe(model, "layers", 100, {"1", "2", "2", "4"});
  for (const auto& [key, value] :
       {std::pair("hidden", "16"), std::pair("heads", "4"), std::pair("ffn", "24"), std::pair("vocab", "32")})
    model.set(key, Json::number(value));
  maybe(model, "tied_embeddings", 30, {"true", "false"});
  maybe(model, "qk_layernorm", 15, {"true", "false"});
  maybe(model, "swiglu", 15, {"true", "false"});
  maybe(model, "edits", 20,
        {"[]", R"([ { "drop": "mlp.copy_to_tp" } ])", R"([ { "duplicate": "attention.copy_to_tp" } ])",
         R"([ { "set": "mlp.copy_to_tp", "over": "dp" }, { "drop": "head.copy_to_tp" } ])"});
  return model;
}

Json RandomScenario::parameters() {
  std::vector<Json> list;
  for (int index = 0, count = 1 + below(4); index < count; ++index)
    list.push_back(parameter("p" + std::to_string(index)));
  return Json::object({{"parameters", {}, Json::array(std::move(list))}});
}

Json RandomScenario::parameter(const std::string& name) {
  Json one = Json::object({{"name", {}, Json::string(chance(10) ? name + ".weight" : name)},
                           {"shape", {}, any_of({"[]", "[4]", "[8, 4]", "[12]", "[3, 5]", "[4, 4, 2]"})}});
  maybe(one, "dtype", 15, {"\"float32\"", "\"bfloat16\"", "\"float64\"", "\"float16\""});
  maybe(one, "stage", 40, {"0", "-1", "\"all\"", "1"});
  maybe(one, "chunk", 10, {"0", "1"});
  maybe(one, "shard", 30,
        {R"({ "tp": 0 })", R"({ "tp": { "dim": 0, "uneven": true }, "ep": 0 })", R"({ "ep": 0 })",
         R"({ "tp": { "dim": 1 } })", "{}"});
  maybe(one, "partial", 15, {"[\"tp\"]", "[]", "[\"cp\"]"});
  maybe(one, "dispatch", 8, {"[\"ep\"]", "[\"ep\", \"edp\"]"});
  maybe(one, "tied", 12, {"\"word\""});
  if (one.find("tied") != nullptr) maybe(one, "copy", 30, {"\"second\"", "\"third\""});
  maybe(one, "uses", 20, {"[\"main\"]", "[\"main\", \"aux\"]", "[\"aux\"]"});
  maybe(one, "micro_batches", 10, {"[0]", "[1, 0, 1]", "[]"});
  if (chance(12)) one.set("only", Json::object({{chance(50) ? "dp" : "pp", {}, any_of(coordinates)}}));
  maybe(one, "frozen", 8, {"true", "false"});
  maybe(one, "tags", 40, {"[\"norm\"]", "[\"norm\", \"bias\"]", "[]"});
  return one;
}

Json RandomScenario::batch() {
  Json batch = Json::object();
  maybe(batch, "micro_batches", 70, {"1", "2", "3", "[2, 3]", "[2, 2]", "\"any\""});
  const Json* counts = batch.find("micro_batches");
  if (counts != nullptr && counts->is_array()) {
    batch.set("steps", Json::number("2"));  // what `counts` points to may have moved
  } else {
    maybe(batch, "steps", 15, {"1", "2"});
  }
  maybe(batch, "tokens", 40,
        {"\"uneven\"", "\"even\"", R"({ "main": "even" })", R"({ "aux": "uneven", "main": "even" })",
         "[[[[3]]], [[[5]]]]", "[[[[3]], [[0]]], [[[5]], [[2]]]]", R"({ "main": [[[[1]]], [[[7]]]], "aux": "even" })"});
  maybe(
      batch, "loss", 50,
      {"\"token_mean\"", "\"micro_batch_mean\"", "\"local_mean\"", "\"sum\"", R"-({ "weight": "1 / (tokens * dp)" })-",
       R"({ "weight": 0.5 })", R"({ "main": "sum" })", R"({ "main": { "weight": "1/world" }, "aux": "token_mean" })"});
  maybe(batch, "weight", 12, {R"({ "main": "1/3" })", R"({ "aux": 0.01 })", R"({ "main": 2, "aux": 1e-2 })"});
  return batch;
}

Json RandomScenario::framework() {
  const std::string name = one_of(builtin_frameworks());
  const Json file = parsed(*builtin_framework(name));
  Json options = Json::object();
  for (const Json::Member& option : file.find("options")->members()) {
    if (!chance(15)) continue;
    const Json* allowed = option.value.find("allowed");
    const std::string type = option.value.find("type")->text();
    if (allowed != nullptr) {
      options.set(option.key, one_of(allowed->items()));
    } else if (type == "boolean") {
      options.set(option.key, Json::boolean(chance(50)));
    } else if (type == "string") {
      options.set(option.key, *option.value.find("default"));
    } else {
      options.set(option.key, any_of({"0", "1", "2", "100"}));
    }
  }
  Json schedule = Json::object({{"framework", {}, Json::string(name)}});
  if (!options.members().empty()) schedule.set("options", options);
  return schedule;
}

Json RandomScenario::step(const std::string& name, bool in_each) {
  const std::vector<const char*> ops = {"scale",    "all_reduce", "reduce_scatter", "all_gather", "broadcast",
                                        "reduce",   "own",        "copy",           "accumulate", "zero",
                                        "leftover", "norm",       "all_to_all"};
  const std::string op = in_each && chance(60) ? "backward" : one_of(ops);
  Json step = Json::object({{"name", {}, Json::string(name)}, {"op", {}, Json::string(op)}});
  const auto is_one_of = [&](std::initializer_list<const char*> words) {
    return std::any_of(words.begin(), words.end(), [&](const char* word) { return op == word; });
  };
  maybe(step, "params", 30, selectors);
  maybe(step, "when", 20, conditions);
  if (chance(12)) step.set("only", Json::object({{chance(50) ? "dp" : "pp", {}, any_of(coordinates)}}));
  if (is_one_of({"all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce", "own", "all_to_all"}))
    maybe(step, "over", 100, groups);
  if (op == "norm") maybe(step, "over", 60, groups);
  if (is_one_of({"all_reduce", "reduce_scatter", "reduce"})) maybe(step, "reduce", 50, {"\"sum\"", "\"avg\""});
  if (is_one_of({"broadcast", "reduce"}))
    maybe(step, "root", 100, {"0", "1", R"({ "dp": 0 })", R"({ "pp": "last" })", R"({ "dp": -1 })"});
  if (is_one_of({"reduce_scatter", "all_gather", "own"})) maybe(step, "geometry", 60, geometries);
  if (is_one_of({"all_reduce", "reduce_scatter", "scale"})) maybe(step, "on", 15, {"\"owned\"", "\"all\""});
  if (is_one_of({"all_reduce", "reduce_scatter", "all_gather"})) maybe(step, "async", 10, {"true", "false"});
  if (is_one_of({"scale"})) maybe(step, "by", 100, expressions);
  if (is_one_of({"backward", "leftover"})) maybe(step, "by", 50, expressions);
  if (in_each)
    maybe(step, "when", 20, {"\"micro_batch == last\"", "\"micro_batch != 0\"", "\"micro_batch<micro_batches-1\""});
  if (op == "backward") maybe(step, "uses", 20, {"[\"main\"]", "[\"main\", \"aux\"]"});
  if (is_one_of({"copy", "accumulate"})) {
    maybe(step, "from", 100, {"\"grad\"", "\"other\""});
    maybe(step, "to", 60, {"\"other\"", "\"grad\""});
  } else {
    maybe(step, "buffer", 12, {"\"grad\"", "\"other\""});
  }
  if (op == "leftover") maybe(step, "what", 100, {"\"noise\""});
  if (op == "leftover") maybe(step, "per", 30, {"\"rank\""});
  if (op == "norm") maybe(step, "count", 50, conditions);
  if (op == "norm") maybe(step, "combine", 30, {"\"sum\"", "\"mean_of_norms\""});
  return step;
}

Json RandomScenario::steps() {
  std::vector<Json> list, body;
  body.push_back(Json::object({{"name", {}, Json::string("backward")}, {"op", {}, Json::string("backward")}}));
  for (int index = 0, count = below(3); index < count; ++index)
    body.push_back(step("inner" + std::to_string(index), true));
  list.push_back(Json::object({{"name", {}, Json::string("each")},
                               {"op", {}, Json::string("each")},
                               {"steps", {}, Json::array(std::move(body))}}));
  for (int index = 0, count = below(5); index < count; ++index) {
    const std::string name = "step" + std::to_string(index);
    list.insert(chance(15) ? list.begin() : list.end(), step(name, false));
    const Json* async = list.back().find("async");
    if (async != nullptr && async->as_boolean())
      list.push_back(Json::object({{"op", {}, Json::string("wait")}, {"for", {}, *list.back().find("name")}}));
  }
  Json schedule = Json::object({{"steps", {}, Json::array(std::move(list))}});
  maybe(schedule, "result", 8, {"\"grad\"", "\"other\""});
  return schedule;
}

Json RandomScenario::edit(const std::vector<std::string>& steps, const std::vector<std::string>& parameters) {
  const std::string name = one_of(steps);
  const std::vector<const char*> iterations = {"", "", "", "[0]", "[-1]", "[first]", "[last]"};
  const Json target = Json::string(name + one_of(iterations));
  const char* side = chance(50) ? "before" : "after";
  switch (below(6)) {
    case 0:
      return Json::object({{"drop", {}, target}});
    case 1:
      return Json::object({{"duplicate", {}, target}});
    case 2:
      return Json::object({{"move", {}, Json::string(one_of(steps))}, {side, {}, target}});
    case 3:
      return Json::object({{"insert", {}, step("new" + std::to_string(below(1000)), false)}, {side, {}, target}});
    case 4: {
      Json set = Json::object({{"set", {}, Json::string(name)}});
      switch (below(5)) {
        case 0:
          maybe(set, "when", 100, conditions);
          break;
        case 1:
          maybe(set, "over", 100, groups);
          break;
        case 2:
          maybe(set, "params", 100, selectors);
          break;
        case 3:
          maybe(set, "geometry", 100, geometries);
          break;
        default:
          maybe(set, chance(50) ? "only" : "when", 100, {"null"});
          maybe(set, "by", 60, expressions);
      }
      return set;
    }
    default: {
      Json set = Json::object({{"parameter", {}, chance(60) ? Json::string(one_of(parameters)) : any_of(selectors)}});
      maybe(set, "partial", 40, {"null", "[\"tp\"]", "[]"});
      maybe(set, "tags", 60, {"null", "[\"norm\"]", "[]"});
      maybe(set, "dtype", 20, {"\"float64\""});
      return set;
    }
  }
}

Json RandomScenario::with_edits(Json document, const std::vector<std::string>& steps,
                                const std::vector<std::string>& parameters) {
  std::vector<Json> edits;
  for (int index = 0, count = 1 + below(3); index < count; ++index) edits.push_back(edit(steps, parameters));
  Json schedule = *document.find("schedule");
  schedule.set("edits", Json::array(std::move(edits)));
  document.set("schedule", schedule);
  return document;
}

}  // namespace lockstep::test
