// SPDX-License-Identifier: Apache-2.0
#include "lockstep/report.h"
#include "tests/catch.h"
#include "tests/diagnosis/small.h"

using namespace lockstep;
using namespace lockstep::test;

namespace {

std::string written(std::string_view format, const std::vector<CheckResult>& results, ReportOptions options = {}) {
  std::string text;
  const auto reporter = make_reporter(format, options, [&](std::string_view part) { text += part; });
  REQUIRE(reporter != nullptr);
  for (const CheckResult& result : results) reporter->add(result);
  reporter->finish();
  return text;
}

Json parsed(const std::string& text) {
  Diagnostics diagnostics;
  Json json = parse_json(std::make_shared<const Source>(Source{"report", text}), diagnostics);
  REQUIRE(diagnostics.empty());
  return json;
}

/// A sum in place of a mean: one finding.
CheckResult wrong(const std::string& more = "") {
  return check_text(two_ranks(R"({ "name": "sum", "op": "all_reduce", "over": "dp" })", more));
}
CheckResult right(const std::string& more = "") {
  return check_text(two_ranks(R"({ "name": "sum", "op": "all_reduce", "over": "dp", "reduce": "avg" })", more));
}

std::size_t count(const std::string& text, std::string_view part) {
  std::size_t number = 0;
  for (std::size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size()) ++number;
  return number;
}

bool includes(const std::string& text, std::string_view part) { return count(text, part) > 0; }

}  // namespace

TEST_CASE("every format is made by its name and has a purpose in the help") {
  for (const std::string& kind : report_kinds()) {
    CHECK_FALSE(written(kind, {right()}).empty());
    CHECK(includes(report_kinds_help(), kind + ", "));
  }
  CHECK(report_kinds().front() == "text");
}

TEST_CASE("concise: a line for each finding and one that counts") {
  CHECK(written("concise", {wrong(), right()}) ==
        "test.json:1:299: LS002 The gradient of weight is wrong on ranks 0, 1: 2 × the right gradient.\n"
        "2 files: 1 matches, 1 does not; 1 finding\n");
  ReportOptions quiet;
  quiet.quiet = true;
  CHECK(written("concise", {right()}, quiet).empty());
}

TEST_CASE("github: an error at the step, and a notice for what GitHub would drop") {
  const std::string one = written("github", {wrong()});
  CHECK(
      one.starts_with("::error file=test.json,line=1,col=299,endColumn=349,title=LS002 WrongFactor::The gradient of "));
  CHECK(includes(one, "%0Arank"));
  CHECK_FALSE(includes(one, "::notice"));
  const std::string many = written("github", std::vector<CheckResult>(13, wrong()));
  CHECK(count(many, "::error ") == 10);
  CHECK(includes(many, "::notice title=lockstep::3 more findings are not shown"));
}

TEST_CASE("github: what is missing at the end of a line stands behind its last character") {
  CheckResult cut_off;
  cut_off.file = "test.json";
  cut_off.verdict = Verdict::error;
  try {
    check_text("{ \"lockstep\": 1,\n");
  } catch (const InputError& error) {
    cut_off.errors = error.diagnostics();
  }
  CHECK(written("github", {cut_off})
            .starts_with("::error file=test.json,line=1,col=17,endColumn=17,title=LS014 InvalidFile::expected a key"));
}

