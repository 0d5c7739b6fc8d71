// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

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
        "match  case.json  small\n  dp 2 = 2 ranks, 1 micro-batch, loss token_mean over even tokens\n  symbolic match, "
        "host match; 1 parameter, 1 "
        "collective, 1 optimizer step\n");
}

TEST_CASE("quiet is the verdict line alone") {
  ReportOptions options;
  options.quiet = true;
  CHECK(text_of(check_text(megatron_844()), options) == "mismatch  case.json  small\n");
}

TEST_CASE("a mismatch tells ranks, formulas, the first divergence and the tables around it") {
  const std::string text = text_of(check_text(megatron_844()));
  CHECK(contains(
      text, "✗ word (tied: embedding)\n    rank 1 (pp 0 dp 1), elements [40, 115)\n      got       g3 + (g0+g1)/2"));
  CHECK(contains(text, "      expected  (g0+g1+g2+g3)/2\n      hash      "));
  CHECK(
      contains(text,
               "    wrong from step embedding_all_reduce on, which adds up shares with coefficients in a wrong ratio:\n"
               "      (g0+g1)/2 becomes g3 + (g0+g1)/2\n"));
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

TEST_CASE("where each element has one owner there is no replica to compare with") {
  const std::string scattered = R"({ "name": "sum", "op": "reduce_scatter", "over": "dp" })";
  const std::string text = text_of(check_text(two_ranks(scattered)));
  CHECK(contains(text, "    each element has one owner: there is no replica to compare with\n"));
  CHECK_FALSE(contains(text, "all owners"));
  const std::string gathered =
      text_of(check_text(two_ranks(scattered + R"(, { "name": "all", "op": "all_gather", "over": "dp" })")));
  CHECK(
      contains(gathered, "    all owners of an element hold the same value: no comparison of replicas could see it\n"));
  CHECK_FALSE(contains(gathered, "one owner"));
}

TEST_CASE("parameters that are wrong alike share a section") {
  const std::string parameters =
      R"([ { "name": "layers.0.weight", "shape": [8] }, { "name": "layers.1.weight", "shape": [8] },
    { "name": "norm", "shape": [4] } ])";
  const std::string steps =
      R"([ { "name": "micro_batches", "op": "each", "steps": [ { "name": "backward", "op": "backward" } ] },
    { "name": "sum", "op": "all_reduce", "over": "dp" } ])";
  const std::string text = text_of(check_text(scenario_text(R"({ "dp": 2 })", parameters, steps)));
  CHECK(contains(text, "✗ 3 parameters alike, shown: layers.0.weight\n    layers.*.weight (2)\n    norm\n"));
}

TEST_CASE("a deadlock says who waits for whom") {
  const std::string text = text_of(
      check_text(two_ranks(R"({ "name": "lonely", "op": "all_reduce", "over": "dp", "when": "rank.dp == 0" })")));
  CHECK(contains(text, "deadlock: ranks wait for calls that never come\n    rank 0 waits in `lonely` for rank 1\n"));
}

TEST_CASE("a wrong count in the norm is one line for all its ranks") {
  const std::string text =
      text_of(check_text(two_ranks(R"({ "name": "mean", "op": "all_reduce", "over": "dp", "reduce": "avg" },
    { "name": "grad_norm", "op": "norm", "over": "dp" })")));
  CHECK(contains(text,
                 "gradient norm\n    weight counted 2 times instead of 1 on ranks 0, 1\n"
                 "    every element is counted 2 times: the norm is √2 times the right one\n"));
}

TEST_CASE("where only some elements are counted wrongly, it is said how many") {
  const std::string text =
      text_of(check_text(two_ranks(R"({ "name": "mean", "op": "reduce_scatter", "over": "dp", "reduce": "avg" },
    { "name": "grad_norm", "op": "norm" })")));
  CHECK(contains(text, "gradient norm\n    4 of 8 elements of weight counted 0 times instead of 1 on ranks 0, 1\n"));
  CHECK_FALSE(contains(text, "every element"));
}

TEST_CASE("what is wrong in the norm alone has no empty section, and the host is said to see values only") {
  const std::string text =
      text_of(check_text(two_ranks(R"({ "name": "mean", "op": "all_reduce", "over": "dp", "reduce": "avg" },
    { "name": "grad_norm", "op": "norm", "over": "dp" })")));
  CHECK(contains(text, "symbolic mismatch, host match (compares values only);"));
  CHECK_FALSE(contains(text, "✗"));
}

TEST_CASE("a rank that owns nothing of a parameter says so") {
  const std::string text =
      text_of(check_text(two_ranks(R"({ "name": "mean", "op": "reduce", "over": "dp", "root": 0, "reduce": "avg" },
    { "name": "scatter", "op": "reduce_scatter", "over": "dp", "reduce": "avg" })")));
  CHECK(contains(text, "rank 1 (dp 1) owns nothing\n"));
}

TEST_CASE("a rank that is right in what it owns, though nobody owns the rest, says so") {
  const std::string text =
      text_of(check_text(two_ranks(R"({ "name": "mean", "op": "all_reduce", "over": "dp", "reduce": "avg" },
    { "name": "own", "op": "own", "over": "dp" }, { "name": "again", "op": "reduce_scatter", "over": "dp",
      "reduce": "avg", "geometry": { "kind": "flat", "align": 16 } })")));
  CHECK(contains(text, "symbolic mismatch, host match (compares values only);"));
  CHECK(contains(text, "nobody owns elements [4, 8) on ranks 0, 1"));
  CHECK(contains(text, "rank 1 (dp 1) owns nothing\n"));
}

TEST_CASE("of a sampled replay no hash is printed") {
  CheckResult result = check_text(megatron_844());
  CHECK(contains(text_of(result), "hash"));
  numbers_in(result).sampled = true;
  CHECK_FALSE(contains(text_of(result), "hash"));
}

TEST_CASE("one rank waits, several wait") {
  const std::string text = text_of(check_text(
      scenario_text(R"({ "dp": 3 })", R"([ { "name": "weight", "shape": [8] } ])",
                    R"([ { "name": "lonely", "op": "all_reduce", "over": "dp", "when": "rank.dp < 2" } ])")));
  CHECK(contains(text, "    ranks 0, 1 wait in `lonely` for rank 2\n"));
}

TEST_CASE("a long formula is cut in lines and tables, and whole when verbose") {
  const std::string parameters = R"([ { "name": "weight", "shape": [8] } ])";
  std::string text = scenario_text(R"({ "dp": 4 })", parameters,
                                   R"([ { "name": "micro_batches", "op": "each", "steps": [
      { "name": "backward", "op": "backward" }, { "name": "sum", "op": "all_reduce", "over": "dp" } ] } ])");
  const std::string one = "\"micro_batches\": 1";
  text.replace(text.find(one), one.size(), "\"micro_batches\": 16");
  const CheckResult result = check_text(text);
  const auto widest = [](const std::string& report) {
    std::size_t width = 0, begin = 0;
    for (std::size_t end = 0; (end = report.find('\n', begin)) != std::string::npos; begin = end + 1) {
      width = std::max(width, end - begin);
    }
    return width;
  };
  const std::string shown = text_of(result);
  INFO(shown);
  CHECK(widest(shown) < 260);
  CHECK(contains(shown, " terms)"));
  ReportOptions options;
  options.verbose = true;
  CHECK(widest(text_of(result, options)) > 260);
  CHECK_FALSE(contains(text_of(result, options), " … "));
}

TEST_CASE("an unknown kind of report is none") {
  CHECK(make_reporter("pdf", {}, [](std::string_view) {}) == nullptr);
}
