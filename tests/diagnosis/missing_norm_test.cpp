// SPDX-License-Identifier: Apache-2.0
// A clip without the norm that it needs, or without a part of it.
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
