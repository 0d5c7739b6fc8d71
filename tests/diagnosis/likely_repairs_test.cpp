// SPDX-License-Identifier: Apache-2.0
// Which of the repairs that make everything right comes first.
#include <algorithm>

#include "src/diagnosis/repair_order.h"
#include "src/diagnosis/verify_repair.h"
#include "tests/catch.h"
#include "tests/diagnosis/small.h"

using namespace lockstep;
using namespace lockstep::test;

namespace {

std::string all_edits(const diagnosis::FoundRepair& repair) {
  std::string text;
  for (const diagnosis::Candidate& edit : repair.edits) text += one_line(to_json(edit.edit));
  return text;
}

/// Of the repairs of a scenario; the best, or the one that says this.
diagnosis::FoundRepair repair_of(const std::string& text, const std::string& edits = "") {
  const diagnosis::RepairSearch search = diagnosis::find_repairs(check_text(text));
  const auto found = std::find_if(search.repairs.begin(), search.repairs.end(),
                                  [&](const auto& repair) { return edits.empty() || all_edits(repair) == edits; });
  REQUIRE(found != search.repairs.end());
  return *found;
}

std::string first_edits(const std::string& text) { return all_edits(repair_of(text)); }

std::vector<std::string> all_of_them(const std::string& text) {
  std::vector<std::string> list;
  for (const diagnosis::FoundRepair& repair : diagnosis::find_repairs(check_text(text)).repairs)
    list.push_back(all_edits(repair));
  return list;
}

const std::string backward_alone =
    R"({ "name": "micro_batches", "op": "each", "steps": [ { "name": "backward", "op": "backward" } ] }, )";

/// Two data-parallel ranks with parameters v and w.
std::string two_parameters(const std::string& steps, const std::string& edits = "") {
  return scenario_text(R"({ "dp": 2 })", R"([ { "name": "v", "shape": [6] }, { "name": "w", "shape": [8] } ])",
                       "[ " + backward_alone + steps + " ]" + (edits.empty() ? "" : ", \"edits\": [ " + edits + " ]"));
}

/// A loss of its own for w, in a buffer of its own, and what is done to that.
std::string own_buffer(const std::string& steps) {
  return scenario_text(
      R"({ "dp": 2 })", R"([ { "name": "v", "shape": [6] }, { "name": "w", "shape": [8], "uses": ["aux"] } ])",
      R"([ { "name": "micro_batches", "op": "each", "steps": [
                            { "name": "clear", "op": "zero", "buffer": "aux" },
                            { "name": "backward", "op": "backward", "uses": ["main"] },
                            { "name": "backward_aux", "op": "backward", "uses": ["aux"], "buffer": "aux" }, )" +
          steps + R"(, { "name": "add", "op": "accumulate", "from": "aux", "to": "grad" } ] }, )" + mean_step + " ]");
}

}  // namespace

TEST_CASE("what the file had before its edits comes before what is right at more sizes") {
  const std::string sum = R"(, { "name": "sum", "op": "all_reduce", "over": "dp" })";
  const std::string half = R"({ "name": "half", "op": "scale", "by": "1/2" })";
  CHECK(first_edits(two_parameters(half + sum, R"({ "set": "half", "by": 1 })")) ==
        R"({ "set": "half", "by": "1/2" })");
  // A step that it added is gone.
  CHECK(first_edits(two_parameters(mean_step, R"({ "insert": )" + half + R"(, "after": "micro_batches" })")) ==
        R"({ "drop": "half" })");
  // But what is asynchronous is waited for.
  const std::string norm = R"(, { "name": "norm", "op": "norm" })";
  CHECK(first_edits(two_parameters(mean_step + norm, R"({ "set": "mean", "async": true })")).find("\"wait\"") !=
        std::string::npos);
  const CheckResult result = check_text(two_parameters(half + sum, R"({ "set": "half", "by": 1 })"));
  CHECK(diagnosis::best_repairs(result, diagnosis::find_repairs(result), 3).front().steps ==
        std::vector<std::string>{"half"});
  CHECK(result.blame.front().step == "half");
}

