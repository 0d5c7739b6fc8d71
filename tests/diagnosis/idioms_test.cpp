// SPDX-License-Identifier: Apache-2.0
#include "src/diagnosis/idioms.h"

#include <string>
#include <vector>

#include "src/diagnosis/repairs.h"
#include "tests/catch.h"
#include "tests/diagnosis/small.h"

using namespace lockstep;
using namespace lockstep::test;

namespace {

/// Two data-parallel ranks that hold unequal numbers of tokens.
std::string uneven_ranks(const std::string& backward, const std::string& tail) {
  std::string text =
      scenario_text(R"({ "dp": 2 })", R"([ { "name": "weight", "shape": [8] } ])",
                    R"J([ { "name": "micro_batches", "op": "each", "steps": [ )J" + backward + " ] }" + tail + " ]");
  const std::string old = R"("batch": { "micro_batches": 1, "tokens": "even" })";
  return text.replace(text.find(old), old.size(), R"("batch": { "micro_batches": 2 })");
}

diagnosis::FoundRepair first_of(const std::string& text) {
  const diagnosis::RepairSearch search = diagnosis::find_repairs(check_text(text));
  REQUIRE(!search.repairs.empty());
  return search.repairs.front();
}

std::string first_step(const std::string& text) { return first_of(text).edits.front().step; }

const std::string token_mean =
    R"J({ "name": "backward", "op": "backward", "by": "1 / sum(tokens, dp, micro_batch)" })J";
const std::string mean = R"(, { "name": "mean", "op": "all_reduce", "over": "dp", "reduce": "avg" })";
const std::string sum = R"(, { "name": "sum", "op": "all_reduce", "over": "dp" })";

}  // namespace

TEST_CASE("a scale that makes a mean of the sum beside it is not what is wrong, on either side of it") {
  const std::string mean_behind = sum + R"(, { "name": "scale", "op": "scale", "by": "1 / dp" })";
  const std::string mean_before = R"(, { "name": "scale", "op": "scale", "by": "1 / dp" })" + sum;
  for (const std::string& tail : {mean_behind, mean_before})
    CHECK(first_step(uneven_ranks(token_mean, tail)) == "backward");
  CHECK(check_text(uneven_ranks(token_mean, mean_before)).blame.front().step == "backward");
  // It may be where it acts on other parameters, or where there are two of them.
  CHECK(first_step(uneven_ranks(
            token_mean, sum + R"(, { "name": "scale", "op": "scale", "by": "1 / dp", "params": ["weight"] })")) ==
        "scale");
  const std::string averaged =
      R"J({ "name": "backward", "op": "backward", "by": "dp / sum(tokens, dp, micro_batch)" })J";
  CHECK(first_step(uneven_ranks(averaged, R"(, { "name": "before", "op": "scale", "by": "1 / dp" })" + mean_behind)) !=
        "backward");
}

TEST_CASE("a wrong factor is the loss's own rather than that of a scale or of a reduction") {
  const std::string twice =
      R"J({ "name": "backward", "op": "backward", "by": "1 / (sum(tokens, dp, micro_batch) * micro_batches)" })J";
  CHECK(first_step(uneven_ranks(twice, sum + R"(, { "name": "third", "op": "scale", "by": "1 / 3" },
                                                  { "name": "three", "op": "scale", "by": "3" })")) == "backward");
  CHECK(first_step(uneven_ranks(token_mean, mean)) == "backward");
  // Where backward has none, the scale that divides by the tokens is the loss's.
  const std::string tokens = R"J(, { "name": "tokens", "op": "scale", "by": "1 / sum(tokens, dp, micro_batch)" })J";
  CHECK(first_step(uneven_ranks(R"({ "name": "backward", "op": "backward" })", tokens + mean)) == "tokens");
}

TEST_CASE("a backward that takes the mean over its own tokens and micro-batches is not what is wrong") {
  std::string text =
      uneven_ranks(R"J({ "name": "backward", "op": "backward", "by": "1 / (tokens * micro_batches)" })J", sum);
  const std::string uneven = R"("micro_batches": 2 )";
  text.replace(text.find(uneven), uneven.size(), R"("micro_batches": 2, "tokens": "even" )");
  const diagnosis::FoundRepair best = first_of(text);
  CHECK(best.edits.front().step == "sum");
  CHECK(best.edits.front().kind == diagnosis::Candidate::Kind::reduction);
}

TEST_CASE("a backward elsewhere is as far as a changed step, another step elsewhere is nearer") {
  const CheckResult result =
      check_text(uneven_ranks(token_mean + R"(, { "name": "never", "op": "zero", "when": "micro_batch == 0" })", sum));
  const Schedule& schedule = *result.scenario->schedule;
  const diagnosis::Idioms idioms(schedule.steps, schedule);
  const auto moved = [&](const std::string& step, const std::string& other) {
    return idioms.distance({{diagnosis::Candidate::Kind::move, step, Edit::move(step, other, true)}});
  };
  CHECK(moved("backward", "never") == 2);
  CHECK(moved("never", "sum") == 1);
}

TEST_CASE("a factor counts tokens over the axes of the loss, in whatever order it names them") {
  const auto counts_otherwise = [](const std::string& by, const std::string& loss = "token_mean") {
    std::string text =
        scenario_text(R"({ "dp": 2, "cp": 2 })", R"([ { "name": "w", "shape": [8] } ])",
                      R"([ { "name": "each", "op": "each", "steps": [ { "name": "b", "op": "backward" } ] } ])");
    const std::string old = R"("tokens": "even" })";
    text.replace(text.find(old), old.size(), R"("tokens": "even", "loss": ")" + loss + "\" }");
    const CheckResult result = check_text(text);
    const diagnosis::Idioms idioms(result.scenario->schedule->steps, *result.scenario->schedule);
    Step values;
    values.by = Expression::parse(by);
    values.keys = {"by"};
    return idioms.counts_otherwise({{diagnosis::Candidate::Kind::factor, "b", Edit::set("b", values)}});
  };
  CHECK_FALSE(counts_otherwise("1 / sum(tokens, dp, cp, micro_batch)"));
  CHECK_FALSE(counts_otherwise("1 / sum(tokens, cp, dp, micro_batch)"));
  CHECK_FALSE(counts_otherwise("dp / sum(tokens, cp, dp, micro_batch)"));
  CHECK_FALSE(counts_otherwise("1 / dp"));
  CHECK(counts_otherwise("1 / sum(tokens, dp, micro_batch)"));
  CHECK(counts_otherwise("1 / sum(tokens, cp, dp)"));
  CHECK(counts_otherwise("1 / tokens"));
}
