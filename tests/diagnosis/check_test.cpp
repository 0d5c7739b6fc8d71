// SPDX-License-Identifier: Apache-2.0
#include "tests/catch.h"
#include "tests/diagnosis/small.h"

using namespace lockstep;
using namespace lockstep::test;

TEST_CASE("a right schedule matches in both engines") {
  const CheckResult result =
      check_text(two_ranks(R"({ "name": "mean", "op": "all_reduce", "over": "dp", "reduce": "avg" })"));
  CHECK(result.verdict == Verdict::match);
  REQUIRE(symbolic_of(result) != nullptr);
  REQUIRE(numbers_of(result, "host") != nullptr);
  CHECK(symbolic_of(result)->match);
  CHECK(numbers_of(result)->match);
  CHECK(result.disagreement.empty());
  CHECK(result.blame.empty());
}

TEST_CASE("only the engines asked for run") {
  CheckOptions options;
  options.host = false;
  const CheckResult result = check_text(megatron_844(), options);
  CHECK(symbolic_of(result) != nullptr);
  CHECK(numbers_of(result) == nullptr);
  options.host = true;
  options.symbolic = false;
  const CheckResult host = check_text(megatron_844(), options);
  CHECK(symbolic_of(host) == nullptr);
  CHECK(host.verdict == Verdict::mismatch);
  CHECK(wrong_set(host).ranks == std::vector<int>{1, 2});
}

TEST_CASE("a wrong optimizer step wins over a deadlock in a later one") {
  const std::string text =
      R"({ "lockstep": 1, "layout": { "dp": 2 }, "model": { "parameters": [ { "name": "weight", "shape": [8] } ] },
    "batch": { "micro_batches": 1, "steps": 2, "tokens": "even" }, "schedule": { "steps": [
      { "name": "micro_batches", "op": "each", "steps": [ { "name": "backward", "op": "backward" } ] },
      { "name": "late", "op": "all_reduce", "over": "dp", "when": "step == 0 or rank.dp == 0" } ] } })";
  const CheckResult result = check_text(text);
  CHECK(result.timeline->outcome.kind == Outcome::Kind::deadlock);
  CHECK(result.verdict == Verdict::mismatch);  // the sum over two ranks of a mean's shares
  CHECK(result.step == 0);
}

TEST_CASE("of engines that find different steps wrong the earliest counts") {
  // The schedule is wrong from the second optimizer step on. In the model an all-reduce is missing, which the
  // transformer engine alone sees, in the first.
  const std::string text =
      R"({ "lockstep": 1, "layout": { "tp": 2, "dp": 2 }, "model": { "preset": "llama", "layers": 1, "hidden": 16, "heads": 4,
      "query_groups": 2, "ffn": 24, "vocab": 32, "edits": [ { "drop": "mlp.copy_to_tp" } ] },
    "batch": { "micro_batches": 1, "steps": 2 },
    "schedule": { "framework": "megatron", "options": { "calculate_per_token_loss": true }, "edits": [
      { "insert": { "name": "half", "op": "scale", "by": "1 / 2", "when": "step == 1" }, "after": "dp_all_reduce" } ] } })";
  const CheckResult result = check_text(text);
  REQUIRE(engine_of(result, "symbolic")->step == 1);
  REQUIRE(engine_of(result, "transformer")->step == 0);
  CHECK(result.verdict == Verdict::mismatch);
  CHECK(result.step == 0);
}

TEST_CASE("a deadlock after right steps is a deadlock, in its step") {
  const std::string text =
      R"({ "lockstep": 1, "layout": { "dp": 2 }, "model": { "parameters": [ { "name": "weight", "shape": [8] } ] },
    "batch": { "micro_batches": 1, "steps": 2, "tokens": "even" }, "schedule": { "steps": [
      { "name": "zero", "op": "zero" },
      { "name": "micro_batches", "op": "each", "steps": [ { "name": "backward", "op": "backward" } ] },
      { "name": "mean", "op": "all_reduce", "over": "dp", "reduce": "avg", "when": "step == 0 or rank.dp == 0" } ] } })";
  const CheckResult result = check_text(text);
  CHECK(result.verdict == Verdict::deadlock);
  CHECK(result.step == 1);
  CHECK(engine_of(result, "symbolic")->verdict == Verdict::deadlock);
}

