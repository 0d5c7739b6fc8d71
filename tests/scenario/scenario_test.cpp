// SPDX-License-Identifier: Apache-2.0
#include "lockstep/scenario.h"

#include "src/scenario/open_sizes.h"
#include "tests/catch.h"
#include "tests/scenario/mistakes.h"

using namespace lockstep;

namespace {

Scenario read(const std::string& text) {
  return read_scenario(std::make_shared<const Source>(Source{"folder/test.json", text}));
}

const Step& step_named(const std::vector<Step>& steps, const std::string& name) {
  for (const Step& step : steps) {
    if (step.name == name) return step;
  }
  throw InternalError("no step " + name);
}

Rational value(const std::optional<Expression>& expression, const Schedule& schedule) {
  Environment environment;
  environment.mesh = &schedule.mesh;
  environment.counts = &schedule.batch;
  return expression->number(environment);
}

}  // namespace

TEST_CASE("a scenario is read into plain types, with defaults for what it leaves out") {
  const Scenario scenario = read(scenario_with({}));
  CHECK(scenario.file == "folder/test.json");
  CHECK(scenario.name == "test");
  CHECK(scenario.layout.world() == 4);
  CHECK(scenario.layout.dp_shard == 2);
  const Schedule& schedule = *scenario.schedule;
  CHECK(schedule.result == "grad");
  CHECK(schedule.batch.micro_batch_counts == std::vector<int>{2});
  REQUIRE(schedule.model.parameters().size() == 2);
  const Parameter& v = schedule.model.parameters()[1];
  CHECK(v.stage == 1);
  CHECK(v.dtype == Dtype::float32);
  CHECK(v.uses == std::vector<std::string>{"main"});
  CHECK_FALSE(v.micro_batches.has_value());
  REQUIRE(schedule.steps.size() == 2);
  CHECK(schedule.steps[0].steps[0].op == Op::backward);
  const Step& reduce = schedule.steps[1];
  CHECK(reduce.reduction == Reduction::sum);
  CHECK(reduce.buffer == "grad");
  REQUIRE(reduce.over->picks.size() == 1);
  CHECK(reduce.over->picks[0].axis == Axis::dp);
  CHECK_FALSE(reduce.over->picks[0].coordinates.has_value());
}