TEST_CASE("what the file changed in several steps is taken back at once where no part of it is enough") {
  const std::string steps =
      R"({ "name": "vs", "op": "all_reduce", "over": "dp", "params": ["v"], "reduce": "avg" },
         { "name": "ws", "op": "all_reduce", "over": "dp", "params": ["w"], "reduce": "avg" })";
  const diagnosis::FoundRepair alike =
      repair_of(two_parameters(steps, R"({ "set": "vs", "reduce": "sum" }, { "set": "ws", "reduce": "sum" })"));
  CHECK(alike.count() == 1);
  CHECK(alike.edits.size() == 2);
  const diagnosis::FoundRepair all =
      repair_of(two_parameters(steps, R"({ "set": "vs", "reduce": "sum" }, { "drop": "ws" },
                               { "insert": { "name": "third", "op": "scale", "by": "1/3" }, "after": "vs" })"));
  CHECK(all.count() == 1);
  CHECK(all.edits.size() == 3);
  CHECK(diagnosis::is_restored(all));
}

TEST_CASE("of slices that a reduction leaves and slices that a step claims, the claim goes") {
  const std::string scatter =
      R"({ "name": "mean", "op": "reduce_scatter", "over": ["dp", "cp"], "reduce": "avg", "geometry": { "kind": "flat" } }, )";
  CHECK(first_edits(two_parameters(
            scatter + R"({ "name": "slices", "op": "own", "over": "dp", "geometry": { "kind": "bucket" } })")) ==
        R"({ "drop": "slices" })");
  // All of it is asked for, and has to be gathered: over the groups of the reduction.
  const std::string whole = two_parameters(scatter + R"({ "name": "whole", "op": "own", "over": [] })");
  CHECK(first_edits(whole) != R"({ "drop": "whole" })");
  CHECK(diagnosis::is_strange(repair_of(whole, R"({ "drop": "whole" })")));
  const std::vector<std::string> list = all_of_them(whole);
  CHECK(std::any_of(list.begin(), list.end(), [](const std::string& edits) {
    return edits.starts_with(R"({ "insert": { "name": "dp_all_gather", "op": "all_gather", "over": ["dp", "cp"] })");
  }));
  // Counts are what ranks hold; what says them once more goes with the edit.
  const std::string counts = R"({ "kind": "counts", "counts": [6, 2] })";
  CHECK(first_edits(scenario_text(R"({ "dp": 2 })", R"([ { "name": "w", "shape": [8] } ])",
                                  "[ " + backward_alone +
                                      R"({ "name": "mean", "op": "reduce_scatter_v", "over": "dp", "reduce": "avg" },
                   { "name": "held", "op": "own", "over": "dp", "geometry": )" +
                                      counts + " } ]")) ==
        R"({ "set": "mean", "geometry": )" + counts + R"( }{ "drop": "held" })");
}

TEST_CASE("a repair that goes around a step, which then does nothing, stands behind the one that takes it away") {
  const std::string text = own_buffer(R"({ "name": "again", "op": "scale", "by": "1 / dp", "buffer": "aux" })");
  const diagnosis::FoundRepair best = repair_of(text);
  CHECK(all_edits(best) == R"({ "drop": "again" })");
  CHECK_FALSE(best.leaves_idle);
  CHECK_FALSE(best.touches_right);  // nothing of v is in that buffer
  CHECK(repair_of(text, R"({ "set": "backward_aux", "buffer": "grad" })").leaves_idle);
  CHECK(check_text(text).blame.front().step == "again");
  // Neither is a loop left empty.
  const std::string late = scenario_text(
      R"({ "dp": 2 })", R"([ { "name": "v", "shape": [6] }, { "name": "w", "shape": [8], "uses": ["aux"] } ])",
      R"([ { "name": "micro_batches", "op": "each", "steps": [ { "name": "backward", "op": "backward", "uses": ["main"] } ] }, )" +
          mean_step +
          R"(, { "name": "deferred", "op": "each", "steps": [ { "name": "backward_late", "op": "backward", "uses": ["aux"] } ] } ])");
  CHECK(repair_of(late, R"({ "move": "backward_late", "after": "backward" })").leaves_idle);
  CHECK(check_text(late).blame.front().step == "mean");
}

