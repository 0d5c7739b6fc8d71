// SPDX-License-Identifier: Apache-2.0
#include "src/diagnosis/any_sizes.h"

#include <set>

#include "src/diagnosis/verify_repair.h"
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

TEST_CASE("where nothing is proved a repair is wrong for what a file asks, and not for other sizes") {
  // With a clip, which no proof follows.
  const auto stands = [](const std::string& dp, const std::string& micro_batches, const std::set<std::string>& wrong) {
    const CheckResult result = check_text(
        R"({ "lockstep": 1, "layout": { "dp": )" + dp +
        R"( }, "model": { "parameters": [ { "name": "weight", "shape": [8] } ] }, "batch": { "micro_batches": )" +
        micro_batches + R"(, "loss": "sum" }, "schedule": { "steps": [
        { "name": "each", "op": "each", "steps": [ { "name": "backward", "op": "backward" } ] },
        { "name": "sum", "op": "all_reduce", "over": "dp" }, { "name": "double", "op": "scale", "by": 2 },
        { "name": "norm", "op": "norm" } ] } })");
    REQUIRE(result.verdict == Verdict::mismatch);
    REQUIRE(result.written != nullptr);
    Repair repair;
    Step clip;
    clip.name = "clip";
    clip.op = Op::clip;
    clip.keys = {"name", "op"};
    repair.edits = {Edit::drop("double"), Edit::insert(clip, "norm", true)};
    repair.steps = {"double", "clip"};
    repair.sizes = 5;
    repair.right_sizes = wrong.empty() ? 5 : 4;
    repair.wrong_with = wrong;
    return diagnosis::verify_repair(result, repair);
  };
  const std::string any = R"("any")";
  CHECK(stands("2", any, {}));
  CHECK(stands("2", any, {"dp"}));
  CHECK_FALSE(stands("2", any, {"micro_batches"}));
  CHECK(stands(any, "2", {"micro_batches"}));
  CHECK_FALSE(stands(any, "2", {"dp"}));
  CHECK_FALSE(stands(any, any, {"dp"}));
}
