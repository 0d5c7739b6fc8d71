// SPDX-License-Identifier: Apache-2.0
#include "src/diagnosis/candidates.h"

#include <algorithm>
#include <set>

#include "src/scenario/editable_steps.h"
#include "tests/cases.h"
#include "tests/catch.h"
#include "tests/diagnosis/small.h"

using namespace lockstep;
using namespace lockstep::test;

namespace {

Scenario read_text(const std::string& text) {
  return read_scenario(std::make_shared<const Source>(Source{"test.json", text}));
}

struct Listed {
  explicit Listed(const std::string& text)
      : scenario(read_text(text)),
        candidates(
            diagnosis::single_edits(scenario.schedule->steps, diagnosis::candidate_values(*scenario.schedule, {}))) {}

  bool has(const std::string& edit) const {
    Diagnostics diagnostics;
    const Json wanted = parse_json(std::make_shared<const Source>(Source{"edit", edit}), diagnostics);
    return std::any_of(candidates.begin(), candidates.end(),
                       [&](const diagnosis::Candidate& candidate) { return to_json(candidate.edit).same_as(wanted); });
  }

  Scenario scenario;
  std::vector<diagnosis::Candidate> candidates;
};

/// All of its edits.
std::string text_of(const diagnosis::Candidate& candidate) {
  std::string text;
  for (const Edit* edit : diagnosis::edits_of({&candidate})) text += one_line(to_json(*edit));
  return text;
}

bool contains(const std::vector<diagnosis::Candidate>& candidates, const std::string& text) {
  return std::any_of(candidates.begin(), candidates.end(),
                     [&](const diagnosis::Candidate& candidate) { return text_of(candidate) == text; });
}

std::vector<diagnosis::Candidate> restored(const std::vector<Step>& steps, const Scenario& right) {
  return diagnosis::restoring_edits(steps, right.schedule->steps, right.schedule->model.parameters());
}

std::string cp_schedule() {
  return scenario_text(R"({ "dp": 2, "cp": 2, "tp": 2 })",
                       R"([ { "name": "w", "shape": [8], "shard": { "tp": 0 } },
                       { "name": "norm", "shape": [4], "partial": ["tp"], "tags": ["norm"] } ])",
                       R"J([ { "name": "zero", "op": "zero" },
                       { "name": "micro_batches", "op": "each", "steps": [ { "name": "backward", "op": "backward" } ] },
                       { "name": "norm_all_reduce", "op": "all_reduce", "over": "tp", "params": ["tag:norm"] },
                       { "name": "dp_scale", "op": "scale", "by": "1 / (dp * cp)" },
                       { "name": "dp_all_reduce", "op": "all_reduce", "over": ["dp", "cp"] } ])J");
}

/// With a step that is waited for, on top and in the `each`.
std::string asynchronous_schedule() {
  return scenario_text(R"({ "dp": 2, "cp": 2 })", R"([ { "name": "w", "shape": [8] }, { "name": "b", "shape": [4] } ])",
                       R"J([ { "name": "zero", "op": "zero" },
                       { "name": "micro_batches", "op": "each", "steps": [
                         { "name": "backward", "op": "backward", "by": "1 / tokens" },
                         { "name": "cp_sum", "op": "all_reduce", "over": "cp", "async": true },
                         { "name": "cp_done", "op": "wait", "for": "cp_sum" } ] },
                       { "name": "sum", "op": "all_reduce", "over": "dp", "async": true },
                       { "op": "wait", "for": "sum" } ])J");
}

}  // namespace

TEST_CASE("the edits of a schedule are of every kind that its steps allow") {
  const Listed listed(cp_schedule());
  CHECK(listed.has(R"({ "drop": "norm_all_reduce" })"));
  CHECK(listed.has(R"({ "duplicate": "dp_all_reduce" })"));
  CHECK(listed.has(R"({ "move": "dp_all_reduce", "after": "zero" })"));
  CHECK(listed.has(R"({ "move": "dp_scale", "after": "backward" })"));
  CHECK(listed.has(R"({ "set": "dp_all_reduce", "over": "dp" })"));
  CHECK(listed.has(R"({ "set": "dp_scale", "by": "1 / dp" })"));
  CHECK(listed.has(R"J({ "set": "dp_scale", "by": "1 / (dp * cp * tp)" })J"));
  CHECK(listed.has(R"({ "set": "norm_all_reduce", "reduce": "avg" })"));
  CHECK(listed.has(R"({ "set": "norm_all_reduce", "params": null })"));
  CHECK(listed.has(R"({ "set": "dp_all_reduce", "params": ["!tag:norm"] })"));
  CHECK(listed.has(R"({ "set": "dp_all_reduce", "only": { "dp": [0] } })"));
  CHECK(listed.has(R"({ "drop": "backward[last]" })"));
  CHECK(listed.has(R"({ "set": "dp_all_reduce", "op": "reduce_scatter" })"));
  CHECK(listed.has(
      R"({ "insert": { "name": "tp_all_reduce", "op": "all_reduce", "params": ["tag:norm"], "over": "tp" }, "after": "dp_scale" })"));
  // What is there already is no edit, and axes of one rank have no groups.
  CHECK_FALSE(listed.has(R"({ "set": "dp_all_reduce", "over": ["dp", "cp"] })"));
  CHECK_FALSE(listed.has(R"J({ "set": "dp_scale", "by": "1 / (dp * cp)" })J"));
  CHECK_FALSE(listed.has(R"({ "move": "dp_scale", "after": "norm_all_reduce" })"));
  CHECK_FALSE(listed.has(R"({ "set": "dp_all_reduce", "over": "pp" })"));
}