TEST_CASE("every key reaches its field") {
  const Scenario scenario = read_scenario_file(LOCKSTEP_SOURCE_DIR "/tests/scenario/files/all_keys.jsonc");
  CHECK(scenario.name == "all-keys");
  CHECK(scenario.title == "Every key once");
  CHECK(scenario.source_reference == "tests/scenario");
  const Layout& layout = scenario.layout;
  CHECK(layout.tp == 2);
  CHECK(layout.dp == 4);
  CHECK(layout.dp_shard == 2);
  CHECK(layout.dp_replicate == 2);
  CHECK(layout.ep == 2);
  CHECK(layout.sequence_parallel);
  CHECK(layout.virtual_stages == 2);

  const Schedule& schedule = *scenario.schedule;
  const std::vector<Parameter>& parameters = schedule.model.parameters();
  CHECK(parameters[0].shard[0].axis == Axis::tp);
  CHECK(parameters[0].tied == "word");
  CHECK(parameters[1].dtype == Dtype::float32);  // an edit changed it
  CHECK_FALSE(parameters[1].stage.has_value());
  CHECK(parameters[1].partial == std::vector<Axis>{Axis::tp});
  CHECK(parameters[1].uses == std::vector<std::string>{"main", "aux"});
  CHECK(parameters[2].chunk == 1);
  CHECK(parameters[2].shard[0].uneven);
  CHECK(parameters[2].shard[0].dim == 1);
  CHECK(parameters[2].micro_batches == std::vector<int>{0});
  CHECK(parameters[2].only[0].coordinates == std::vector<int>{0, 3});
  CHECK(parameters[3].stage == 1);
  CHECK(parameters[3].dispatch == std::vector<Axis>{Axis::ep});
  CHECK(parameters[4].frozen);
  CHECK(parameters[1].tags == std::vector<std::string>{"norm"});

  const Batch& batch = schedule.batch;
  CHECK(batch.micro_batch_counts == std::vector<int>{2, 3});
  CHECK(batch.tokens_of_use.at("aux").kind == Batch::Tokens::Kind::even);
  CHECK(batch.loss_of_use.at("main").kind == Loss::Kind::weight);
  CHECK(batch.loss_of_use.at("aux").kind == Loss::Kind::micro_batch_mean);
  CHECK(batch.weight_of_use.at("aux") == Rational(1, 100));

  const std::vector<Step>& steps = schedule.steps;
  const std::vector<Step>& body = step_named(steps, "micro_batches").steps;
  CHECK(step_named(body, "backward").uses == std::vector<std::string>{"main"});
  CHECK(value(step_named(body, "backward_aux").by, schedule) == Rational(1, 2));
  CHECK(step_named(body, "backward_aux").params.items() == std::vector<std::string>{"norm"});
  CHECK(step_named(body, "scale").only[0].coordinates == std::vector<int>{0, 1});
  CHECK(step_named(body, "scale").when->to_string() == "micro_batch == 0");
  CHECK(step_named(steps, "zero_copy").buffer == "other");
  CHECK(step_named(steps, "tp_all_reduce").reduction == Reduction::average);
  CHECK(step_named(steps, "tp_all_reduce").async);
  CHECK(step_named(steps, "").wait_for == "tp_all_reduce");
  const Geometry& bucket = *step_named(steps, "reduce_scatter").geometry;
  CHECK(bucket.kind == Geometry::Kind::bucket);
  CHECK(value(bucket.size, schedule) == Rational(100));
  CHECK(bucket.align_bucket->to_string() == "lcm(n, 128)");
  CHECK(bucket.separate->items() == std::vector<std::string>{"tied:word"});
  CHECK(step_named(steps, "replicate_all_reduce").on_owned);
  CHECK_FALSE(step_named(steps, "all_gather").on_owned);
  CHECK(step_named(steps, "own_rows").geometry->kind == Geometry::Kind::rows);
  CHECK(step_named(steps, "own_all").over->picks.empty());
  CHECK(step_named(steps, "own_flat").geometry->align->to_string() == "2 * n");
  const Step& broadcast = step_named(steps, "broadcast");
  CHECK(broadcast.over->picks[1].coordinates == std::vector<int>{0, 1});
  CHECK(broadcast.root->coordinates == std::vector<std::pair<Axis, int>>{{Axis::dp, 0}, {Axis::pp, 1}});
  CHECK(step_named(steps, "reduce").root->position == 1);
  CHECK(step_named(steps, "accumulate").from == "other");
  CHECK(step_named(steps, "accumulate").buffer == "sum");
  CHECK(step_named(steps, "leftover").what == "parameter");
  CHECK(step_named(steps, "leftover").per_rank);
  CHECK(value(step_named(steps, "leftover").by, schedule) == Rational(3));
  CHECK(step_named(steps, "norm").count->to_string() == "rank.tp == 0");
  CHECK_FALSE(step_named(steps, "norm").mean_of_norms);
  CHECK(schedule.result == "sum");

  const Expect& expect = *scenario.expect;
  CHECK(expect.verdict == "mismatch");
  CHECK(expect.parameters == std::vector<std::string>{"norm", "tied:word"});
  CHECK(expect.ranks == std::vector<int>{0, 15});
  REQUIRE(expect.formulas.size() == 3);
  CHECK(expect.formulas[0].rank == "0");
  CHECK_FALSE(expect.formulas[0].elements.has_value());
  CHECK(expect.formulas[1].elements == Interval{0, 2});
  CHECK(expect.formulas[2].formula == "2*g1");
  CHECK(expect.ratio == Rational(1, 2));
  CHECK(expect.replicas_agree == false);
  CHECK(expect.norm.at("head") == "2");
  CHECK(expect.norm_squared_factor == Rational(9, 4));
  CHECK(expect.step == 1);
  CHECK(expect.stuck == std::vector<std::string>{"broadcast"});
  CHECK(expect.blame == std::vector<std::string>{"leftover", "zero.2"});
}

TEST_CASE("a token list of one optimizer step is used again, and an empty separate separates nothing") {
  const std::string reduce =
      R"({ "name": "x", "op": "reduce_scatter", "over": "dp", "geometry": { "kind": "bucket", "separate": [] } })";
  const Scenario scenario = read(
      scenario_with({{"batch", R"({ "steps": 2, "tokens": [ [[[1]], [[2]]], [[[3]], [[0]]] ] })"}, {"step", reduce}}));
  const Batch& batch = scenario.schedule->batch;
  CHECK(batch.tokens("main", 1, 0, 0, 0) == 3);
  CHECK(batch.tokens("main", 2, 1, 0, 0) == 2);
  CHECK_FALSE(scenario.schedule->steps.back().geometry->separate.has_value());
}

