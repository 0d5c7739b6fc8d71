// SPDX-License-Identifier: Apache-2.0
#include <memory>

#include "lockstep/prove.h"
#include "tests/catch.h"

using namespace lockstep;

namespace {

Scenario with_tokens(const std::string& tokens) {
  const std::string text =
      R"({ "lockstep": 1, "layout": { "dp": 2 },
    "model": { "parameters": [ { "name": "w", "shape": [8], "uses": ["main", "mtp"] } ] }, "batch": { "tokens": )" +
      tokens + R"( },
    "schedule": { "steps": [ { "op": "each", "name": "each", "steps": [ { "name": "backward", "op": "backward", "by": "1/micro_batches" } ] },
      { "name": "mean", "op": "all_reduce", "over": "dp", "reduce": "avg" } ] } })";
  return read_scenario(std::make_shared<const Source>(Source{"test.json", text}));
}

}  // namespace

TEST_CASE("tokens are the same however they are written, use by use or for all at once", "[parametric]") {
  const auto verdict = [](const std::string& before, const std::string& after) {
    return SameProver(with_tokens(before), with_tokens(after)).proof().verdict;
  };
  using Verdict = SameProof::Verdict;
  CHECK(verdict(R"("even")", R"({ "main": "even", "mtp": "even" })") == Verdict::same);
  CHECK(verdict(R"({ "mtp": "uneven" })", R"("uneven")") == Verdict::same);
  CHECK(verdict(R"({ "main": "even", "mtp": "uneven" })", R"({ "main": "even", "mtp": "uneven" })") == Verdict::same);
  CHECK(verdict(R"({ "main": "even", "mtp": "uneven" })", R"("even")") == Verdict::undecided);
  CHECK(verdict(R"({ "mtp": "even" })", R"("even")") == Verdict::undecided);
  CHECK(verdict(R"("even")", R"("uneven")") == Verdict::undecided);
}
