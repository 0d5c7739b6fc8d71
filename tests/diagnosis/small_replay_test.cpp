// SPDX-License-Identifier: Apache-2.0
#include "src/diagnosis/small_replay.h"

#include "tests/catch.h"
#include "tests/diagnosis/small.h"

using namespace lockstep;
using namespace lockstep::test;

namespace {

/// On thousands of ranks, the parameter `a` with these steps behind its backward, and a right one.
std::string on_many_ranks(const std::string& steps, const std::string& layout = R"({ "dp": 4096 })") {
  return scenario_text(
      layout, R"([ { "name": "a", "shape": [8] }, { "name": "b", "shape": [8] } ])",
      R"([ { "name": "micro_batches", "op": "each", "steps": [ { "name": "backward", "op": "backward" } ] },
           { "name": "mean", "op": "all_reduce", "over": "dp", "reduce": "avg", "params": ["b"] }, )" +
          steps + " ]");
}

const std::string sum_of_a = R"({ "name": "sum", "op": "all_reduce", "over": "dp", "params": ["a"])";

}  // namespace

TEST_CASE("for a large layout a small one stands in which the same goes wrong") {
  const CheckResult large = check_text(on_many_ranks(sum_of_a + " }"));
  REQUIRE(large.verdict == Verdict::mismatch);
  REQUIRE(large.timeline == nullptr);
  const std::optional<CheckResult> small = diagnosis::small_replay(large);
  REQUIRE(small);
  CHECK(small->verdict == Verdict::mismatch);
  CHECK(small->scenario->layout.dp == 2);
  CHECK(small->timeline != nullptr);
  CHECK(symbolic_of(*small) != nullptr);
  CHECK(numbers_of(*small) == nullptr);
  CHECK(wrong_set(*small).parameters == std::vector<int>{0});
  CHECK(small->blame.empty());
  CHECK(small->divergences.empty());
}

TEST_CASE("nothing stands in for what was replayed, or goes wrong at no small sizes") {
  CHECK_FALSE(diagnosis::small_replay(check_text(two_ranks(R"({ "name": "sum", "op": "all_reduce", "over": "dp" })"))));
  // Right up to a hundred ranks.
  CheckOptions options;
  options.blame = false;
  const CheckResult late = check_text(
      on_many_ranks(sum_of_a + R"J( }, { "name": "late", "op": "scale", "by": "1 / min(dp, 100)", "params": ["a"] })J"),
      options);
  CHECK(late.verdict == Verdict::mismatch);
  CHECK_FALSE(diagnosis::small_replay(late));
}

TEST_CASE("what is right at two and three ranks stands where it goes wrong first") {
  const CheckResult late = check_text(
      on_many_ranks(sum_of_a + R"J( }, { "name": "late", "op": "scale", "by": "1 / min(dp, 3)", "params": ["a"] })J"));
  CHECK(late.verdict == Verdict::mismatch);
  REQUIRE(late.blame.size() == 1);
  CHECK(late.blame.front().step == "late");
  const std::optional<CheckResult> small = diagnosis::small_replay(late);
  REQUIRE(small);
  CHECK(small->scenario->layout.dp == 4);
}
