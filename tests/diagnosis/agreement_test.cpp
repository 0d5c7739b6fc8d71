// SPDX-License-Identifier: Apache-2.0
#include "src/diagnosis/agreement.h"

#include "tests/catch.h"
#include "tests/diagnosis/small.h"

using namespace lockstep;
using namespace lockstep::test;

namespace {

/// The host's finding about `output` on rank 2: of 150 elements it owns [0, 115), wrong in [40, 115).
HostBuffer& output_on_rank_2(CheckResult& result) {
  for (HostBuffer& buffer : result.host->buffers) {
    if (buffer.rank == 2 && !buffer.right) return buffer;
  }
  FAIL("the host finds nothing wrong on rank 2");
  return result.host->buffers.front();
}

}  // namespace

TEST_CASE("engines that find the same agree") {
  const CheckResult result = check_text(megatron_844());
  CHECK(find_disagreement(result, {}).empty());
}

TEST_CASE("a buffer that only one engine finds wrong is a disagreement that says how to replay it") {
  CheckResult result = check_text(megatron_844());
  result.file = "case.json";
  output_on_rank_2(result).right = true;
  CheckOptions options;
  options.seed = 7;
  const std::string sentence = find_disagreement(result, options);
  CHECK(sentence.find("output on rank 2 is wrong for symbolic and right for host") != std::string::npos);
  CHECK(sentence.find("lockstep check case.json --seed 7 -v") != std::string::npos);
}

TEST_CASE("a sample may miss wrong elements where others of the buffer are right") {
  CheckResult result = check_text(megatron_844());
  output_on_rank_2(result).right = true;
  result.host->sampled = true;
  CHECK(find_disagreement(result, {}).empty());
}

TEST_CASE("a sample may not find anything wrong where all is right, nor right where all is wrong") {
  CheckResult result = check_text(two_ranks(R"({ "name": "sum", "op": "all_reduce", "over": "dp" })"));
  REQUIRE(result.verdict == Verdict::mismatch);
  result.host->sampled = true;
  CHECK(find_disagreement(result, {}).empty());
  result.host->buffers.front().right = true;
  CHECK_FALSE(find_disagreement(result, {}).empty());

  CheckResult right = check_text(two_ranks(R"({ "name": "mean", "op": "all_reduce", "over": "dp", "reduce": "avg" })"));
  right.host->sampled = true;
  right.host->buffers.front().right = false;
  CHECK_FALSE(find_disagreement(right, {}).empty());
}

TEST_CASE("what was not replayed at all counts neither for nor against") {
  CheckResult result = check_text(two_ranks(R"({ "name": "sum", "op": "all_reduce", "over": "dp" })"));
  REQUIRE(result.verdict == Verdict::mismatch);
  for (HostBuffer& buffer : result.host->buffers) {
    buffer.right = true;
    buffer.replayed = false;
  }
  CHECK(find_disagreement(result, {}).empty());
  result.host->buffers.back().replayed = true;
  CHECK_FALSE(find_disagreement(result, {}).empty());
  // In an earlier step than the host's last, too.
  result.host->step = result.symbolic->step + 1;
  CHECK_FALSE(find_disagreement(result, {}).empty());
  result.host->buffers.back().replayed = false;
  CHECK(find_disagreement(result, {}).empty());
}

TEST_CASE("engines that find something wrong after different optimizer steps disagree, and it is said which does") {
  CheckResult result = check_text(megatron_844());
  result.symbolic->step = 1;
  CHECK(find_disagreement(result, {})
            .find("host finds wrong values after optimizer step 0, symbolic none before step 1") != std::string::npos);
  result.symbolic->step = 0;
  result.host->step = 1;
  CHECK(find_disagreement(result, {})
            .find("symbolic finds wrong values after optimizer step 0, host none before step 1") != std::string::npos);
  result.host->sampled = true;  // a sample may have missed them
  CHECK(find_disagreement(result, {}).empty());
}