TEST_CASE("every edit can be written into the file and read again, and says the same there") {
  for (const std::string& text : {cp_schedule(), megatron_844(), asynchronous_schedule()}) {
    const Listed listed(text);
    const scenario::EditableSteps steps(*listed.scenario.schedule, listed.scenario.schedule->model.parameters());
    std::set<diagnosis::Candidate::Kind> kinds;
    std::size_t valid = 0, read = 0;
    for (const diagnosis::Candidate& candidate : listed.candidates) {
      const std::optional<std::vector<Step>> edited = steps.edited({candidate.edit});
      // Not all of them mean something: a step has not every key.
      if (!edited || !steps.are_valid(*edited)) continue;
      kinds.insert(candidate.kind);
      if (!is_tried(valid++)) continue;
      try {
        const Scenario whole = read_scenario(listed.scenario.document, "test.json", {.edits = {candidate.edit}});
        CHECK(whole.schedule->steps == *edited);
        CHECK(scenario::content_hash(whole.schedule->steps) == scenario::content_hash(*edited));
        ++read;
      } catch (const InputError& error) {
        // Selectors that choose nothing any more are a mistake in a file and none in a trial.
        CHECK(error.diagnostics().front().message.find("select") != std::string::npos);
      }
    }
    CHECK(read > listed.candidates.size() / 2 / one_in);
    CHECK(kinds.size() >= 9);
  }
}

TEST_CASE("two edits come to what a file with both says, and one that cannot be applied to nothing") {
  const Scenario scenario = read_text(asynchronous_schedule());
  const scenario::EditableSteps steps(*scenario.schedule, scenario.schedule->model.parameters());
  Step added;
  added.name = "scale";
  added.op = Op::scale;
  added.by = Expression::parse("1 / dp");
  added.keys = {"name", "op", "by"};
  const std::vector<std::vector<Edit>> pairs = {
      {Edit::drop("sum"), Edit::insert(added, "micro_batches", true)},
      {Edit::insert(added, "backward", true), Edit::move("scale", "zero", true)},
      {Edit::move("micro_batches", "sum", true), Edit::drop("cp_sum")},
      {Edit::drop("micro_batches"), Edit::drop("zero")},
      {Edit::duplicate("cp_sum"), Edit::drop("cp_sum")},
      {Edit::drop("backward", "first"), Edit::move("cp_done", "backward", false)}};
  for (const std::vector<Edit>& edits : pairs) {
    INFO(write_json(to_json(edits)));
    const Scenario whole = read_scenario(scenario.document, "test.json", {.edits = edits});
    CHECK(steps.edited(edits) == whole.schedule->steps);
  }
  Step taken = added;
  taken.name = "cp_sum";
  for (const Edit& edit : {Edit::drop("nothing"), Edit::move("sum", "sum", true), Edit::move("sum", "nothing", true),
                           Edit::move("micro_batches", "backward", true), Edit::insert(added, "nothing", true),
                           Edit::insert(taken, "zero", true), Edit::set("nothing", added)})
    CHECK_FALSE(steps.edited({edit}));
  CHECK_FALSE(steps.edited({Edit::drop("zero"), Edit::drop("zero")}));
}

TEST_CASE("what a schedule has and another lacks can be brought back") {
  const Scenario right = read_text(cp_schedule());
  const std::vector<Step>& steps = right.schedule->steps;
  const scenario::EditableSteps editable(*right.schedule, right.schedule->model.parameters());
  Step by_dp, average;
  by_dp.by = Expression::parse("1 / dp");
  by_dp.keys = {"by"};
  average.reduction = Reduction::average;
  average.keys = {"reduce"};
  for (const Edit& edit : {Edit::drop("norm_all_reduce"), Edit::set("dp_scale", by_dp),
                           Edit::set("norm_all_reduce", average, {"params"}), Edit::drop("zero")}) {
    const std::optional<std::vector<Step>> wrong = editable.edited({edit});
    REQUIRE(wrong);
    CHECK(*wrong != steps);
    const std::vector<diagnosis::Candidate> candidates = restored(*wrong, right);
    REQUIRE(candidates.size() == 1);
    CHECK(editable.edited({edit, candidates.front().edit}) == steps);
  }
}

TEST_CASE("a step that was added goes with those of its op that were changed for some of its parameters") {
  const auto text = [](const std::string& edits) {
    return scenario_text(
        R"({ "dp": 2 })",
        R"([ { "name": "a", "shape": [8] }, { "name": "b", "shape": [8] }, { "name": "c", "shape": [8] } ])",
        R"([ { "name": "micro_batches", "op": "each", "steps": [ { "name": "backward", "op": "backward" } ] },
             { "name": "sum_ab", "op": "all_reduce", "over": "dp", "reduce": "avg", "params": ["a", "b"] },
             { "name": "sum_c", "op": "all_reduce", "over": "dp", "reduce": "avg", "params": ["c"] } ], "edits": [)" +
            edits + "]");
  };
  const Scenario right = read_text(text("")), wrong = read_text(text(R"(
    { "set": "sum_ab", "params": ["a"] }, { "set": "sum_c", "reduce": "sum" },
    { "insert": { "name": "sum_b", "op": "all_reduce", "over": "dp", "params": ["b"] }, "after": "sum_ab" },
    { "insert": { "name": "half", "op": "scale", "by": "1/2" }, "after": "sum_ab" })"));
  const std::vector<diagnosis::Candidate> candidates = restored(wrong.schedule->steps, right);
  const std::string whole = R"({ "set": "sum_ab", "params": ["a", "b"] })",
                    mean = R"({ "set": "sum_c", "reduce": "avg" })", gone = R"({ "drop": "sum_b" })";
  CHECK(contains(candidates, whole));
  CHECK(contains(candidates, mean));
  CHECK(contains(candidates, gone));
  CHECK(contains(candidates, whole + gone));
  CHECK_FALSE(contains(candidates, mean + gone));
  CHECK_FALSE(contains(candidates, whole + R"({ "drop": "half" })"));
}

