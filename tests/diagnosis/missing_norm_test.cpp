// SPDX-License-Identifier: Apache-2.0
// A clip without the norm that it needs, or without a part of it; a norm that counts what every rank has on each.
#include "src/diagnosis/repairs.h"
#include "src/diagnosis/verify_repair.h"
#include "tests/catch.h"
#include "tests/diagnosis/small.h"

using namespace lockstep;
using namespace lockstep::test;

namespace {

/// The first repair, an edit a line.
std::string first(const std::string& text) {
  const CheckResult result = check_text(text);
  REQUIRE(result.verdict == Verdict::mismatch);
  const std::vector<Repair> repairs = diagnosis::best_repairs(result, diagnosis::find_repairs(result), 1);
  std::string lines;
  if (repairs.empty()) return lines;
  CHECK(repairs.front().keeps_norms == true);
  for (const Edit& edit : repairs.front().edits) lines += one_line(to_json(edit)) + "\n";
  return lines;
}

std::string sharded(const std::string& norms) {
  return scenario_text(
      R"({ "dp": 2, "tp": 2 })", R"([ { "name": "up.weight", "shape": [8], "shard": { "tp": 0 } },
                         { "name": "norm.weight", "shape": [4] } ])",
      R"([ { "name": "micro_batches", "op": "each", "steps": [ { "name": "backward", "op": "backward" } ] },
                         { "name": "mean", "op": "reduce_scatter", "over": "dp", "reduce": "avg" },)" +
          norms + R"({ "name": "clip", "op": "clip" } ])");
}

}  // namespace

TEST_CASE("a clip that no norm stands before gets one, over the ranks that share the gradient") {
  const std::string clip = R"(, { "name": "clip", "op": "clip" })";
  CHECK(first(two_ranks(mean_step + clip)) ==
        "{ \"insert\": { \"name\": \"norm\", \"op\": \"norm\" }, \"before\": \"clip\" }\n");
  CHECK(first(two_ranks(R"({ "name": "mean", "op": "reduce_scatter", "over": "dp", "reduce": "avg" })" + clip)) ==
        "{ \"insert\": { \"name\": \"norm\", \"op\": \"norm\", \"over\": \"dp\" }, \"before\": \"clip\" }\n");
}

TEST_CASE("what is sharded and what every rank has are counted in two norms, or in the one that is missing") {
  const std::string
      of_shards = R"({ "name": "n", "op": "norm", "params": ["shard:tp"], "over": ["tp", "dp"] },)",
      of_whole =
          R"({ "name": "w", "op": "norm", "params": ["!shard:tp"], "over": ["tp", "dp"], "count": "rank.tp == 0" },)";
  CHECK(check_text(sharded(of_shards + of_whole)).verdict == Verdict::match);
  const std::string both = first(sharded(""));
  CHECK(both.find(R"("params": ["shard:tp"], "over": ["tp", "dp"])") != std::string::npos);
  CHECK(both.find(R"("params": ["!shard:tp"], "over": ["tp", "dp"], "count": "rank.tp == 0")") != std::string::npos);
  const std::string whole = first(sharded(of_shards));
  CHECK(whole.find(R"("count": "rank.tp == 0")") != std::string::npos);
  CHECK(whole.find(R"("before": "clip")") != std::string::npos);
}

TEST_CASE("of a norm over replicas the part that every rank has is counted on one of them") {
  const std::string split =
      R"({ "set": "gn", "params": ["shard:tp"] })"
      "\n"
      R"({ "insert": { "name": "gn_replicated", "op": "norm", "over": ["tp", "dp"], "params": ["!shard:tp"], "count": "rank.tp == 0" }, "after": "gn" })"
      "\n";
  CHECK(first(sharded(R"({ "name": "gn", "op": "norm", "over": ["tp", "dp"] },)")) == split);
  // What it leaves out stays left out.
  const std::string without = first(scenario_text(
      R"({ "dp": 2, "tp": 2 })",
      R"([ { "name": "up.weight", "shape": [8], "shard": { "tp": 0 } }, { "name": "norm.weight", "shape": [4] },
           { "name": "position", "shape": [4] } ])",
      R"([ { "name": "micro_batches", "op": "each", "steps": [ { "name": "backward", "op": "backward" } ] },
           { "name": "mean", "op": "all_reduce", "over": "dp", "reduce": "avg" },
           { "name": "gn", "op": "norm", "over": "tp", "params": ["!position"] },
           { "name": "gn_of_position", "op": "norm", "params": ["position"] } ])"));
  CHECK(without.find(R"("params": ["!position", "shard:tp"])") != std::string::npos);
  CHECK(without.find(R"("params": ["!position", "!shard:tp"])") != std::string::npos);
}

TEST_CASE("a wrong value and a wrong norm of one parameter are two faults, and both are named") {
  const std::string text = scenario_text(
      R"({ "dp": 2, "tp": 2 })",
      R"([ { "name": "up.weight", "shape": [8], "shard": { "tp": 0 } }, { "name": "norm.weight", "shape": [4] } ])",
      R"([ { "name": "micro_batches", "op": "each", "steps": [ { "name": "backward", "op": "backward" } ] },
           { "name": "sum", "op": "all_reduce", "over": "dp" }, { "name": "gn", "op": "norm", "over": "tp" } ])");
  const std::string both = first(text);
  CHECK(both.starts_with(R"({ "set": "sum", "reduce": "avg" })"));
  CHECK(both.find(R"({ "set": "gn", "params": ["shard:tp"] })") != std::string::npos);
  const CheckResult result = check_text(text, CheckOptions());
  REQUIRE(result.blame.size() == 2);
  CHECK(result.blame.front().step == "sum");
  CHECK(result.blame.back().step == "gn");
  CHECK(
      result.blame.back().why ==
      "acts on all parameters and should act on shard:tp; rank 0 counts norm.weight in the norm 2 times instead of 1");
}

TEST_CASE("nothing is reduced or scaled before the first backward, however a repair would come of that") {
  // To reduce what is still 0 would leave half of the ranks without what the norm counts twice.
  const CheckResult result = check_text(scenario_text(
      R"({ "dp": 2, "tp": 2 })",
      R"([ { "name": "up.weight", "shape": [8], "shard": { "tp": 0 } }, { "name": "norm.weight", "shape": [4] } ])",
      R"([ { "name": "micro_batches", "op": "each", "steps": [ { "name": "backward", "op": "backward" } ] },
           { "name": "mean", "op": "all_reduce", "over": "dp", "reduce": "avg" },
           { "name": "gn", "op": "norm", "over": "tp" } ])"));
  const diagnosis::RepairSearch search = diagnosis::find_repairs(result);
  REQUIRE(!search.repairs.empty());
  for (const diagnosis::FoundRepair& repair : search.repairs) {
    for (const diagnosis::Candidate& edit : repair.edits)
      CHECK_FALSE((edit.edit.beside.name == "micro_batches" && !edit.edit.after));
  }
}
