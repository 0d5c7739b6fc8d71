// SPDX-License-Identifier: Apache-2.0
// What repair prints of findings that are made up here; tests/cli/test_repair.py has those of real files.
#include "src/report/repair_report.h"

#include <string>

#include "tests/catch.h"
#include "tests/diagnosis/small.h"

using namespace lockstep;
using namespace lockstep::test;

namespace {

bool says(const std::string& text, const std::string& part) {
  INFO(text);
  return text.find(part) != std::string::npos;
}

CheckResult wrong_result() {
  CheckOptions options;
  options.host = options.blame = options.divergences = false;
  return check_text(two_ranks(R"({ "name": "sum", "op": "all_reduce", "over": "dp" })"), options);
}

std::string printed(const report::RepairFindings& findings) {
  std::string text;
  report::repair_text(wrong_result(), findings, false, [&](std::string_view part) { text += part; });
  return text;
}

std::string printed_json(const report::RepairFindings& findings) {
  std::string text;
  report::repair_json(wrong_result(), findings, [&](std::string_view part) { text += part; });
  return text;
}

Repair tried(int sizes, int right, const std::string& wrong_at = "") {
  Repair repair;
  repair.edits = {Edit::drop("sum")};
  repair.steps = {"sum"};
  repair.verified = {"symbolic"};
  repair.sizes = sizes;
  repair.right_sizes = right;
  repair.wrong_at = wrong_at;
  repair.reach = reach_of_layouts(repair);
  return repair;
}

report::RepairFindings findings_with(const Repair& repair) {
  report::RepairFindings findings;
  findings.repairs = {repair};
  findings.found = findings.tried = 1;
  return findings;
}

/// An option with one right value; of it and of two other options that many values were tried.
report::RepairFindings found_options() {
  OptionRepair option;
  option.option = "kind";
  option.value = Json::number("1");
  option.right = {Json::number("2")};
  option.repair = tried(0, 0);
  option.repair.keeps_norms = true;
  report::RepairFindings findings;
  findings.options.repairs = {option};
  findings.options.options = findings.options.values = 3;
  return findings;
}

}  // namespace

TEST_CASE("of one layout, schedule or value it is said that it was tried, of more that they were") {
  CHECK(says(printed(findings_with(tried(0, 0))), "\n     no other layout was tried\n"));
  CHECK(says(printed(findings_with(tried(1, 1))), "\n     right at 1 other layout that was tried (symbolic)\n"));
  CHECK(says(printed(findings_with(tried(1, 0, "dp 3"))),
             "\n     right at 0 of 1 other layout that was tried, wrong at dp 3 (symbolic)\n"));
  CHECK(says(printed(findings_with(tried(2, 2))), "\n     right at 2 other layouts that were tried (symbolic)\n"));
  CHECK(says(printed(findings_with(tried(2, 1, "dp 3"))),
             "\n     right at 1 of 2 other layouts that were tried, wrong at dp 3 (symbolic)\n"));
  CHECK(says(printed(findings_with(tried(0, 0))), "\n  1 schedule was tried; 1 of them matches\n"));
  report::RepairFindings none;
  none.tried = 1;
  CHECK(says(printed(none), "no repair was found among the 1 schedule that was tried; docs/repair.md says which\n"));
  none.cut_off = "it takes too long";
  CHECK(says(printed(none), "no repair was found; 1 schedule was tried\n"));
  none.found = 1;
  CHECK(says(printed(none),
             "\n  the one schedule that matches at a small layout was not seen to match at the file's own sizes; "
             "1 schedule was tried\n"));
  none.found = none.tried = 2;
  CHECK(says(printed(none),
             "\n  none of the 2 schedules that match at a small layout was seen to match at the file's own sizes; "
             "2 schedules were tried\n"));
}

TEST_CASE("schedules that match because a norm loses a gradient are counted, and are no repairs") {
  report::RepairFindings findings = findings_with(tried(0, 0));
  findings.tried = 9;
  findings.found = 1;
  CHECK_FALSE(says(printed_json(findings), "without_norm"));
  findings.without_norm = 1;
  CHECK(says(printed(findings),
             "9 schedules were tried; 1 of them matches; 1 matches only as a norm or a clip loses a gradient\n"));
  findings.without_norm = 2;
  CHECK(says(printed(findings), "; 2 match only as a norm or a clip loses a gradient\n"));
  CHECK(says(printed_json(findings), "\"without_norm\": 2"));
  findings.repairs.clear();
  findings.found = 0;
  CHECK(says(printed(findings), "which; 2 match only as a norm or a clip loses a gradient\n"));
}

TEST_CASE("a repair that leaves a norm out says so, in JSON as in the text, and nothing where that is not known") {
  Repair repair = tried(0, 0);
  const std::string sentence = "; takes a gradient out of a norm or a clip\n";
  CHECK_FALSE(says(printed(findings_with(repair)), "norm"));
  CHECK_FALSE(says(printed_json(findings_with(repair)), "keeps_norms"));
  repair.keeps_norms = true;
  CHECK_FALSE(says(printed(findings_with(repair)), "norm"));
  CHECK(says(printed_json(findings_with(repair)), "\"keeps_norms\": true"));
  repair.keeps_norms = false;
  CHECK(says(printed(findings_with(repair)), sentence));
  CHECK(says(printed_json(findings_with(repair)), "\"keeps_norms\": false"));
}

TEST_CASE("an option says whether norms are kept where that is known, and where it is not that it is not") {
  report::RepairFindings findings = found_options();
  const std::string sentence = "; whether norms and clips take what they take now was not looked at\n";
  CHECK_FALSE(says(printed(findings), sentence));
  CHECK(says(printed_json(findings), "\"keeps_norms\": true"));
  findings.options.repairs.front().repair.keeps_norms.reset();
  CHECK(says(printed(findings), sentence));
  CHECK_FALSE(says(printed_json(findings), "keeps_norms"));
}

TEST_CASE("values that match without a norm are counted in the text and listed in JSON") {
  report::RepairFindings findings = found_options();
  CHECK_FALSE(says(printed(findings), "without a norm"));
  CHECK_FALSE(says(printed_json(findings), "option_values_without_norm"));
  findings.options.without_norm = {{"clip", Json()}};
  CHECK(says(printed(findings), "; 1 matches only as a norm or a clip loses a gradient\n"));
  CHECK(says(printed_json(findings), R"("option_values_without_norm": [
    { "option": "clip", "value": null }
  ])"));
  findings.options.without_norm.push_back({"norm", Json::boolean(false)});
  CHECK(says(printed(findings), "; 2 match only as a norm or a clip loses a gradient\n"));
  CHECK(says(printed_json(findings), R"({ "option": "norm", "value": false })"));
}

TEST_CASE("options that were not tried to the end are said to be so in JSON as in the text") {
  report::RepairFindings findings;
  findings.options.cut_off = "it takes too long";
  findings.options.options_left = 3;
  CHECK(says(printed(findings),
             "the options of the framework were not tried to the end: it takes too long; 3 options are left out in "
             "part or whole\n"));
  CHECK(says(printed_json(findings), "\"options_cut_off\": \"it takes too long\""));
  CHECK(says(printed_json(findings), "\"options_not_tried\": 3"));
  CHECK_FALSE(says(printed_json(found_options()), "options_cut_off"));
}
