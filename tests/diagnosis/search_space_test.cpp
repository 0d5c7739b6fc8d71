// SPDX-License-Identifier: Apache-2.0
#include "src/diagnosis/search_space.h"

#include <algorithm>

#include "src/diagnosis/shrink.h"
#include "src/diagnosis/verify_repair.h"
#include "tests/catch.h"
#include "tests/diagnosis/small.h"

using namespace lockstep;
using namespace lockstep::test;
using diagnosis::Candidate;
using diagnosis::OracleAnswer;
using diagnosis::SearchSpace;

namespace {

/// Three parameters, of which the steps behind the backward get wrong what they get wrong.
std::string three_parameters(const std::string& steps, const std::string& layout = R"({ "dp": 2 })") {
  return scenario_text(
      layout,
      R"([ { "name": "a", "shape": [4] }, { "name": "b", "shape": [6] }, { "name": "c", "shape": [8], "frozen": true },
           { "name": "d", "shape": [10] } ])",
      R"([ { "name": "micro_batches", "op": "each", "steps": [ { "name": "backward", "op": "backward" } ] }, )" +
          steps + " ]");
}

/// A parameter on both ends and another one, with these steps behind the sum over the ends.
std::string tied_ends(const std::string& steps) {
  return scenario_text(
      R"({ "pp": 2 })",
      R"([ { "name": "in", "shape": [4], "stage": 0, "tied": "t" }, { "name": "out", "shape": [4], "stage": 1, "tied": "t" },
           { "name": "other", "shape": [4], "stage": 0 } ])",
      R"([ { "name": "micro_batches", "op": "each", "steps": [ { "name": "backward", "op": "backward" } ] },
           { "name": "sum", "op": "all_reduce", "over": { "pp": ["first", "last"] }, "params": ["tied:t"] }, )" +
          steps + " ]");
}

/// The mean of what these selectors choose alone.
std::string mean_of(const std::string& params) {
  return R"({ "name": "mean", "op": "all_reduce", "over": "dp", "reduce": "avg", "params": )" + params + " }";
}

/// A search at the sizes of the file itself.
struct Space {
  explicit Space(const std::string& text) : result(check_text(text)), space(result, {}) { REQUIRE(space.found()); }

  /// What comes of the steps with an edit.
  OracleAnswer with(const Edit& edit) {
    std::optional<std::vector<Step>> steps = space.steps().edited({edit});
    REQUIRE(steps);
    return space.answer(*steps);
  }

  OracleAnswer of_steps() {
    std::vector<Step> steps = space.steps().steps();
    return space.answer(steps);
  }

  CheckResult result;
  SearchSpace space;
};

Candidate of(Candidate::Kind kind, const std::string& step, const Edit& edit) {
  Candidate candidate;
  candidate.kind = kind;
  candidate.step = step;
  candidate.edit = edit;
  return candidate;
}

Edit params_of(const std::string& step, const std::vector<std::string>& items) {
  Step values;
  values.params = Selectors(items);
  values.keys = {"params"};
  return Edit::set(step, values);
}

/// A scale of these parameters, of all for none.
Edit scale_of(const std::vector<std::string>& items) {
  Step values;
  values.name = "new";
  values.op = Op::scale;
  values.by = Expression::parse("2");
  values.params = Selectors(items);
  values.keys = {"name", "op", "by", "params"};
  return Edit::insert(values, "micro_batches", true);
}

std::vector<std::string> words(const std::vector<diagnosis::Product>& products) {
  std::vector<std::string> list;
  for (const diagnosis::Product& product : products) list.push_back(product.to_string());
  return list;
}

}  // namespace

TEST_CASE("nothing is searched where nothing goes wrong") {
  const CheckResult right = check_text(three_parameters(mean_step));
  CHECK_FALSE(SearchSpace(right, {}).found());
  const CheckResult wrong = check_text(three_parameters(mean_of(R"(["a"])")));
  CHECK(SearchSpace(wrong, {}).found());
  CHECK_FALSE(SearchSpace(wrong, diagnosis::SmallLayout{diagnosis::FileSizes{{{"dp", 1}}, 0}, nullptr}).found());
}