TEST_CASE("all that a file changed is taken back at once, wherever it put its steps") {
  const auto text = [](const std::string& edits) {
    return scenario_text(R"({ "dp": 2 })", R"([ { "name": "w", "shape": [8] } ])",
                         R"([ { "name": "zero", "op": "zero" },
             { "name": "each", "op": "each", "steps": [ { "name": "backward", "op": "backward" },
               { "name": "double", "op": "scale", "by": 2 }, { "name": "half", "op": "scale", "by": "1/2" } ] },
             { "name": "sum", "op": "all_reduce", "over": "dp" }, { "name": "mean", "op": "scale", "by": "1 / dp" },
             { "name": "norm", "op": "norm" } ], "edits": [)" +
                             edits + "]");
  };
  const Scenario right = read_text(text(""));
  const auto edits_of = [&](const std::string& edits) {
    const Scenario wrong = read_text(text(edits));
    const std::optional<diagnosis::Candidate> all = diagnosis::all_back(wrong.schedule->steps, right.schedule->steps);
    if (!all) return std::string("nothing");
    const scenario::EditableSteps editable(*wrong.schedule, wrong.schedule->model.parameters());
    const scenario::EditableSteps original(*right.schedule, right.schedule->model.parameters());
    CHECK(editable.edited(diagnosis::edits_of({&*all})) == original.steps());
    return text_of(*all);
  };
  CHECK(edits_of("") == "nothing");
  CHECK(edits_of(R"({ "drop": "sum" })") ==
        R"({ "insert": { "name": "sum", "op": "all_reduce", "over": "dp" }, "after": "each" })");
  // Moved in its list, far and to the front; the others stay.
  CHECK(edits_of(R"({ "move": "zero", "after": "norm" })") == R"({ "move": "zero", "before": "each" })");
  CHECK(edits_of(R"({ "move": "norm", "before": "zero" })") == R"({ "move": "norm", "after": "mean" })");
  CHECK(edits_of(R"({ "move": "half", "before": "backward" })") == R"({ "move": "half", "after": "double" })");
  // Moved and changed as well.
  CHECK(edits_of(R"({ "move": "sum", "after": "backward" }, { "set": "sum", "reduce": "avg" }, { "drop": "mean" })") ==
        R"({ "move": "sum", "after": "each" }{ "set": "sum", "reduce": null })"
        R"({ "insert": { "name": "mean", "op": "scale", "by": "1 / dp" }, "after": "sum" })");
  CHECK(edits_of(R"({ "move": "zero", "after": "sum" }, { "set": "zero", "buffer": "other" })") ==
        R"({ "move": "zero", "before": "each" }{ "set": "zero", "buffer": null })");
  // All of it, with a loop and what is in it.
  edits_of(
      R"({ "move": "half", "after": "each" }, { "move": "mean", "after": "zero" }, { "move": "norm", "after": "backward" },
    { "drop": "sum" }, { "insert": { "name": "third", "op": "scale", "by": "1/3" }, "before": "zero" },
    { "insert": { "name": "third_too", "op": "scale", "by": "1/3" }, "before": "backward" })");
  edits_of(R"({ "drop": "each" }, { "move": "zero", "after": "norm" })");
  edits_of(R"({ "drop": "zero" }, { "drop": "sum" }, { "drop": "mean" }, { "drop": "norm" })");
}

TEST_CASE("coordinates that an edit brings are those at the sizes of the schedule that it changes") {
  const auto at_stages = [](const std::string& pp) {
    return read_text(scenario_text(
        R"({ "pp": )" + pp + " }", R"([ { "name": "w", "shape": [8], "stage": "all" } ])",
        R"([ { "name": "micro_batches", "op": "each", "steps": [ { "name": "backward", "op": "backward" } ] },
                                   { "name": "ends", "op": "all_reduce", "over": { "pp": ["first", "last"] } } ])"));
  };
  const Scenario four = at_stages("4"), two = at_stages("2");
  Step values;
  values.over = four.schedule->steps.back().over;
  values.root = Root{{}, {{Axis::pp, 3}}, {{Axis::pp, {Coordinate::Kind::last}}}};
  values.only = {Only{Axis::pp, {2}, {{Coordinate::Kind::number, -2}}}};
  values.op = Op::broadcast;
  values.keys = {"op", "over", "root", "only"};
  const scenario::EditableSteps steps(*two.schedule, two.schedule->model.parameters());
  const std::optional<std::vector<Step>> edited = steps.edited({Edit::set("ends", values)});
  REQUIRE(edited);
  const Step& step = edited->back();
  CHECK(step.over->picks.front().coordinates == std::vector<int>{0, 1});
  CHECK(step.root->coordinates.front().second == 1);
  CHECK(step.only.front().coordinates == std::vector<int>{0});
  CHECK(steps.are_valid(*edited));
  // A number that no rank has there.
  values.only = {Only{Axis::pp, {3}, {{Coordinate::Kind::number, 3}}}};
  CHECK_FALSE(steps.are_valid(*steps.edited({Edit::set("ends", values)})));
}

