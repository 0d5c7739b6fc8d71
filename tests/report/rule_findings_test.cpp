// SPDX-License-Identifier: Apache-2.0
#include "src/report/rule_findings.h"

#include "tests/catch.h"
#include "tests/diagnosis/small.h"

using namespace lockstep;
using namespace lockstep::test;

namespace {

std::vector<std::string> ids(const std::vector<report::RuleFinding>& findings) {
  std::vector<std::string> list;
  list.reserve(findings.size());
  for (const report::RuleFinding& finding : findings) list.emplace_back(finding.rule().id);
  return list;
}

std::vector<report::RuleFinding> found_in(const std::string& text, const CheckOptions& options = {}) {
  return report::rule_findings(check_text(text, options), false);
}

using Ids = std::vector<std::string>;

}  // namespace

TEST_CASE("each kind of mistake has its rule") {
  CHECK(ids(found_in(two_ranks(R"({ "name": "sum", "op": "all_reduce", "over": "dp", "reduce": "avg" })"))).empty());
  CHECK(ids(found_in(two_ranks(R"({ "name": "sum", "op": "all_reduce", "over": "dp" })"))) == Ids{"LS002"});
  CHECK(ids(found_in(two_ranks(R"({ "name": "half", "op": "scale", "by": "1 / 2" })"))) == Ids{"LS001"});
  CHECK(ids(found_in(two_ranks(R"({ "name": "weigh", "op": "scale", "by": "(1 + rank.dp) / 2" },
                                  { "name": "sum", "op": "all_reduce", "over": "dp" })"))) == Ids{"LS003"});
  CHECK(ids(found_in(megatron_844())) == Ids{"LS004"});
  CHECK(ids(found_in(two_ranks(R"({ "name": "sum", "op": "all_reduce", "over": "dp", "reduce": "avg" },
                                  { "name": "rest", "op": "leftover", "what": "parameter" })"))) == Ids{"LS006"});
  CHECK(ids(found_in(two_ranks(R"({ "name": "sum", "op": "all_reduce", "over": "dp", "when": "rank.dp == 0" })"))) ==
        Ids{"LS010"});
  CHECK(ids(found_in(
            two_ranks(R"({ "name": "sum", "op": "all_reduce", "over": "dp", "reduce": "avg", "async": true })"))) ==
        Ids{"LS012"});
}

TEST_CASE("parameters that one step spoils by one rule are one finding, which names them all") {
  const std::vector<report::RuleFinding> findings = found_in(megatron_844());
  REQUIRE(findings.size() == 1);
  CHECK(findings.front().message == "The gradients of word and output are wrong on ranks 1, 2.");
  REQUIRE(findings.front().lines.size() >= 2);
  CHECK(findings.front().lines[0] == "word, rank 1, elements [40, 115): got g3 + (g0+g1)/2, expected (g0+g1+g2+g3)/2");
  CHECK(findings.front().lines.back() == R"(right with { "move": "embedding_all_reduce", "after": "micro_batches" })");
}

TEST_CASE("a finding stands at the step, whatever comes before it in the file") {
  const std::string text = two_ranks("\n\n  { \"name\": \"sum\", \"op\": \"all_reduce\", \"over\": \"dp\" }");
  const std::vector<report::RuleFinding> findings = found_in(text);
  REQUIRE(findings.size() == 1);
  CHECK(findings.front().place.line == 3);
  CHECK(findings.front().place.column == 3);
  CHECK(findings.front().place.end_column == 3 + 51);
  const std::vector<report::RuleFinding> moved = found_in("\n// é\n" + text);
  CHECK(moved.front().place.line == 5);
  CHECK(moved.front().fingerprint == findings.front().fingerprint);
}

TEST_CASE("columns count characters, as messages and the JSON report do") {
  const std::vector<report::RuleFinding> findings =
      found_in(two_ranks("\n/* é😀 */ { \"name\": \"sum\", \"op\": \"all_reduce\", \"over\": \"dp\" }"));
  REQUIRE(findings.size() == 1);
  CHECK(findings.front().place.column == 10);
}

TEST_CASE("what a file expects is no finding where that is asked for, and what does not hold of it is one") {
  const std::string sum = R"({ "name": "sum", "op": "all_reduce", "over": "dp" })";
  const CheckResult seen = check_text(two_ranks(sum, R"(, "expect": { "verdict": "mismatch" })"));
  CHECK(report::rule_findings(seen, true).empty());
  CHECK(ids(report::rule_findings(seen, false)) == Ids{"LS002"});
  CHECK(report::is_expected_mistake(seen));
  const CheckResult unmet =
      check_text(two_ranks(sum, R"(, "expect": { "verdict": "mismatch", "ranks": [1], "ratio": "3" })"));
  CHECK(ids(report::rule_findings(unmet, true)) == Ids{"LS015", "LS015"});
  CHECK(report::rule_findings(unmet, true)[0].fingerprint != report::rule_findings(unmet, true)[1].fingerprint);
  CHECK_FALSE(report::is_expected_mistake(unmet));
  const CheckResult without = check_text(two_ranks(sum));
  CHECK(report::has_no_expectation(without));
  CHECK(report::rule_findings(without, true).empty());
  CHECK_FALSE(report::has_no_expectation(seen));
}

TEST_CASE("a result of the parametric engine alone has rules, formulas and the fingerprint of one with all ranks") {
  // The engine that decides is chosen by size; here it is asked for by hand.
  const auto layout = [](int dp) {
    return scenario_text(
        R"({ "tp": 8, "dp": )" + std::to_string(dp) + " }",
        R"([ { "name": "weight", "shape": [64] }, { "name": "norm", "shape": [64], "partial": ["tp"] } ])",
        R"([ { "name": "micro_batches", "op": "each", "steps": [ { "name": "backward", "op": "backward" } ] },
                         { "name": "dp_all_reduce", "op": "all_reduce", "over": "dp", "reduce": "avg" } ])");
  };
  CheckOptions options;
  options.blame = false;
  const CheckResult large = check_text(layout(4096), options);
  const CheckResult small = check_text(layout(2), options);
  REQUIRE(sample_of(large) != nullptr);
  REQUIRE(symbolic_of(small) != nullptr);
  const std::vector<report::RuleFinding> at_large = report::rule_findings(large, false),
                                         at_small = report::rule_findings(small, false);
  REQUIRE(ids(at_large) == Ids{"LS001"});
  REQUIRE(ids(at_small) == Ids{"LS001"});
  CHECK(at_large.front().message.find("and others like them") != std::string::npos);
  CHECK(at_small.front().message.find("and others") == std::string::npos);
  CHECK(at_large.front().fingerprint == at_small.front().fingerprint);
  REQUIRE_FALSE(at_large.front().lines.empty());
  CHECK(at_large.front().lines.front().find("got ") != std::string::npos);
}

TEST_CASE("the page of a rule is looked up where the documents are, and nowhere without") {
  CHECK(report::rule_url(rule_of(Mistake::missing_reduction), "https://host/docs") ==
        "https://host/docs/rules/LS001.md");
  CHECK(report::rule_url(rule_of(Mistake::missing_reduction), "").empty());
}
