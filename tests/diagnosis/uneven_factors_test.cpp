// SPDX-License-Identifier: Apache-2.0
#include "src/diagnosis/uneven_factors.h"

#include "tests/catch.h"
#include "tests/diagnosis/small.h"

using namespace lockstep;
using namespace lockstep::test;

namespace {

/// A local mean after backward: by the rank's own tokens, or by those of the whole sequence.
std::string weighed_after_backward(const std::string& axis, const std::string& by, const std::string& tokens) {
  return R"({ "lockstep": 1, "layout": { ")" + axis +
         R"(": 2 }, "batch": { "micro_batches": 1, "loss": "local_mean", "tokens": ")" + tokens + R"(" },
    "model": { "preset": "llama", "layers": 1, "hidden": 16, "heads": 4, "query_groups": 2, "ffn": 24, "vocab": 32 },
    "schedule": { "steps": [
      { "name": "micro_batches", "op": "each", "steps": [ { "name": "backward", "op": "backward", "by": 1 },
                                                          { "name": "local_mean", "op": "scale", "by": ")" +
         by + R"(" } ] },
      { "name": "mean", "op": "all_reduce", "over": ")" +
         axis + R"(", "reduce": "avg" } ] } })";
}

std::size_t mentions(const CheckResult& result, const std::string& word) {
  std::size_t count = 0;
  for (const std::string& note : result.notes) count += note.find(word) != std::string::npos;
  return count;
}

}  // namespace

TEST_CASE("a factor after backward that tells ranks of a sequence apart is told") {
  const auto noted = [](const std::string& axis, const std::string& by, const std::string& tokens = "uneven") {
    const CheckResult result = check_text(weighed_after_backward(axis, by, tokens));
    REQUIRE(result.errors.empty());
    return mentions(result, "local_mean multiplies by ") == 1;
  };
  CHECK(noted("cp", "1 / tokens"));
  CHECK(noted("sp", "1 / tokens"));
  CHECK_FALSE(noted("dp", "1 / tokens"));  // other samples
  CHECK_FALSE(noted("cp", "1 / sum(tokens, cp)"));
  CHECK_FALSE(noted("cp", "1 / tokens", "even"));
  CHECK_FALSE(noted("cp", "1 / 4"));
}

TEST_CASE("who does not run a scale multiplies by 1") {
  const auto sentence = [](const std::string& by_and_when) {
    const CheckResult result = check_text(weighed_after_backward("cp", by_and_when, "even"));
    REQUIRE(result.timeline != nullptr);
    return diagnosis::uneven_factors_of_a_sequence(*result.scenario->schedule, *result.timeline);
  };
  CHECK(
      sentence(R"(2", "when": "rank.cp == 1)").starts_with("local_mean multiplies by 2 on rank 1 and not on others, "));
  CHECK(sentence(R"(1", "when": "rank.cp == 1)").empty());
  CHECK(sentence("2").empty());
}

TEST_CASE("real attention shows that such a factor weighs parts of other ranks' losses", "[transformer]") {
  CheckOptions options;
  options.transformer = true;
  const CheckResult result = check_text(weighed_after_backward("cp", "1 / tokens", "uneven"), options);
  CHECK(engine_of(result, "symbolic")->verdict == Verdict::match);
  CHECK(engine_of(result, "transformer")->verdict == Verdict::mismatch);
  CHECK(result.verdict == Verdict::mismatch);
  CHECK(result.disagreement == "");
  CHECK(mentions(result, "local_mean multiplies by ") == 1);
  CHECK(mentions(result, "lockstep placements") == 0);
}
