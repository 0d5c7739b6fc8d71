// SPDX-License-Identifier: Apache-2.0
#include "src/diagnosis/any_sizes.h"

#include "tests/catch.h"
#include "tests/diagnosis/small.h"

using namespace lockstep;
using namespace lockstep::test;

namespace {

/// A mean over "any" dp of "any" number of micro-batches, with this in front of it.
CheckResult of_any(const std::string& step, const std::string& dp = R"("any")") {
  return check_text(R"({ "lockstep": 1, "layout": { "dp": )" + dp +
                    R"( }, "model": { "parameters": [ { "name": "weight", "shape": [8] } ] },
      "batch": { "micro_batches": "any", "tokens": "even" },
      "schedule": { "steps": [ { "name": "each", "op": "each", "steps": [ { "name": "backward", "op": "backward" } ] }, )" +
                    step + R"({ "name": "mean", "op": "all_reduce", "over": "dp", "reduce": "avg" } ] } })");
}

}  // namespace

TEST_CASE("with two of everything that is any a wrong file is shown as well") {
  // Nothing divides by the micro-batches: the smallest wrong layout has one rank.
  const CheckResult result = of_any("");
  REQUIRE(result.verdict == Verdict::mismatch);
  REQUIRE(result.written != nullptr);
  CHECK(result.scenario->layout.dp == 1);
  const std::unique_ptr<CheckResult> two = diagnosis::at_two_of_any(result);
  REQUIRE(two != nullptr);
  CHECK(two->verdict == Verdict::mismatch);
  CHECK(two->scenario->layout.dp == 2);
  CHECK(two->scenario->schedule->batch.micro_batch_counts == std::vector<int>{2});
  CHECK(two->scenario->name == result.scenario->name);
  CHECK(two->written == result.written);
  // Only what is any is two.
  const CheckResult three = of_any("", "3");
  const std::unique_ptr<CheckResult> there = diagnosis::at_two_of_any(three);
  REQUIRE(there != nullptr);
  CHECK(there->scenario->layout.dp == 3);
  CHECK(there->scenario->schedule->batch.micro_batch_counts == std::vector<int>{2});
}

TEST_CASE("where two of everything is right nothing is shown") {
  const CheckResult result = of_any(R"({ "name": "half", "op": "scale", "by": "1/2" }, )");
  REQUIRE(result.verdict == Verdict::mismatch);
  CHECK(diagnosis::at_two_of_any(result) == nullptr);
}
