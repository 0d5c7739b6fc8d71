// SPDX-License-Identifier: Apache-2.0
#include "src/report/fault_marks.h"
#include "src/report/html.h"
#include "src/report/parameter_history.h"
#include "src/report/rank_summary.h"
#include "tests/catch.h"
#include "tests/diagnosis/small.h"

using namespace lockstep;
using namespace lockstep::test;

namespace {

CheckResult check(const std::string& text) {
  CheckOptions options;
  options.host = false;
  return check_text(text, options);
}

/// A sum in place of a mean.
std::string wrong_on(const std::string& layout) {
  return R"({ "lockstep": 1, "layout": )" + layout + R"(,
  "model": { "parameters": [ { "name": "w", "shape": [4], "stage": "all" } ] },
  "batch": { "micro_batches": 1, "tokens": "even" },
  "schedule": { "steps": [
    { "name": "micro_batches", "op": "each", "steps": [ { "name": "backward", "op": "backward" } ] },
    { "name": "sum", "op": "all_reduce", "over": "dp" }
  ] } })";
}

}  // namespace

TEST_CASE("Texts cannot break out of HTML, of an attribute or of embedded JSON") {
  CHECK(report::html_text("<a b=\"c\" d='e'>&\x01\n") == "&lt;a b=&quot;c&quot; d='e'&gt;&amp;\\u0001\n");
  const Json value = Json::array({Json::string("</script><!--\"\\\n"), Json::number("1/2"), Json()});
  CHECK(report::script_json(value) == R"(["\u003c/script>\u003c!--\"\\\n",1/2,null])");
  CHECK(report::script_json(Json::string("a###[b")) == R"("a#\u0023\u0023[b")");
}

TEST_CASE("What would not be seen is shown by the page as its number") {
  CHECK(report::html_text("a\u202Eb") == R"(a\u202eb)");
  CHECK(report::script_json(Json::string("a\u202Eb")) == R"("a\\u202eb")");
}

TEST_CASE("More than 64 coordinates of an axis share lines of the grid of ranks") {
  const CheckResult result = check(wrong_on(R"({ "pp": 2, "dp": 130 })"));
  const report::RankSummary summary = report::rank_summary(result);
  REQUIRE(summary.columns.size() == 44);
  CHECK(summary.columns.front() == "dp 0-2");
  CHECK(summary.columns.back() == "dp 129");
  CHECK(summary.cells.size() == 88);
  CHECK(summary.cells[44].ranks == std::vector<int>{130, 131, 132});
  CHECK(summary.cells[44].wrong == summary.cells[44].ranks);
  CHECK(summary.cells[44].owned == 4);
}

TEST_CASE("A history keeps changes alone, and tells of a first content even where it is 0") {
  const CheckResult result = check(wrong_on(R"({ "dp": 2 })"));
  const std::vector<report::ParameterHistory> histories = report::parameter_histories(result, 4);
  REQUIRE(histories.size() == 1);
  const report::ParameterHistory& history = histories.front();
  CHECK(history.expected == std::vector<std::string>{"(g0+g1)/2"});
  REQUIRE(history.entries.size() == 2);
  CHECK(history.entries[0].changes.size() == 2);
  CHECK(history.entries[0].groups.empty());
  CHECK(history.entries[1].groups == std::vector<std::vector<int>>{{0, 1}});
  CHECK(history.entries[1].changes.front().marks == "*✗");
  CHECK(history.formulas == std::vector<std::string>{"g0", "g1", "g0 + g1"});
}

TEST_CASE("Lines to look at: the step at fault where the file has it") {
  CheckResult result = check(wrong_on(R"({ "dp": 2 })"));
  result.blame = {{"sum", "adds"}};
  const std::vector<report::FaultMark> marks = report::fault_marks(result);
  REQUIRE(marks.size() == 1);
  CHECK(marks[0].line == 6);
  CHECK(marks[0].last_line == 6);
  CHECK(marks[0].what == "step at fault");
  result.verdict = Verdict::match;
  CHECK(report::fault_marks(result).empty());
}

TEST_CASE("Lines to look at stand in the order in which they begin, one around others first") {
  CheckResult result = check(R"({ "lockstep": 1, "layout": { "dp": 2 },
  "model": { "parameters": [ { "name": "w", "shape": [4] } ] },
  "batch": { "micro_batches": 1, "tokens": "even" },
  "schedule": { "steps": [
    { "name": "micro_batches", "op": "each", "steps": [
      { "name": "backward", "op": "backward" },
      { "name": "sum", "op": "all_reduce", "over": "dp" }
    ] }
  ] } })");
  result.blame = {{"sum", "adds"}, {"micro_batches", "adds"}};
  std::vector<std::pair<int, int>> lines;
  for (const report::FaultMark& mark : report::fault_marks(result)) lines.emplace_back(mark.line, mark.last_line);
  CHECK(lines == std::vector<std::pair<int, int>>{{5, 8}, {7, 7}});
}