TEST_CASE("an axis of any size is proved for all of them, and one layout is shown") {
  const auto with_step = [](const std::string& step) {
    return R"({ "lockstep": 1, "layout": { "dp": "any" }, "model": { "parameters": [ { "name": "weight", "shape": [8] } ] },
      "batch": { "micro_batches": 1, "tokens": "even" },
      "schedule": { "steps": [ { "name": "each", "op": "each", "steps": [ { "name": "backward", "op": "backward" } ] }, )" +
           step + " ] } }";
  };
  const CheckResult right =
      check_text(with_step(R"({ "name": "mean", "op": "all_reduce", "over": "dp", "reduce": "avg" })"));
  CHECK(right.verdict == Verdict::match);
  CHECK(right.scenario->layout.dp == 2);
  CHECK(right.notes == std::vector<std::string>{
                           "With any dp it is right for every size. Shown is a small layout that stands for all."});
  const CheckResult wrong = check_text(with_step(R"({ "name": "sum", "op": "all_reduce", "over": "dp" })"));
  CHECK(wrong.verdict == Verdict::mismatch);
  CHECK(wrong.notes == std::vector<std::string>{
                           "With any dp it is right only at dp = 1. Shown is the smallest layout that is wrong."});
  const std::string some = with_step(R"({ "name": "some", "op": "all_reduce", "over": "dp", "when": "rank.dp > 0" })");
  const CheckResult open = check_text(some);
  CHECK(open.verdict == Verdict::error);
  REQUIRE(open.errors.size() == 1);
  const Place& place = open.errors.front().place;
  CHECK(place.pointer.text() == "/layout/dp");
  CHECK(some.substr(place.begin, place.end - place.begin) == "\"any\"");
  CHECK(open.errors.front().message ==
        "the size \"any\" of the axis dp is not decided for dp ≥ 2: step \"some\": not all ranks of a group reach it "
        "with the same parameters; give a number");
}

TEST_CASE("any number of micro-batches is proved for all of them, and one is shown") {
  const auto text = [](const std::string& dp, const std::string& backward, const std::string& more) {
    return R"({ "lockstep": 1, "layout": { "dp": )" + dp +
           R"( }, "model": { "parameters": [ { "name": "weight", "shape": [8] } ] },
      "batch": { "micro_batches": "any", "tokens": "even" },
      "schedule": { "steps": [ { "name": "each", "op": "each", "steps": [ { "name": "backward", "op": "backward")" +
           backward + " }" + more +
           R"( ] }, { "name": "mean", "op": "all_reduce", "over": "dp", "reduce": "avg" } ] } })";
  };
  const std::string mean = R"(, "by": "1 / micro_batches")";
  const CheckResult right = check_text(text("3", mean, ""));
  CHECK(right.verdict == Verdict::match);
  CHECK(right.scenario->layout.dp == 3);
  CHECK(right.scenario->schedule->batch.micro_batch_counts == std::vector<int>{2});
  CHECK(right.notes ==
        std::vector<std::string>{
            "With any micro_batches it is right for every size. Shown is a small layout that stands for all."});
  const CheckResult wrong = check_text(text("3", "", ""));
  CHECK(wrong.verdict == Verdict::mismatch);
  CHECK(wrong.scenario->schedule->batch.micro_batch_counts == std::vector<int>{2});
  CHECK(wrong.notes ==
        std::vector<std::string>{"With any micro_batches it is right only at micro_batches = 1. Shown is the smallest "
                                 "layout that is wrong."});
  CHECK(check_text(text(R"("any")", mean, "")).notes ==
        std::vector<std::string>{
            "With any dp and micro_batches it is right for every size. Shown is a small layout that stands for all."});
  // What earlier micro-batches left is averaged again by each later one.
  const std::string regrown = R"(, { "name": "regrow", "op": "all_reduce", "over": "dp", "reduce": "avg" })";
  const CheckResult partly = check_text(text("2", "", R"(, { "name": "regrow", "op": "all_reduce", "over": "dp" })"));
  CHECK(partly.verdict == Verdict::mismatch);
  CHECK(
      partly.notes ==
      std::vector<std::string>{
          "With any micro_batches it is wrong for micro_batches = 1, of the sizes that could be followed. Shown is the "
          "smallest layout that is wrong."});
  const std::string some = text("2", mean, regrown);
  const CheckResult open = check_text(some);
  CHECK(open.verdict == Verdict::error);
  REQUIRE(open.errors.size() == 1);
  const Place& place = open.errors.front().place;
  CHECK(place.pointer.text() == "/batch/micro_batches");
  CHECK(some.substr(place.begin, place.end - place.begin) == "\"any\"");
  CHECK(open.errors.front().message ==
        "the number \"any\" of micro-batches is not decided for micro_batches ≥ 2: step \"regrow\": it acts in every "
        "micro-batch on what "
        "earlier ones have left; give a number");
}

TEST_CASE("a file that does not exist is the verdict error, not an exception") {
  const CheckResult result = check_file("no/such/file.json");
  CHECK(result.verdict == Verdict::error);
  CHECK_FALSE(result.errors.empty());
  CHECK(result.scenario == nullptr);
}

TEST_CASE("a mistake that shows only in the walk is the verdict error") {
  const CheckResult result = check_text(two_ranks(R"({ "name": "scale", "op": "scale", "by": "1 / rank.dp" })"));
  CHECK(result.verdict == Verdict::error);
  CHECK_FALSE(result.errors.empty());
  CHECK(symbolic_of(result) == nullptr);
}

TEST_CASE("stages without parameters are told, unless every stage has one") {
  const auto notes = [](const std::string& layout, const std::string& parameters) {
    CheckOptions options;
    options.host = options.blame = false;
    return check_text(
               scenario_text(layout, "[" + parameters + "]",
                             R"([ { "name": "m", "op": "each", "steps": [ { "name": "b", "op": "backward" } ] } ])"),
               options)
        .notes;
  };
  const std::string first = R"({ "name": "w", "shape": [4] })", last = R"({ "name": "v", "shape": [4], "stage": -1 })";
  CHECK(notes(R"({ "pp": 2 })", first) ==
        std::vector<std::string>{
            "No parameter is on pipeline stage 1; \"stage\" is 0 where a parameter does not say it."});
  CHECK(notes(R"({ "pp": 4 })", first + ", " + last) ==
        std::vector<std::string>{
            "No parameter is on pipeline stages 1, 2; \"stage\" is 0 where a parameter does not say it."});
  CHECK(notes(R"({ "pp": 2 })", first + ", " + last).empty());
  CHECK(notes(R"({ "pp": 3 })", R"({ "name": "w", "shape": [4], "stage": "all" })").empty());
}

TEST_CASE("the ranks of a large layout are replayed beside where that costs little, and find the same") {
  for (const auto& [step, verdict] :
       {std::pair(mean_step, Verdict::match),
        std::pair(std::string(R"({ "name": "sum", "op": "all_reduce", "over": "dp" })"), Verdict::mismatch)}) {
    std::string text = two_ranks(step);
    const std::string layout = R"({ "dp": 2 })";
    text.replace(text.find(layout), layout.size(), R"({ "dp": 3000 })");
    CheckOptions options;
    options.blame = false;
    const CheckResult result = check_text(text, options);
    CHECK(result.verdict == verdict);
    CHECK(result.timeline == nullptr);
    CHECK(result.disagreement.empty());
    CHECK(engine_of(result, "host")->left_out.find("symbolic replayed every rank too") != std::string::npos);
  }
}

TEST_CASE("a mistake of the layout is shown there, and at the file where it has none") {
  const auto place = [](const std::string& text) {
    CheckOptions options;
    options.symbolic = options.host = false;
    options.parametric = true;
    const CheckResult result = check_text(text, options);
    REQUIRE(result.errors.size() == 1);
    return text.substr(result.errors.front().place.begin,
                       result.errors.front().place.end - result.errors.front().place.begin);
  };
  const std::string steps =
      R"({ "name": "some", "op": "reduce_scatter_v", "over": "dp", "geometry": { "kind": "counts", "counts": [1, 3] } })";
  CHECK(place(two_ranks(steps)) == R"({ "dp": 2 })");
}
