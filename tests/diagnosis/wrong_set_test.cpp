// SPDX-License-Identifier: Apache-2.0
#include "tests/catch.h"
#include "tests/diagnosis/small.h"

using namespace lockstep;
using namespace lockstep::test;

TEST_CASE("nothing is wrong in a match") {
  const WrongSet wrong =
      wrong_set(check_text(two_ranks(R"({ "name": "mean", "op": "all_reduce", "over": "dp", "reduce": "avg" })")));
  CHECK(wrong.ranks.empty());
  CHECK(wrong.parameters.empty());
}

TEST_CASE("wrong are the ranks that own a wrong element, and each stage's own name for it") {
  const WrongSet wrong = wrong_set(check_text(megatron_844()));
  CHECK(wrong.ranks == std::vector<int>{1, 2});
  CHECK(wrong.parameters == std::vector<int>{0, 4});
}

TEST_CASE("ranks and parameters are ascending and named once, in whatever order they were found") {
  CheckResult result = check_text(megatron_844());
  std::vector<BufferResult>& buffers = symbolic_in(result).buffers;
  const std::vector<BufferResult> found = buffers;
  buffers.assign(found.rbegin(), found.rend());
  buffers.insert(buffers.end(), found.begin(), found.end());
  CHECK(wrong_set(result).ranks == std::vector<int>{1, 2});
  CHECK(wrong_set(result).parameters == std::vector<int>{0, 4});
}

TEST_CASE("who holds an element that nobody owns is wrong") {
  const CheckResult result =
      check_text(two_ranks(R"({ "name": "mean", "op": "reduce", "over": "dp", "root": 0, "reduce": "avg" },
    { "name": "scatter", "op": "reduce_scatter", "over": "dp", "reduce": "avg" })"));
  REQUIRE(result.verdict == Verdict::mismatch);
  REQUIRE_FALSE(symbolic_of(result)->unowned.empty());
  CHECK(wrong_set(result).ranks == std::vector<int>{0, 1});
}

TEST_CASE("a wrong count in the norm makes its ranks and parameter wrong") {
  const CheckResult result =
      check_text(two_ranks(R"({ "name": "mean", "op": "all_reduce", "over": "dp", "reduce": "avg" },
    { "name": "grad_norm", "op": "norm", "over": "dp" })"));
  REQUIRE(result.verdict == Verdict::mismatch);
  CHECK(wrong_set(result).ranks == std::vector<int>{0, 1});
  CHECK(wrong_set(result).parameters == std::vector<int>{0});
}