TEST_CASE("steps that a file cannot have are not tried") {
  const Scenario read = read_text(cp_schedule());
  const scenario::EditableSteps steps(*read.schedule, read.schedule->model.parameters());
  CHECK(steps.are_valid(read.schedule->steps));
  const auto is_valid_after = [&](const Edit& edit) {
    const std::optional<std::vector<Step>> edited = steps.edited({edit});
    return edited && steps.are_valid(*edited);
  };
  const auto with = [](std::string_view key, const auto& change) {
    Step values;
    change(values);
    values.keys = {key};
    return values;
  };
  const Step other_op = with("op", [](Step& step) { step.op = Op::scale; });
  const Step each_micro_batch = with("when", [](Step& step) { step.when = Expression::parse("micro_batch == 0"); });
  const Step other_use = with("uses", [](Step& step) { step.uses = {"head"}; });
  const Step root = with("root", [](Step& step) { step.root = Root{1, {}, {}}; });
  CHECK(is_valid_after(Edit::set("backward", each_micro_batch)));
  CHECK_FALSE(is_valid_after(Edit::set("dp_scale", each_micro_batch)));
  CHECK_FALSE(is_valid_after(Edit::set("dp_all_reduce", other_op)));
  CHECK_FALSE(is_valid_after(Edit::set("dp_all_reduce", root)));
  CHECK_FALSE(is_valid_after(Edit::set("dp_scale", {}, {"by"})));
  CHECK_FALSE(is_valid_after(Edit::set("backward", other_use)));
  CHECK_FALSE(is_valid_after(Edit::move("backward", "zero", true)));
  CHECK_FALSE(is_valid_after(Edit::drop("nothing")));
  Step wait;
  wait.op = Op::wait;
  wait.wait_for = "nothing";
  wait.keys = {"op", "for"};
  CHECK_FALSE(is_valid_after(Edit::insert(wait, "zero", true)));
  wait.wait_for = "dp_all_reduce";
  CHECK(is_valid_after(Edit::insert(wait, "dp_all_reduce", true)));
}