TEST_CASE("html: a source is a link where it has a number, and what was expected and did not come stands below it") {
  const std::string numbered =
      written("html", {wrong(R"(, "source": "pytorch/pytorch#12", "expect": { "verdict": "match" })")});
  CHECK(includes(numbered, "<a href=\"https://github.com/pytorch/pytorch/issues/12\">pytorch/pytorch#12</a>"));
  CHECK(includes(numbered, "<li>verdict: expected match, found mismatch</li>"));
  for (const std::string source : {"pytorch/pytorch#12a", "pytorch/pytorch#"}) {
    const std::string plain = written("html", {wrong(R"(, "source": ")" + source + "\"")});
    CHECK(includes(plain, "pytorch/pytorch#"));
    CHECK_FALSE(includes(plain, "<a href=\"https://github.com/pytorch"));
  }
}

TEST_CASE("html: parameters that are wrong alike are named once, and ranks that hand them over are marked") {
  const std::string page = written(
      "html", {check_text(scenario_text(
                  R"({ "dp": 2, "pp": 2 })",
                  R"([ { "name": "first", "shape": [4], "stage": 0 }, { "name": "second", "shape": [4], "stage": 0 },
                       { "name": "third", "shape": [4], "stage": 0 }, { "name": "last", "shape": [4], "stage": 1 } ])",
                  R"([ { "name": "micro_batches", "op": "each", "steps": [ { "name": "backward", "op": "backward" } ] },
                       { "name": "sum", "op": "all_reduce", "over": "dp", "params": ["!last"] },
                       { "name": "mean", "op": "all_reduce", "over": "dp", "params": ["last"], "reduce": "avg" } ])"))});
  CHECK(includes(page,
                 "<code>first</code><details><summary>and 2 more</summary><code>second</code><br><code>third</code><br>"
                 "</details>"));
  CHECK(includes(page, "<th scope=\"row\">pp 0</th><td class=\"bad\">✗ 0</td><td class=\"bad\">✗ 1</td>"));
  CHECK(includes(page, "<th scope=\"row\">pp 1</th><td class=\"good\">✓ 2</td><td class=\"good\">✓ 3</td>"));
}

TEST_CASE("gitlab: a list of findings whose fingerprints differ between files") {
  CheckResult other = wrong();
  const Json list = parsed(written("gitlab", {other}));
  REQUIRE(list.items().size() == 1);
  const Json& finding = list.items().front();
  CHECK(finding.find("check_name")->text() == "LS002");
  CHECK(finding.find("severity")->text() == "critical");
  CHECK(finding.find("location")->find("path")->text() == "test.json");
  CHECK(finding.find("fingerprint")->text().starts_with("test.json:"));
  CHECK(parsed(written("gitlab", {right()})).items().empty());
}

TEST_CASE("junit: suites by folder with their sums, failures apart from errors, and files that are left out") {
  CheckResult elsewhere = wrong();
  elsewhere.file = "folder/test.json";
  const std::string text = written("junit", {wrong(), right(), elsewhere});
  CHECK(includes(text, "<testsuites name=\"lockstep\" tests=\"3\" failures=\"2\" errors=\"0\""));
  CHECK(includes(text, "<testsuite name=\".\" tests=\"2\" failures=\"1\""));
  CHECK(includes(text, "<testsuite name=\"folder\" tests=\"1\" failures=\"1\""));
  CHECK(count(text, "<failure type=\"LS002\"") == 2);
  CheckResult failed;
  failed.file = "a.json";
  failed.machine_failed = true;
  failed.errors = {{{}, "no memory for \x01 <this>"}};
  const std::string error = written("junit", {failed});
  CHECK(includes(error, "<error type=\"LS016\" message=\"no memory for \\u0001 &lt;this&gt;\">"));
  CHECK(includes(error, "errors=\"1\""));
  ReportOptions test;
  test.expectations = true;
  CHECK(includes(written("junit", {wrong()}, test), "<skipped message="));
  CHECK(includes(written("junit", {wrong(R"(, "expect": { "verdict": "mismatch" })")}, test),
                 "<system-out>mismatch, as the file's `expect` says</system-out>"));
}

TEST_CASE("sarif: rules, results and what was counted") {
  const Json run = parsed(written("sarif", {wrong(), right()})).find("runs")->items().front();
  const Json& driver = *run.find("tool")->find("driver");
  CHECK(driver.find("rules")->items().size() == 18);
  CHECK(driver.find("rules")->items().front().find("helpUri") == nullptr);
  REQUIRE(run.find("results")->items().size() == 1);
  const Json& result = run.find("results")->items().front();
  CHECK(result.find("ruleId")->text() == "LS002");
  CHECK(result.find("ruleIndex")->text() == "1");
  const Json& invocation = run.find("invocations")->items().front();
  CHECK(invocation.find("executionSuccessful")->as_boolean());
  CHECK(invocation.find("toolExecutionNotifications")->items().front().find("message")->find("text")->text() ==
        "2 files: 1 matches, 1 does not; 1 finding");
}

TEST_CASE("sarif: links to the documents where they are known") {
  ReportOptions options;
  options.docs_url = "https://host/docs";
  const Json run = parsed(written("sarif", {right()}, options)).find("runs")->items().front();
  const Json& rule = run.find("tool")->find("driver")->find("rules")->items()[1];
  CHECK(rule.find("helpUri")->text() == "https://host/docs/rules/LS002.md");
  CHECK(includes(rule.find("help")->find("markdown")->text(), "(https://host/docs/rules/LS002.md)"));
  CHECK(includes(written("markdown", {wrong()}, options), "[LS002 WrongFactor](https://host/docs/rules/LS002.md)"));
}

TEST_CASE("sarif: a run that could not check everything is not successful") {
  CheckResult failed;
  failed.file = "a.json";
  failed.machine_failed = true;
  failed.errors = {{{}, "no memory"}};
  const Json run = parsed(written("sarif", {failed})).find("runs")->items().front();
  CHECK_FALSE(run.find("invocations")->items().front().find("executionSuccessful")->as_boolean());
}

TEST_CASE("sarif: no more results than GitHub accepts of a run, and how many are left out") {
  std::string text;
  const auto reporter = make_reporter("sarif", {}, [&](std::string_view part) { text += part; });
  CheckResult invalid;
  invalid.file = "a.json";
  for (int number = 0; number < 1000; ++number) invalid.errors.push_back({{}, "wrong"});
  for (int round = 0; round < 26; ++round) reporter->add(invalid);
  reporter->finish();
  CHECK(count(text, "\"ruleId\"") == 25000);
  CHECK(includes(text, "1000 findings are left out: a run takes 25000."));
}

TEST_CASE("markdown: a table, what was found below it, and no more than GitHub takes") {
  const std::string text = written("markdown", {wrong(), right()});
  CHECK(includes(text, "2 files: 1 matches, 1 does not; 1 finding.\n"));
  CHECK(includes(text, "| ❌ | `test.json` | mismatch | `sum` |\n| ✅ | `test.json` | match |  |\n"));
  CHECK(includes(
      text,
      "<summary><code>test.json</code>: mismatch</summary>\n\n**LS002 WrongFactor**, line 1: The gradient of weight"));
  CheckResult long_name = wrong();
  long_name.file = std::string(2000, 'x');
  const std::string most = written("markdown", std::vector<CheckResult>(400, long_name));
  CHECK(most.size() < 1024 * 1024);
  CHECK(includes(most, " files are left out of the table.\n"));
  CHECK(includes(most, "What was found in "));
  const std::size_t rows = count(most, "| ❌ |");
  CHECK(includes(most, std::to_string(400 - rows) + " files are left out of the table."));
}