TEST_CASE("what ranks meet in is joined by all of them rather than dropped") {
  CHECK(first_edits(two_parameters(
            R"({ "name": "tokens", "op": "all_to_all", "over": "dp", "when": "rank.dp == 0" }, )" + mean_step)) ==
        R"({ "set": "tokens", "when": null })");
}

TEST_CASE("a factor counts tokens as the loss does") {
  const auto with_tokens = [](const std::string& backward, const std::string& batch) {
    std::string text = two_parameters(mean_step);
    const std::string old_batch = R"("micro_batches": 1, "tokens": "even")";
    text.replace(text.find(old_batch), old_batch.size(), batch);
    const std::string old = R"("op": "backward")";
    return text.replace(text.find(old), old.size(), old + R"(, "by": ")" + backward + "\"");
  };
  // Both ranks have nine tokens, so that less would do.
  CHECK(first_edits(with_tokens("1", R"("micro_batches": 2, "tokens": [ [[[3]], [[5]]], [[[6]], [[4]]] ])")) ==
        R"J({ "set": "backward", "by": "dp / sum(tokens, dp, micro_batch)" })J");
}

TEST_CASE("the step that acts on what is wrong is changed, and not another one") {
  CHECK(first_edits(two_parameters(R"({ "name": "half", "op": "scale", "by": "1 / dp" },
                                      { "name": "vs", "op": "all_reduce", "over": "dp", "params": ["v"] },
                                      { "name": "sum_of_w", "op": "all_reduce", "over": "cp", "params": ["w"] })")) ==
        R"({ "set": "sum_of_w", "over": "dp" })");
}

TEST_CASE("a sum that is added stands behind the other sums, and before slices and norms") {
  const auto place = [](const std::string& steps) {
    const std::string text =
        scenario_text(R"({ "tp": 2, "dp": 2 })", R"([ { "name": "norm", "shape": [4], "partial": ["tp"] } ])",
                      "[ " + backward_alone + steps + " ]");
    return repair_of(text).edits.front().edit.beside.name;
  };
  CHECK(place(mean_step + R"(, { "name": "norms", "op": "norm", "count": "rank.tp == 0", "over": "tp" })") == "mean");
  CHECK(place(R"({ "name": "mean", "op": "reduce_scatter", "over": "dp", "reduce": "avg" })") != "mean");
}

TEST_CASE(
    "blame names what leaves something out with the scale that goes with it, and no backward for what is missing") {
  const CheckResult copied = check_text(two_parameters(
      R"({ "name": "copy", "op": "copy", "from": "grad", "to": "low" },
         { "name": "half", "op": "scale", "by": "1/2", "buffer": "low" },
         { "name": "sum", "op": "all_reduce", "over": "dp", "buffer": "low" })"));
  REQUIRE(copied.blame.size() == 2);
  CHECK(copied.blame[0].step == "sum");
  CHECK(copied.blame[1].step == "half");
  CHECK(copied.blame[1].why == "goes with sum");
  std::string text = two_parameters(R"({ "name": "clear", "op": "zero", "buffer": "other" })");
  const std::string batch = R"("micro_batches": 1, "tokens": "even")", backward = R"("op": "backward" })";
  text.replace(text.find(batch), batch.size(), R"("micro_batches": 2, "tokens": "even")");
  text.replace(text.find(backward), backward.size(),
               R"("op": "backward" }, { "name": "half", "op": "scale", "by": "1 / dp" })");
  CHECK(check_text(text).blame.front().step.starts_with("dp_"));
}

TEST_CASE("the one backward of a parameter is not what comes too late") {
  std::string text = scenario_text(R"({ "dp": 2 })", R"([ { "name": "w", "shape": [8] } ])",
                                   R"([ { "name": "micro_batches", "op": "each", "steps": [
           { "name": "sum", "op": "all_reduce", "over": "dp", "when": "micro_batch == last" },
           { "name": "half", "op": "scale", "by": "1/2", "when": "micro_batch == last" },
           { "name": "backward", "op": "backward" } ] } ])");
  const std::string batch = R"("micro_batches": 1, "tokens": "even")";
  text.replace(text.find(batch), batch.size(), R"("micro_batches": 4, "tokens": "even")");
  const CheckResult result = check_text(text);
  REQUIRE(!result.blame.empty());
  CHECK(result.blame.front().step == "sum");
}