TEST_CASE("of a long list of names those that are wrong are edited one by one") {
  std::string parameters, names;
  for (int i = 0; i < 100; ++i) {
    parameters += std::string(i > 0 ? ", " : "") + R"({ "name": "p)" + std::to_string(i) + R"(", "shape": [2] })";
    names += std::string(i > 0 ? ", " : "") + "\"p" + std::to_string(i) + "\"";
  }
  const Scenario read = read_text(scenario_text(
      R"({ "dp": 2 })", "[" + parameters + "]",
      R"([ { "name": "micro_batches", "op": "each", "steps": [ { "name": "backward", "op": "backward" } ] },
           { "name": "mean", "op": "all_reduce", "over": "dp", "params": [)" +
          names + "] } ]"));
  const auto edits = [&](const std::set<std::string>& wrong) {
    const auto all =
        diagnosis::single_edits(read.schedule->steps, diagnosis::candidate_values(*read.schedule, {wrong}));
    return std::count_if(all.begin(), all.end(), [](const diagnosis::Candidate& one) {
      return one.edit.changes("params") && one.edit.values.params.items().size() == 99;
    });
  };
  CHECK(edits({"p7"}) == 1);
  CHECK(edits({"p7", "p99"}) == 2);
  CHECK(edits({}) == static_cast<std::ptrdiff_t>(diagnosis::most_single_items));
}

TEST_CASE("a scale and the reduction beside it are changed alike at once") {
  const auto together = [](const std::string& more_of_reduction) {
    const Listed listed(scenario_text(
        R"({ "dp": 2, "pp": 2 })",
        R"([ { "name": "w", "shape": [8] }, { "name": "norm", "shape": [4], "stage": -1, "tags": ["norm"] } ])",
        R"([ { "name": "zero", "op": "zero" },
             { "name": "micro_batches", "op": "each", "steps": [ { "name": "backward", "op": "backward" } ] },
             { "name": "half", "op": "scale", "by": "1 / dp", "params": ["tag:norm"], "when": "rank.pp != last" },
             { "name": "sum", "op": "all_reduce", "over": "dp", "params": ["tag:norm"])" +
            more_of_reduction + " } ]"));
    return diagnosis::edits_together(listed.scenario.schedule->steps, listed.candidates);
  };
  const std::vector<diagnosis::Candidate> both = together(R"(, "when": "rank.pp != last")");
  CHECK(contains(both, R"({ "set": "half", "params": null }{ "set": "sum", "params": null })"));
  CHECK(contains(both, R"({ "set": "half", "when": null }{ "set": "sum", "when": null })"));
  CHECK(contains(both, R"({ "move": "half", "after": "zero" }{ "move": "sum", "after": "half" })"));
  // What only one of them can be is no edit of both.
  CHECK_FALSE(std::any_of(both.begin(), both.end(), [](const diagnosis::Candidate& candidate) {
    return candidate.edit.changes("by") || candidate.edit.action == Edit::Action::drop;
  }));
  // Of other ranks they do not belong together.
  CHECK(together("").empty());
}

TEST_CASE("steps that belong together are brought back at once, in their order") {
  const Scenario right = read_text(cp_schedule());
  const std::vector<Step>& steps = right.schedule->steps;
  const scenario::EditableSteps editable(*right.schedule, right.schedule->model.parameters());
  const std::optional<std::vector<Step>> wrong = editable.edited({Edit::drop("dp_scale"), Edit::drop("dp_all_reduce")});
  REQUIRE(wrong);
  const std::vector<diagnosis::Candidate> candidates = restored(*wrong, right);
  REQUIRE(candidates.size() == 3);  // each of them, and both
  CHECK(candidates.back().together.size() == 1);
  std::vector<Edit> edits = {Edit::drop("dp_scale"), Edit::drop("dp_all_reduce")};
  for (const diagnosis::Candidate& one : diagnosis::one_by_one({&candidates.back()})) edits.push_back(one.edit);
  CHECK(editable.edited(edits) == steps);
}

TEST_CASE("a step that leaves the micro-batches keeps of its condition what is no micro-batch") {
  const auto listed = [](const std::string& when) {
    return Listed(scenario_text(R"({ "dp": 2, "pp": 2 })", R"([ { "name": "w", "shape": [8], "stage": "all" } ])",
                                R"([ { "name": "zero", "op": "zero" },
             { "name": "micro_batches", "op": "each", "steps": [
                 { "name": "backward", "op": "backward" },
                 { "name": "sum", "op": "all_reduce", "over": "dp", "when": ")" +
                                    when + R"(" } ] } ])"));
  };
  const std::string out = R"({ "move": "sum", "after": "micro_batches" })";
  CHECK(contains(listed("micro_batch == last").candidates, out + R"({ "set": "sum", "when": null })"));
  CHECK(contains(listed("micro_batch == 0 and (rank.pp == last or rank.dp == 0)").candidates,
                 out + R"J({ "set": "sum", "when": "(rank.pp == last or rank.dp == 0)" })J"));
  CHECK(contains(listed("rank.pp == last").candidates, out));
  // From one iteration to another, whatever put it into the one.
  CHECK(contains(listed("micro_batch == 0").candidates,
                 R"({ "set": "sum", "when": null }{ "move": "sum", "after": "backward[last]" })"));
}

TEST_CASE("the groups of a step are told in the axes of what it acts on, as its like has them") {
  const Listed listed(scenario_text(
      R"({ "dp": 2, "ep": 2 })",
      R"([ { "name": "w", "shape": [8] }, { "name": "expert", "shape": [8], "shard": { "ep": 0 }, "tags": ["expert"] } ])",
      R"([ { "name": "micro_batches", "op": "each", "steps": [ { "name": "backward", "op": "backward" } ] },
           { "name": "sum", "op": "all_reduce", "over": "dp", "params": ["!tag:expert"] },
           { "name": "norm", "op": "norm", "params": ["!tag:expert"], "over": ["tp", "dp_shard"] },
           { "name": "replicated", "op": "norm", "params": ["w"] },
           { "name": "experts", "op": "norm", "params": ["tag:expert"], "over": ["edp_shard", "pp"] },
           { "name": "dense", "op": "norm", "params": ["tag:expert"], "over": ["tp", "cp"] } ])"));
  CHECK(listed.has(R"({ "set": "experts", "over": ["edp_shard", "pp", "ep"] })"));
  CHECK(listed.has(R"({ "set": "dense", "over": "ep" })"));  // no axes of both meshes
  CHECK(listed.has(R"({ "set": "replicated", "over": ["tp", "dp_shard"] })"));
  CHECK(
      listed.has(R"({ "insert": { "name": "ep_all_reduce", "op": "all_reduce", "params": ["tag:expert"], "over": "ep" },
                        "after": "dense" })"));
  CHECK_FALSE(listed.has(R"({ "set": "experts", "over": "dp" })"));
  // Factors likewise: what comes first is offered where several do the same.
  const auto place_of = [&](const std::string& by) {
    const auto found = std::find_if(listed.candidates.begin(), listed.candidates.end(), [&](const auto& candidate) {
      const Step& step = candidate.edit.values;
      return step.op == Op::scale && step.by && step.by->text() == by &&
             step.params.items() == std::vector<std::string>{"tag:expert"};
    });
    REQUIRE(found != listed.candidates.end());
    return found - listed.candidates.begin();
  };
  CHECK(place_of("1 / ep") < place_of("1 / dp"));
}

TEST_CASE("of a norm's condition parts are taken away and added, but not those that hold everywhere") {
  const Listed listed(scenario_text(
      R"({ "pp": 2, "dp": 2 })", R"([ { "name": "w", "shape": [8], "stage": "all" } ])",
      R"([ { "name": "micro_batches", "op": "each", "steps": [ { "name": "backward", "op": "backward" } ] },
           { "name": "norm", "op": "norm", "count": "rank.tp == 0 and rank.pp == 0" } ])"));
  CHECK(listed.has(R"({ "set": "norm", "count": "rank.tp == 0" })"));
  CHECK(listed.has(R"({ "set": "norm", "count": "rank.tp == 0 and rank.dp == 0" })"));
  CHECK(listed.has(R"({ "set": "norm", "count": "rank.tp == 0 and rank.pp == 0 and rank.dp == 0" })"));
  CHECK_FALSE(listed.has(R"({ "set": "norm", "count": null })"));
}

TEST_CASE("a parameter that one step takes and another leaves out goes from one to the other at once") {
  const Listed listed(scenario_text(
      R"({ "tp": 2 })", R"([ { "name": "w", "shape": [8], "shard": { "tp": 0 } }, { "name": "down", "shape": [8] },
           { "name": "bias", "shape": [4] } ])",
      R"([ { "name": "micro_batches", "op": "each", "steps": [ { "name": "backward", "op": "backward" } ] },
           { "name": "sharded", "op": "norm", "params": ["shard:tp", "down"], "over": "tp" },
           { "name": "whole", "op": "norm", "params": ["!shard:tp", "!down"] } ])"));
  CHECK(contains(diagnosis::edits_together(listed.scenario.schedule->steps, listed.candidates),
                 R"({ "set": "sharded", "params": ["shard:tp"] }{ "set": "whole", "params": ["!shard:tp"] })"));
}

