// SPDX-License-Identifier: Apache-2.0
#include "lockstep/report.h"
#include "tests/catch.h"
#include "tests/diagnosis/small.h"

using namespace lockstep;
using namespace lockstep::test;

namespace {

std::string text_of(CheckResult result, ReportOptions options = {}) {
  result.file = "case.json";
  std::string text;
  const auto reporter = make_reporter("text", options, [&](std::string_view part) { text += part; });
  reporter->add(result);
  reporter->finish();
  return text;
}

bool contains(const std::string& text, const std::string& part) {
  INFO(text);
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("a match is a verdict line and what was looked at") {
  CHECK(text_of(check_text(two_ranks(R"({ "name": "mean", "op": "all_reduce", "over": "dp", "reduce": "avg" })"))) ==
        "match  case.json  small\n  dp 2 = 2 ranks, 1 micro-batch\n  symbolic match, host match; 1 parameter, 1 "
        "collective, 1 optimizer step\n");
}

TEST_CASE("quiet is the verdict line alone") {
  ReportOptions options;
  options.quiet = true;
  CHECK(text_of(check_text(megatron_844()), options) == "mismatch  case.json  small\n");
}

TEST_CASE("a mismatch tells ranks, formulas, the turning point and the tables around it") {
  const std::string text = text_of(check_text(megatron_844()));
  CHECK(contains(
      text, "✗ word (tied: embedding)\n    rank 1 (pp 0 dp 1), elements [40, 115)\n      got       g3 + (g0+g1)/2"));
  CHECK(contains(text, "      expected  (g0+g1+g2+g3)/2\n      hash      "));
  CHECK(contains(
      text,
      "goes wrong for good in step embedding_all_reduce, which mixes shares of different weight: (g0+g1)/2 becomes "
      "g3 + (g0+g1)/2\n"));
  CHECK(contains(text,
                 "    after dp_reduce_scatter, elements [40, 115)\n"
                 "           dp 0        dp 1\n"
                 "    pp 0   g0 ~        (g0+g1)/2\n"
                 "    pp 1   (g2+g3)/2   g3 ~\n"));
  CHECK(contains(text,
                 "    after embedding_all_reduce, elements [40, 115)\n"
                 "           dp 0                 dp 1\n"
                 "    pp 0   g0 + (g2+g3)/2 ~     g3 + (g0+g1)/2 * ✗\n"
                 "    pp 1   g0 + (g2+g3)/2 * ✗   g3 + (g0+g1)/2 ~\n"));
}

TEST_CASE("a multiple of the right gradient is told in words, and that no comparison of replicas could see it") {
  const std::string text = text_of(check_text(two_ranks(R"({ "name": "sum", "op": "all_reduce", "over": "dp" })")));
  CHECK(contains(text, "no comparison of replicas could see it"));
  CHECK(contains(text, "last changed by step sum, which leaves 2 × the right gradient"));
}

TEST_CASE("parameters that are wrong alike share a section") {
  const std::string parameters =
      R"([ { "name": "layers.0.weight", "shape": [8] }, { "name": "layers.1.weight", "shape": [8] },
    { "name": "norm", "shape": [4] } ])";
  const std::string steps =
      R"([ { "name": "micro_batches", "op": "each", "steps": [ { "name": "backward", "op": "backward" } ] },
    { "name": "sum", "op": "all_reduce", "over": "dp" } ])";
  const std::string text = text_of(check_text(scenario(R"({ "dp": 2 })", parameters, steps)));
  CHECK(contains(text, "✗ 3 parameters alike, shown: layers.0.weight\n    layers.*.weight (2)\n    norm\n"));
}

TEST_CASE("a deadlock says who waits for whom") {
  const std::string text = text_of(
      check_text(two_ranks(R"({ "name": "lonely", "op": "all_reduce", "over": "dp", "when": "rank.dp == 0" })")));
  CHECK(contains(text, "deadlock: nobody can go on\n    rank 0 wait in `lonely` for rank 1\n"));
}

TEST_CASE("a wrong count in the norm is one line for all its ranks") {
  const std::string text =
      text_of(check_text(two_ranks(R"({ "name": "mean", "op": "all_reduce", "over": "dp", "reduce": "avg" },
    { "name": "grad_norm", "op": "norm", "over": "dp" })")));
  CHECK(contains(text, "gradient norm\n    weight counted 2 times instead of 1 on ranks 0, 1\n"));
}

TEST_CASE("an unknown kind of report is none") {
  CHECK(make_reporter("pdf", {}, [](std::string_view) {}) == nullptr);
}
