// SPDX-License-Identifier: Apache-2.0
#include "lockstep/report.h"
#include "tests/catch.h"
#include "tests/diagnosis/small.h"

using namespace lockstep;
using namespace lockstep::test;

namespace {

Json report_of(const std::vector<CheckResult>& results, ReportOptions options = {}) {
  std::string text;
  const auto reporter = make_reporter("json", options, [&](std::string_view part) { text += part; });
  for (const CheckResult& result : results) reporter->add(result);
  reporter->finish();
  Diagnostics diagnostics;
  Json json = parse_json(std::make_shared<const Source>(Source{"report", text}), diagnostics);
  REQUIRE(diagnostics.empty());
  return json;
}

std::vector<std::string> keys(const Json& json) {
  std::vector<std::string> names;
  for (const Json::Member& member : json.members()) names.push_back(member.key);
  return names;
}

const Json& at(const Json& json, std::string_view key) {
  const Json* member = json.find(key);
  REQUIRE(member != nullptr);
  return *member;
}

/// Compact text of a value, for comparing.
std::string compact(const Json& json) {
  std::string text = write_json(json, 100000);
  std::string result;
  for (const char c : text) {
    if (c != '\n' && c != ' ') result += c;
  }
  return result;
}

}  // namespace

TEST_CASE("a report has the contract's keys in the contract's order") {
  const Json report = report_of({check_text(megatron_844())});
  CHECK(keys(report) == std::vector<std::string>{"lockstep", "scenario", "file", "source", "layout", "verdict", "step",
                                                 "engines", "expected", "parameters", "norm", "stuck", "errors",
                                                 "diagnosis", "time"});
  CHECK(keys(at(report, "layout")) == std::vector<std::string>{"tp", "cp", "sp", "dp", "dp_shard", "dp_replicate", "pp",
                                                               "ep", "etp", "edp", "world"});
  CHECK(compact(at(report, "engines")) == R"({"symbolic":"mismatch","host":"mismatch"})");
  CHECK(at(report, "expected").is_null());
  CHECK(at(report, "source").is_null());
  CHECK(keys(at(report, "diagnosis")) == std::vector<std::string>{"blame", "repairs"});
}

TEST_CASE("a wrong parameter lists its wrong ranks with formulas, coefficients and hashes") {
  const Json report = report_of({check_text(megatron_844())});
  REQUIRE(at(report, "parameters").items().size() == 2);
  const Json& parameter = at(report, "parameters").items().front();
  CHECK(keys(parameter) ==
        std::vector<std::string>{"name", "tied", "verdict", "replicas_agree", "unowned", "reference", "ranks"});
  CHECK(at(parameter, "name").text() == "word");
  CHECK(at(parameter, "tied").text() == "embedding");
  CHECK(compact(at(parameter, "unowned")) == "[]");
  CHECK(at(at(parameter, "reference"), "formula").text() == "(g0+g1+g2+g3)/2");
  CHECK(at(at(parameter, "reference"), "hash").text().size() == 32);
  REQUIRE(at(parameter, "ranks").items().size() == 1);
  const Json& rank = at(parameter, "ranks").items().front();
  CHECK(keys(rank) == std::vector<std::string>{"rank", "at", "owned", "verdict", "pieces", "hash", "expected_hash"});
  CHECK(at(rank, "rank").text() == "1");
  CHECK(compact(at(rank, "at")) == R"({"pp":0,"dp":1})");
  CHECK(compact(at(rank, "owned")) == "[[40,150]]");
  CHECK(at(rank, "hash").text().size() == 32);
  CHECK(at(rank, "hash").text() != at(rank, "expected_hash").text());
  REQUIRE(at(rank, "pieces").items().size() == 1);
  const Json& piece = at(rank, "pieces").items().front();
  CHECK(keys(piece) == std::vector<std::string>{"elements", "verdict", "formula", "ratio", "coefficients"});
  CHECK(compact(at(piece, "elements")) == "[40,115]");
  CHECK(at(piece, "formula").text() == "g3 + (g0+g1)/2");
  CHECK(at(piece, "ratio").is_null());
  CHECK(compact(at(piece, "coefficients")) == R"([{"rank":0,"micro_batch":0,"use":"word","value":"1/2"},)"
                                              R"({"rank":1,"micro_batch":0,"use":"word","value":"1/2"},)"
                                              R"({"rank":3,"micro_batch":0,"use":"output","value":"1"}])");
}

TEST_CASE("with all, every parameter, rank and owned element is in one piece") {
  ReportOptions options;
  options.all = true;
  const CheckResult result = check_text(megatron_844());
  const Json report = report_of({result}, options);
  CHECK(at(report, "parameters").items().size() == 5);
  std::int64_t covered = 0;
  for (const Json& parameter : at(report, "parameters").items()) {
    for (const Json& rank : at(parameter, "ranks").items()) {
      const std::size_t count = rank.find("ranks") == nullptr ? 1 : rank.find("ranks")->items().size();
      for (const Json& piece : at(rank, "pieces").items()) {
        const std::vector<Json>& ends = at(piece, "elements").items();
        covered += static_cast<std::int64_t>(count) * (std::stoll(ends[1].text()) - std::stoll(ends[0].text()));
      }
    }
  }
  CHECK(covered == 150 + 70 + 150 + 10 + 70);  // each element of each stage has one owner
}