TEST_CASE("the bound of a size is tried with and without its own") {
  const Listed listed(scenario_text(
      R"({ "dp": 2 })", R"([ { "name": "w", "shape": [8] }, { "name": "b", "shape": [4] } ])",
      R"([ { "name": "micro_batches", "op": "each", "steps": [ { "name": "backward", "op": "backward" } ] },
           { "name": "small", "op": "all_reduce", "over": "dp", "params": ["numel<8"] },
           { "name": "large", "op": "all_reduce", "over": "dp", "params": ["numel>=8"] } ])"));
  CHECK(listed.has(R"({ "set": "small", "params": ["numel<=8"] })"));
  CHECK(listed.has(R"({ "set": "large", "params": ["numel>8"] })"));
}

TEST_CASE("a norm is combined otherwise, and what is no norm is not") {
  const Listed listed(scenario_text(
      R"({ "dp": 2 })", R"([ { "name": "w", "shape": [8] } ])",
      R"([ { "name": "micro_batches", "op": "each", "steps": [ { "name": "backward", "op": "backward" } ] },
           { "name": "sum", "op": "all_reduce", "over": "dp" }, { "name": "norm", "op": "norm", "over": "dp" },
           { "name": "mean", "op": "norm", "over": "dp", "combine": "mean_of_norms" } ])"));
  CHECK(listed.has(R"({ "set": "norm", "combine": "mean_of_norms" })"));
  CHECK(listed.has(R"({ "set": "mean", "combine": null })"));
  CHECK_FALSE(listed.has(R"({ "set": "mean", "combine": "mean_of_norms" })"));
  CHECK(listed.has(R"({ "set": "sum", "reduce": "avg" })"));
  CHECK_FALSE(listed.has(R"({ "set": "norm", "reduce": "avg" })"));
  for (const diagnosis::Candidate& candidate : listed.candidates)
    CHECK((candidate.step != "sum" || !candidate.edit.changes("combine")));
}

TEST_CASE("a loss is normalized by tokens where it is computed, and by their sum behind it") {
  const auto listed = [](const std::string& inside, const std::string& outside) {
    std::string text = scenario_text(
        R"({ "dp": 2 })", R"([ { "name": "w", "shape": [8] } ])",
        R"([ { "name": "micro_batches", "op": "each", "steps": [ { "name": "backward", "op": "backward")" + inside +
            R"( } ] }, { "name": "sum", "op": "all_reduce", "over": "dp" }, { "name": "scale", "op": "scale", "by": ")" +
            outside + R"(" } ])");
    const std::string old = R"("batch": { "micro_batches": 1, "tokens": "even" })";
    return Listed(text.replace(text.find(old), old.size(), R"("batch": { "micro_batches": 3 })"));
  };
  const Listed plain = listed("", "dp");
  CHECK(plain.has(R"({ "set": "backward", "by": "1 / tokens" })"));
  CHECK(plain.has(R"J({ "set": "backward", "by": "1 / sum(tokens, dp, micro_batch)" })J"));
  CHECK(plain.has(R"J({ "set": "backward", "by": "tokens / sum(tokens, dp, micro_batch)" })J"));
  CHECK(plain.has(R"J({ "set": "backward", "by": "1 / (tokens * micro_batches)" })J"));
  CHECK(plain.has(R"({ "set": "backward", "by": "dp" })"));
  CHECK(plain.has(R"({ "set": "backward", "by": "1 / dp" })"));
  CHECK(plain.has(R"J({ "set": "scale", "by": "1 / sum(tokens, dp, micro_batch)" })J"));
  CHECK(plain.has(R"J({ "set": "scale", "by": "dp * sum(tokens, dp, micro_batch)" })J"));
  CHECK(plain.has(R"J({ "set": "scale", "by": "dp / sum(tokens, dp, micro_batch)" })J"));
  CHECK(plain.has(R"({ "set": "scale", "by": "1" })"));
  CHECK_FALSE(plain.has(R"({ "set": "scale", "by": "dp" })"));
  CHECK_FALSE(plain.has(R"({ "set": "scale", "by": "1 / tokens" })"));  // outside of the loop there is no one batch
  const Listed scaled = listed(R"(, "by": "1 / tokens")", "1");
  CHECK(scaled.has(R"({ "set": "backward", "by": null })"));
  CHECK(scaled.has(R"J({ "set": "backward", "by": "1 / sum(tokens, dp, micro_batch)" })J"));
  CHECK(scaled.has(R"J({ "set": "backward", "by": "1 / (tokens * sum(tokens, dp, micro_batch))" })J"));
  CHECK(scaled.has(R"J({ "set": "backward", "by": "1 / (tokens * dp)" })J"));
}