TEST_CASE("an edit is better where less is wrong, and nothing that was right") {
  // The shares of the two ends are averaged, and one of them is doubled behind that.
  for (const char* wrong : {"in", "out"}) {
    INFO(wrong);
    Space space(
        tied_ends(R"({ "name": "twice", "op": "scale", "by": "2", "params": [")" + std::string(wrong) + "\"]}"));
    OracleAnswer now = space.of_steps();
    REQUIRE(now.state == OracleAnswer::State::wrong);
    REQUIRE(std::count(now.wrong_buffers.begin(), now.wrong_buffers.end(), 0) == 1);
    CHECK_FALSE(space.space.is_better(now));
    now.distance -= 1;
    CHECK(space.space.is_better(now));
    *std::find(now.wrong_buffers.begin(), now.wrong_buffers.end(), 0) = 1;
    CHECK_FALSE(space.space.is_better(now));
    // Of all parameters nothing can be said beside what is known of a few.
    OracleAnswer other = space.of_steps();
    other.distance = 0;
    other.wrong_buffers.push_back(0);
    CHECK_FALSE(space.space.is_better(other));
  }
}

TEST_CASE("what goes wrong with all parameters alone is held against all of them, the first one too") {
  // With the tied ones alone the buckets of both stages are cut alike.
  std::string text = megatron_844();
  const std::string word = R"({ "name": "word", "shape": [150], "stage": 0, "tied": "embedding" },)";
  const std::string layer = R"({ "name": "layers.0.weight", "shape": [70], "stage": 0 },)";
  const std::size_t at_word = text.find(word), at_layer = text.find(layer);
  REQUIRE((at_word != std::string::npos && at_layer != std::string::npos));
  text.replace(at_layer, layer.size(), word);
  text.replace(at_word, word.size(), layer);
  Space space(text);
  OracleAnswer now = space.of_steps();
  REQUIRE(now.state == OracleAnswer::State::wrong);
  REQUIRE(now.wrong_buffers.size() == 5);
  REQUIRE((now.wrong_buffers[0] == 0 && now.wrong_buffers[1] > 0));
  now.distance -= 1;
  CHECK(space.space.is_better(now));
  now.wrong_buffers[0] = 1;
  CHECK_FALSE(space.space.is_better(now));
}

TEST_CASE("whatever a schedule that stops does instead is better") {
  Space space(
      two_ranks(R"({ "name": "mean", "op": "all_reduce", "over": "dp", "reduce": "avg", "when": "rank.dp == 0" })"));
  REQUIRE(space.space.base().state == OracleAnswer::State::failed);
  const OracleAnswer dropped = space.with(Edit::drop("mean"));
  CHECK(dropped.state == OracleAnswer::State::wrong);
  CHECK(space.space.is_better(dropped));
}

TEST_CASE("an edit matters where it acts on what is wrong, before or after") {
  // b is wrong, and it alone.
  const Space space(three_parameters(mean_of(R"(["a", "d"])") + R"(, { "name": "one", "op": "scale", "by": "1" })"));
  const std::vector<diagnosis::ListedStep> steps = diagnosis::listed_steps(space.space.steps().steps());
  const auto matters = [&](const std::string& step, const Edit& edit) {
    return space.space.is_relevant(of(Candidate::Kind::drop, step, edit), steps);
  };
  CHECK_FALSE(matters("mean", Edit::drop("mean")));
  CHECK(matters("one", Edit::drop("one")));
  CHECK(matters("micro_batches", Edit::drop("micro_batches")));
  CHECK(matters("backward", Edit::duplicate("backward")));
  CHECK(matters("mean", params_of("mean", {"b"})));
  CHECK_FALSE(matters("mean", params_of("mean", {"a"})));
  CHECK(matters("new", scale_of({"b"})));
  CHECK(matters("new", scale_of({})));
  CHECK_FALSE(matters("new", scale_of({"a", "d"})));
  // Of a step that is no more nobody knows what it acts on.
  CHECK(matters("gone", Edit::drop("gone")));
}

TEST_CASE("an edit touches what is right where anything changes for it") {
  const Space space(three_parameters(mean_of(R"(["a", "d"])") + R"(, { "name": "one", "op": "scale", "by": "1" })"));
  const auto touches = [&](const std::string& step, const Edit& edit) {
    return space.space.touches_right({of(Candidate::Kind::drop, step, edit)});
  };
  CHECK(touches("mean", Edit::drop("mean")));
  CHECK(touches("one", Edit::drop("one")));
  // Only the selectors change, so that it is the same for whom both choose.
  CHECK_FALSE(touches("mean", params_of("mean", {"a", "b", "d"})));
  CHECK(touches("mean", params_of("mean", {"a", "b"})));
  CHECK(touches("mean", params_of("mean", {"b", "d"})));
  // With another key it is another step for all of them.
  Edit more = params_of("mean", {"a", "b", "d"});
  more.removed = {"reduce"};
  CHECK(touches("mean", more));
  CHECK_FALSE(touches("new", scale_of({"b"})));
  CHECK_FALSE(touches("new", scale_of({"b", "c"})));  // frozen: it has no gradient
  CHECK(touches("new", scale_of({"a"})));
  CHECK(touches("new", scale_of({"d"})));
  CHECK(touches("new", scale_of({})));
}