TEST_CASE("ranks with equal content share an entry without a single rank's keys") {
  const Json report = report_of({check_text(two_ranks(R"({ "name": "sum", "op": "all_reduce", "over": "dp" })"))});
  const Json& rank = at(at(report, "parameters").items().front(), "ranks").items().front();
  CHECK(compact(at(rank, "ranks")) == "[0,1]");
  CHECK(rank.find("rank") == nullptr);
  CHECK(at(at(rank, "pieces").items().front(), "ratio").text() == "2");
}

TEST_CASE("hashes are null where the host did not run") {
  CheckOptions options;
  options.host = false;
  const Json report = report_of({check_text(megatron_844(), options)});
  CHECK(compact(at(report, "engines")) == R"({"symbolic":"mismatch"})");
  const Json& parameter = at(report, "parameters").items().front();
  CHECK(at(at(parameter, "reference"), "hash").is_null());
  CHECK(at(at(parameter, "ranks").items().front(), "hash").is_null());
  CHECK(keys(at(report, "time")) == std::vector<std::string>{"symbolic_s"});
}

TEST_CASE("a sampled host says how much it replayed") {
  CheckResult result = check_text(megatron_844());
  HostResult& numbers = numbers_in(result);
  numbers.sampled = true;
  numbers.elements = 10;
  numbers.of = 20;
  CHECK(compact(at(at(report_of({result}), "engines"), "host")) == R"({"verdict":"mismatch","elements":10,"of":20})");
}

TEST_CASE("a deadlock says who waits for whom in which step") {
  const Json report = report_of(
      {check_text(two_ranks(R"({ "name": "lonely", "op": "all_reduce", "over": "dp", "when": "rank.dp == 0" })"))});
  CHECK(at(report, "verdict").text() == "deadlock");
  CHECK(compact(at(report, "stuck")) == R"([{"rank":0,"waits_in":"lonely","for":[1]}])");
  CHECK(at(report, "parameters").items().empty());
}

TEST_CASE("a norm that counts twice is listed rank by rank") {
  const Json report =
      report_of({check_text(two_ranks(R"({ "name": "mean", "op": "all_reduce", "over": "dp", "reduce": "avg" },
    { "name": "grad_norm", "op": "norm", "over": "dp" })"))});
  CHECK(compact(at(report, "norm")) == R"([{"parameter":"weight","rank":0,"counted":"2","expected":"1"},)"
                                       R"({"parameter":"weight","rank":1,"counted":"2","expected":"1"}])");
  CHECK(at(at(report, "parameters").items().front(), "verdict").text() == "mismatch");
}

TEST_CASE("a leftover stands in place of rank and micro-batch") {
  const Json report =
      report_of({check_text(two_ranks(R"({ "name": "mean", "op": "all_reduce", "over": "dp", "reduce": "avg" },
    { "name": "leak", "op": "leftover", "what": "parameter" })"))});
  const Json& piece =
      at(at(at(report, "parameters").items().front(), "ranks").items().front(), "pieces").items().front();
  const Json& last = at(piece, "coefficients").items().back();
  CHECK(keys(last) == std::vector<std::string>{"leftover", "use", "value"});
  CHECK(at(last, "leftover").text() == "parameter");
}

TEST_CASE("a file that is not valid gives errors with line, column and pointer") {
  CheckResult result;
  result.file = "broken.json";
  auto source = std::make_shared<const Source>(Source{"broken.json", "{\n  \"layuot\": {}\n}"});
  result.errors = {{Place{source, 4, 12, "/layuot"}, "unknown key `layuot`"}};
  const Json report = report_of({result});
  CHECK(at(report, "verdict").text() == "error");
  CHECK(at(report, "layout").is_null());
  CHECK(compact(at(report, "errors")) ==
        R"([{"line":2,"column":3,"pointer":"/layuot","message":"unknownkey`layuot`"}])");
}

TEST_CASE("several files make an array, even of none") {
  ReportOptions options;
  options.several = true;
  const CheckResult result = check_text(megatron_844());
  CHECK(report_of({result, result}, options).items().size() == 2);
  CHECK(report_of({}, options).is_array());
}

TEST_CASE("the replays of a race stand with the GPU's engine, and what was left out in a note") {
  CheckResult result = check_text(two_ranks(
      R"({ "name": "sync", "op": "all_reduce", "over": "dp", "async": true }, { "name": "clear", "op": "zero" })"));
  find_the_same(result, "cuda");
  const auto engine = [&] { return compact(at(at(report_of({result}), "engines"), "cuda")); };
  CHECK(engine() == R"("race")");
  const auto detail = std::make_shared<diagnosis::CudaDetail>();
  detail->race = RaceReplays{20, 7, ""};
  engine_in(result, "cuda").detail = detail;
  CHECK(engine() == R"({"verdict":"race","replays":20,"different":7})");
  diagnosis::leave_out(result, "cuda", "the cuda engine was left out: too small");
  CHECK(compact(at(report_of({result}), "notes")).find("thecudaenginewasleftout:toosmall") != std::string::npos);
}