TEST_CASE("a step that went into the loop is moved out again, and one key of a geometry is set by itself") {
  const auto restored = [](const std::string& edits) {
    const auto text = [](const std::string& list) {
      return scenario_text(
          R"({ "dp": 2 })", R"([ { "name": "w", "shape": [8] }, { "name": "v", "shape": [8] } ])",
          R"([ { "name": "micro_batches", "op": "each", "steps": [ { "name": "backward", "op": "backward" } ] },
               { "name": "sum", "op": "all_reduce", "over": "dp" },
               { "name": "scatter", "op": "reduce_scatter", "over": "dp",
                 "geometry": { "kind": "bucket", "align_parameter": 2, "size": 8 } } ], "edits": [)" +
              list + "]");
    };
    std::string all;
    for (const diagnosis::Candidate& one : ::restored(read_text(text(edits)).schedule->steps, read_text(text(""))))
      all += text_of(one);
    return all;
  };
  CHECK(restored("").empty());
  CHECK(restored(R"({ "move": "sum", "after": "backward" })") == R"({ "move": "sum", "after": "micro_batches" })");
  CHECK(restored(R"({ "move": "sum", "after": "backward" }, { "set": "sum", "reduce": "avg" })") ==
        R"({ "move": "sum", "after": "micro_batches" }{ "set": "sum", "reduce": null })");
  CHECK(restored(R"({ "set": "scatter", "geometry": { "align_parameter": 1 } })") ==
        R"({ "set": "scatter", "geometry": { "align_parameter": 2 } })");
  CHECK(restored(R"({ "set": "scatter", "geometry": { "separate": ["w"] } })") ==
        R"({ "set": "scatter", "geometry": { "separate": null } })");
  CHECK(restored(R"({ "set": "scatter", "geometry": { "kind": "flat" } })") ==
        R"({ "set": "scatter", "geometry": { "kind": "bucket", "size": 8, "align_parameter": 2 } })");
  CHECK(restored(R"({ "set": "scatter", "geometry": null })") ==
        R"({ "set": "scatter", "geometry": { "kind": "bucket", "size": 8, "align_parameter": 2 } })");
  // What stood first comes back in front of what follows.
  CHECK(restored(R"({ "drop": "micro_batches" })").ends_with(R"(, "before": "sum" })"));
}

TEST_CASE("what is inserted has a name of its own, and copies go from each buffer to each other") {
  const Listed listed(scenario_text(
      R"({ "dp": 2 })", R"([ { "name": "w", "shape": [8] } ])",
      R"([ { "name": "micro_batches", "op": "each", "steps": [ { "name": "backward", "op": "backward" } ] },
           { "name": "scale", "op": "scale", "by": 1 }, { "name": "zero_2", "op": "copy", "from": "grad", "to": "main" },
           { "name": "zero", "op": "zero" }, { "name": "norm", "op": "norm", "over": "dp" } ])"));
  CHECK(listed.has(R"({ "insert": { "name": "scale_2", "op": "scale", "by": "dp" }, "after": "norm" })"));
  CHECK(listed.has(R"({ "insert": { "name": "zero_3", "op": "zero" }, "before": "micro_batches" })"));
  CHECK(listed.has(R"({ "insert": { "name": "zero_3", "op": "zero", "buffer": "main" }, "after": "norm" })"));
  CHECK(listed.has(
      R"({ "insert": { "name": "copy_main", "op": "copy", "from": "main", "to": "grad" }, "after": "norm" })"));
  CHECK(listed.has(
      R"({ "insert": { "name": "accumulate_grad", "op": "accumulate", "from": "grad", "to": "main" }, "after": "zero" })"));
  CHECK_FALSE(listed.has(
      R"({ "insert": { "name": "copy_grad", "op": "copy", "from": "grad", "to": "grad" }, "after": "norm" })"));
  // Inside of the loop its backward's buffer alone, and what needs all micro-batches is not put there.
  CHECK(listed.has(R"({ "insert": { "name": "zero_3", "op": "zero" }, "before": "backward" })"));
  CHECK(listed.has(R"({ "insert": { "name": "zero_3", "op": "zero" }, "after": "backward" })"));
  CHECK_FALSE(listed.has(R"({ "insert": { "name": "zero_3", "op": "zero", "buffer": "main" }, "after": "backward" })"));
  CHECK(listed.has(
      R"({ "insert": { "name": "dp_all_reduce", "op": "all_reduce", "over": "dp" }, "after": "backward" })"));
  CHECK(listed.has(
      R"({ "insert": { "name": "dp_all_gather", "op": "all_gather", "over": "dp" }, "after": "micro_batches" })"));
  CHECK_FALSE(listed.has(
      R"({ "insert": { "name": "dp_all_gather", "op": "all_gather", "over": "dp" }, "after": "backward" })"));
  // A norm is taken at the end, as the one that there is.
  CHECK(listed.has(R"({ "insert": { "name": "norm_2", "op": "norm", "over": "dp" }, "after": "norm" })"));
  CHECK(listed.has(
      R"({ "insert": { "name": "norm_2", "op": "norm", "over": "dp", "count": "rank.dp == 0" }, "after": "norm" })"));
  CHECK_FALSE(listed.has(R"({ "insert": { "name": "norm_2", "op": "norm", "over": "dp" }, "after": "zero" })"));
  CHECK_FALSE(
      listed.has(R"({ "insert": { "name": "zero_3", "op": "zero" }, "before": "scale" })"));  // after micro_batches
}

