// SPDX-License-Identifier: Apache-2.0
#include "src/diagnosis/stale.h"

#include "tests/catch.h"
#include "tests/diagnosis/small.h"

using namespace lockstep;
using namespace lockstep::test;

namespace {

/// What is said of the first divergence of a rank in the parameter; "" also where there is none.
std::string stale(const std::string& layout, const std::string& steps, int rank) {
  CheckOptions options;
  options.host = options.blame = false;
  const CheckResult result = check_text(
      scenario_text(
          layout, R"([ { "name": "w", "shape": [8] } ])",
          R"([ { "name": "micro_batches", "op": "each", "steps": [ { "name": "backward", "op": "backward" } ] }, )" +
              steps + " ]"),
      options);
  REQUIRE(result.verdict == Verdict::mismatch);
  for (const BufferDivergence& divergence : result.divergences) {
    if (divergence.rank == rank) return diagnosis::stale_slices(result, divergence);
  }
  return "";
}

std::string scatter_over(const std::string& name, const std::string& over) {
  return R"({ "name": ")" + name + R"(", "op": "reduce_scatter", "over": )" + over + R"(, "reduce": "avg" })";
}

const std::string sum_again = R"({ "name": "again", "op": "all_reduce", "over": "dp" })";

}  // namespace

TEST_CASE("who adds a stale slice is named, with the step that left it and who owns it there") {
  CHECK(stale(R"({ "dp": 2 })", scatter_over("scatter", R"("dp")") + ", " + sum_again, 0) ==
        "adds slices that scatter left stale: what dp 0 gets for its element 0 includes the stale copy of dp 1; the "
        "reduced "
        "one is on dp 0");
  CHECK(stale(R"({ "dp": 2 })", scatter_over("scatter", R"("dp")") + ", " + sum_again, 1) ==
        "adds slices that scatter left stale: what dp 1 gets for its element 4 includes the stale copy of dp 0; the "
        "reduced "
        "one is on dp 1");
}

TEST_CASE("the step that left it stale is an earlier one than the one that adds it") {
  CHECK(stale(R"({ "dp": 2 })", scatter_over("first", R"("dp")") + ", " + scatter_over("second", R"("dp")"), 0)
            .starts_with("adds slices that first left stale: what dp 0 gets for its element 0 "));
  // It takes elements away itself, from members that add what they own.
  CHECK(stale(R"({ "dp": 2, "cp": 2 })",
              scatter_over("first", R"("dp")") + ", " + scatter_over("second", R"(["cp", "dp"])"), 0)
            .starts_with("adds slices that first left stale: what dp 0 cp 0 gets for its element 0 includes the stale "
                         "copy of dp 1 cp 0"));
}

TEST_CASE("a rank of which no step took anything owns all of it") {
  // Rank 0 takes no part in the scatter, and adds what it owns.
  CHECK(stale(R"({ "dp": 3 })",
              scatter_over("scatter", R"({ "dp": [1, 2] })") +
                  R"(, { "name": "again", "op": "all_reduce", "over": "dp", "reduce": "avg" })",
              0) ==
        "adds slices that scatter left stale: what dp 0 gets for its element 0 includes the stale copy of dp 2; the "
        "reduced "
        "one is on dp 0");
}

TEST_CASE("where no slice is stale nothing is said") {
  CHECK(stale(R"({ "dp": 2 })", R"({ "name": "one", "op": "scale", "by": "1 + rank.dp" }, )" + sum_again, 0).empty());
  CHECK(stale(R"({ "dp": 2 })", mean_step + R"(, { "name": "twice", "op": "scale", "by": "2" })", 0).empty());
}