TEST_CASE("a parameter that is tied to a wrong one is wrong, too") {
  const Space space(tied_ends(R"({ "name": "half", "op": "scale", "by": "1/2", "params": ["in"] })"));
  const auto touches = [&](const std::string& name) {
    return space.space.touches_right({of(Candidate::Kind::insert, "new", scale_of({name}))});
  };
  CHECK_FALSE(touches("in"));
  CHECK_FALSE(touches("out"));
  CHECK(touches("other"));
}

TEST_CASE("only sizes that explain by how much something is wrong are tried") {
  const std::string layout = R"({ "dp": 3, "tp": 2 })";
  const auto sizes = [&](const std::string& steps) {
    return words(Space(three_parameters(steps, layout)).space.values().sizes);
  };
  const auto has = [](const std::vector<std::string>& list, const std::string& word) {
    return std::find(list.begin(), list.end(), word) != list.end();
  };
  const std::vector<std::string> thrice = sizes(R"({ "name": "sum", "op": "all_reduce", "over": "dp" })");
  CHECK((has(thrice, "dp") && !has(thrice, "tp")));
  const std::vector<std::string> half = sizes(mean_step + R"(, { "name": "half", "op": "scale", "by": "1/2" })");
  CHECK((has(half, "tp") && !has(half, "dp")));
  // What weighs differently can be off by anything.
  const std::vector<std::string> any = sizes(R"({ "name": "own", "op": "scale", "by": "3 - rank.dp" }, )" + mean_step);
  CHECK((has(any, "tp") && has(any, "dp")));
  // What no size explains may be tokens.
  const Space odd(three_parameters(mean_step + R"(, { "name": "odd", "op": "scale", "by": "5/7" })", layout));
  CHECK(odd.space.values().sizes.empty());
  CHECK_FALSE(odd.space.values().token_totals.empty());
  CHECK(Space(three_parameters(R"({ "name": "sum", "op": "all_reduce", "over": "dp" })", layout))
            .space.values()
            .token_totals.empty());
}

TEST_CASE("the steps without the edits of a file are known where it has edits") {
  const std::string edits = R"( ], "edits": [ { "drop": "mean" } )";
  const Space edited(three_parameters(mean_step + edits));
  const std::optional<std::vector<Step>> unedited = edited.space.unedited_steps();
  REQUIRE(unedited);
  CHECK(unedited->size() == 2);
  CHECK(unedited->back().name == "mean");
  CHECK_FALSE(Space(three_parameters(mean_of(R"(["a"])"))).space.unedited_steps());
}

TEST_CASE("a framework's step that an edit drops is known as it is at every size, not by its number at the small one") {
  const CheckResult result = check_text(R"({ "lockstep": 1, "layout": { "dp": 8 },
    "model": { "parameters": [ { "name": "w", "shape": [16] } ] }, "batch": { "micro_batches": 2 },
    "schedule": { "framework": "deepspeed", "options": { "zero_stage": 0 }, "edits": [ { "drop": "dp_scale" } ] } })");
  const diagnosis::RepairSearch search = diagnosis::find_repairs(result);
  const auto restores = [](const diagnosis::FoundRepair& repair) {
    return repair.edits.front().kind == diagnosis::Candidate::Kind::restore;
  };
  const auto restored = std::find_if(search.repairs.begin(), search.repairs.end(), restores);
  REQUIRE(restored != search.repairs.end());
  const std::vector<Repair> best = diagnosis::best_repairs(result, search, 3);
  CHECK(best.front().steps == std::vector<std::string>{"dp_scale"});
  CHECK(best.front().reach == Repair::Reach::axes_in_play);
}

TEST_CASE("a layout with fewer buffers allows more schedules to be tried, within bounds") {
  const int small = Space(three_parameters(mean_of(R"(["a"])"))).space.most_tried();
  const int large = Space(three_parameters(mean_of(R"(["a"])"), R"({ "dp": 512 })")).space.most_tried();
  CHECK(small == 12000);
  CHECK(large < small);
  CHECK(large >= 100);
}