TEST_CASE("where there are several uses a backward of each may be missing") {
  const auto uses_of_inserted = [](const std::string& uses) {
    std::set<std::string> found;
    const Listed listed(scenario_text(
        R"({ "dp": 2 })", R"([ { "name": "w", "shape": [8], "uses": )" + uses + " } ]",
        R"([ { "name": "micro_batches", "op": "each", "steps": [ { "name": "backward", "op": "backward" } ] } ])"));
    for (const diagnosis::Candidate& candidate : listed.candidates) {
      const Step& step = candidate.edit.values;
      if (candidate.edit.action == Edit::Action::insert && step.op == Op::backward) found.insert(step.uses.front());
    }
    return found;
  };
  CHECK(uses_of_inserted(R"(["main", "mtp"])") == std::set<std::string>{"main", "mtp"});
  CHECK(uses_of_inserted(R"(["main"])").empty());
}

TEST_CASE("what alone chooses the parameters of a step does not go over to another") {
  const Listed listed(scenario_text(
      R"({ "tp": 2 })", R"([ { "name": "w", "shape": [8], "tags": ["t"] }, { "name": "v", "shape": [8] } ])",
      R"([ { "name": "micro_batches", "op": "each", "steps": [ { "name": "backward", "op": "backward" } ] },
           { "name": "some", "op": "norm", "params": ["tag:t"] }, { "name": "others", "op": "norm", "params": ["!tag:t"] },
           { "name": "a", "op": "scale", "by": 1, "params": ["tag:t", "w", "v"] },
           { "name": "b", "op": "scale", "by": 1, "params": ["!tag:t", "!w", "*"] } ])"));
  const std::vector<diagnosis::Candidate> both =
      diagnosis::edits_together(listed.scenario.schedule->steps, listed.candidates);
  CHECK_FALSE(contains(both, R"({ "set": "some", "params": [] }{ "set": "others", "params": [] })"));
  CHECK_FALSE(contains(both, R"({ "set": "some", "params": null }{ "set": "others", "params": null })"));
  CHECK(contains(both, R"({ "set": "a", "params": ["w", "v"] }{ "set": "b", "params": ["!w", "*"] })"));
  CHECK(contains(both, R"({ "set": "a", "params": ["tag:t", "v"] }{ "set": "b", "params": ["!tag:t", "*"] })"));
}

TEST_CASE("an op becomes the one that was meant, in the buffer that was meant") {
  const Listed listed(scenario_text(
      R"({ "dp": 2 })", R"([ { "name": "w", "shape": [8] } ])",
      R"([ { "name": "micro_batches", "op": "each", "steps": [ { "name": "backward", "op": "backward", "buffer": "own" } ] },
           { "name": "slices", "op": "own", "over": "dp" }, { "name": "ranks", "op": "scale", "by": "dp" },
           { "name": "gather", "op": "all_gather", "over": "dp" }, { "name": "sum", "op": "all_reduce", "over": "dp", "reduce": "sum" },
           { "name": "norm", "op": "norm", "over": "dp" } ])"));
  CHECK(listed.has(R"({ "set": "slices", "op": "reduce_scatter" })"));
  CHECK(listed.has(R"({ "set": "slices", "op": "reduce_scatter", "buffer": "own" })"));
  CHECK(listed.has(R"({ "set": "ranks", "op": "all_reduce", "over": "dp", "by": null })"));
  CHECK(listed.has(R"({ "set": "gather", "op": "all_reduce" })"));
  CHECK(listed.has(R"({ "set": "sum", "op": "all_gather", "reduce": null })"));
  CHECK(listed.has(R"({ "set": "norm", "over": null })"));
}

TEST_CASE("a factor counts over all ranks what it counts on its own") {
  const std::string steps =
      R"([ { "name": "micro_batches", "op": "each", "steps": [ { "name": "backward", "op": "backward", "by": "1 / tokens" },
           { "name": "counts", "op": "scale", "by": "tokens / tokens.mtp" } ] } ])";
  std::string text =
      scenario_text(R"({ "dp": 2 })", R"([ { "name": "w", "shape": [8], "uses": ["main", "mtp"] } ])", steps);
  const std::string batch = R"("tokens": "even")";
  text.replace(text.find(batch), batch.size(), R"("tokens": { "main": [[[[2]], [[1]]]], "mtp": [[[[1]], [[1]]]] })");
  const Listed listed(text);
  CHECK(
      listed.has(R"J({ "set": "counts", "by": "sum(tokens, dp, micro_batch) / sum(tokens.mtp, dp, micro_batch)" })J"));
  CHECK(listed.has(R"J({ "set": "backward", "by": "sum(tokens, dp, micro_batch) / tokens" })J"));
}

TEST_CASE("two steps of which one takes what the other leaves out become one") {
  const Scenario scenario = read_text(scenario_text(
      R"({ "dp": 2 })", R"([ { "name": "w", "shape": [8] }, { "name": "norm", "shape": [4], "tags": ["norm"] } ])",
      R"([ { "name": "micro_batches", "op": "each", "steps": [ { "name": "backward", "op": "backward" } ] },
           { "name": "rest", "op": "scale", "by": "1 / dp", "params": ["!tag:norm"] },
           { "name": "norms", "op": "scale", "by": 1, "params": ["tag:norm"] },
           { "name": "sum", "op": "all_reduce", "over": "dp" } ])"));
  const std::vector<diagnosis::Candidate> together = diagnosis::edits_together(scenario.schedule->steps, {});
  CHECK(contains(together, R"({ "set": "rest", "params": null }{ "drop": "norms" })"));
  CHECK_FALSE(contains(together, R"({ "set": "norms", "params": null }{ "drop": "rest" })"));
}