TEST_CASE("dp and its parts may each be left out where the others determine them") {
  const auto layout = [](const std::string& text) { return read(scenario_with({{"layout", text}})).layout; };
  CHECK(layout(R"({ "pp": 2, "dp": 8, "dp_shard": 2 })").dp_replicate == 4);
  CHECK(layout(R"({ "pp": 2, "dp": 8, "dp_replicate": 2 })").dp_shard == 4);
  CHECK(layout(R"({ "pp": 2, "dp_shard": 3, "dp_replicate": 2 })").dp == 6);
  CHECK(layout(R"({ "pp": 2, "dp": 8, "dp_shard": 4, "dp_replicate": 2 })").dp == 8);
}

TEST_CASE("an axis of any size leaves the schedule to the parametric engine, and the rest is checked") {
  const Scenario scenario =
      read(scenario_with({{"layout", R"({ "pp": 2, "dp": "any" })"},
                          {"step", R"({ "name": "x", "op": "zero", "only": { "dp": [5, -1] } })"}}));
  CHECK(scenario.schedule == nullptr);
  CHECK(scenario.layout.any == std::vector<Axis>{Axis::dp});
  CHECK(scenario.layout.dp == 1);
  CHECK(scenario.resolved.find("layout")->find("dp")->text() == "any");
  CHECK(mistakes_in(scenario_with({{"layout", R"({ "pp": 2, "dp": "any" })"},
                                   {"step", R"({ "name": "x", "op": "zero", "only": { "pp": 5 } })"}})) ==
        "/schedule/steps/2/only/pp `5`: coordinate 5 is not on axis \"pp\", which has size 2\n");
}

TEST_CASE("any number of micro-batches leaves the schedule to the parametric engine, and the rest is checked") {
  const std::string any = R"({ "micro_batches": "any" })";
  const Scenario scenario = read(scenario_with(
      {{"batch", any},
       // Neither a micro-batch nor a value is known to be a mistake.
       {"parameter", R"({ "name": "u", "shape": [2], "micro_batches": [0, 9] })"},
       {"step",
        R"({ "name": "x", "op": "each", "steps": [ { "name": "y", "op": "backward", "by": "micro_batches - 2" } ] })"}}));
  CHECK(scenario.schedule == nullptr);
  CHECK(scenario.layout.any.empty());
  CHECK(scenario::has_any_micro_batches(scenario));
  CHECK(scenario.resolved.find("batch")->find("micro_batches")->text() == "any");
  CHECK_FALSE(scenario::has_any_micro_batches(read(scenario_with({{"batch", R"({ "micro_batches": 3 })"}}))));
  CHECK(
      mistakes_in(scenario_with({{"batch", any}, {"step", R"({ "name": "x", "op": "zero", "only": { "pp": 5 } })"}})) ==
      "/schedule/steps/2/only/pp `5`: coordinate 5 is not on axis \"pp\", which has size 2\n");
}

TEST_CASE("frozen parameters count as matched by selectors") {
  CHECK(mistakes_in(scenario_with({{"parameter", R"({ "name": "f", "shape": [2], "frozen": true })"},
                                   {"step", R"({ "name": "x", "op": "zero", "params": "f" })"}})) == "");
}

TEST_CASE("the expert mesh may be used only where its pipeline groups are those of the dense mesh") {
  const std::string step = R"({ "name": "x", "op": "all_reduce", "over": "ep" })";
  CHECK(mistakes_in(scenario_with(
            {{"layout", R"({ "tp": 2, "pp": 2, "dp": 2, "ep": 2, "order": "tp-pp-ep-dp" })"}, {"step", step}})) ==
        "/schedule/steps/2/over `\"ep\"`: axis \"ep\" is of the expert mesh, whose pipeline groups differ from those "
        "of the dense mesh under "
        "this \"order\": put \"pp\" last in it\n");
}

TEST_CASE("a file that cannot be read is a mistake of the user's") {
  try {
    read_scenario_file("/nowhere/there.json");
    FAIL("no error");
  } catch (const InputError& error) {
    REQUIRE(error.diagnostics().size() == 1);
    CHECK(error.diagnostics()[0].message == "cannot read the file: No such file or directory");
    CHECK(error.diagnostics()[0].place.source->name == "/nowhere/there.json");
  }
}

TEST_CASE("text that is no JSON, or no object, is one mistake") {
  CHECK(mistakes_in("{ \"lockstep\": 1, ").find('\n') != std::string::npos);
  CHECK(mistakes_in("[]") == " `[]`: expected an object, found an array\n");
}

TEST_CASE("a model of more parameters than there may be is told how many it has") {
  std::string list = "0";
  for (int i = 0; i < 250'000; ++i) list += ",0";
  const std::string mistakes = mistakes_in(scenario_with({{"model", "{ \"parameters\": [" + list + "] }"}}));
  CHECK(mistakes.find("the model has 250001 parameters; expected at most 250000\n") != std::string::npos);
}
