// SPDX-License-Identifier: Apache-2.0
#include "lockstep/report.h"
#include "tests/catch.h"
#include "tests/diagnosis/small.h"

using namespace lockstep;
using namespace lockstep::test;

namespace {

std::string explain(const ExplainOptions& options) {
  CheckOptions check;
  check.host = false;
  CheckResult result = check_text(megatron_844(), check);
  result.file = "case.json";
  std::string text;
  explain_text(result, options, [&](std::string_view part) { text += part; });
  return text;
}

}  // namespace

TEST_CASE("explain prints the tables of Megatron-LM #844 after every step") {
  const std::string text = explain({});
  INFO(text);
  CHECK(text.find("mismatch  case.json  small\n"
                  "  pp 2 × dp 2 = 4 ranks, 1 micro-batch, loss token_mean over even tokens\n"
                  "  word, elements [0, 150), cut into 3 ranges\n"
                  "\n"
                  "elements [0, 40)\n"
                  "\n"
                  "after zero\n") == 0);
  CHECK(text.find("elements [40, 115)\n"
                  "\n"
                  "after zero\n"
                  "       dp 0   dp 1\n"
                  "pp 0   0      0\n"
                  "pp 1   0      0\n"
                  "\n"
                  "after backward\n"
                  "       dp 0   dp 1\n"
                  "pp 0   g0     g1\n"
                  "pp 1   g2     g3\n"
                  "\n"
                  "after dp_reduce_scatter\n"
                  "       dp 0        dp 1\n"
                  "pp 0   g0 ~        (g0+g1)/2\n"
                  "pp 1   (g2+g3)/2   g3 ~\n"
                  "\n"
                  "after embedding_all_reduce\n"
                  "       dp 0                 dp 1\n"
                  "pp 0   g0 + (g2+g3)/2 ~     g3 + (g0+g1)/2 * ✗\n"
                  "pp 1   g0 + (g2+g3)/2 * ✗   g3 + (g0+g1)/2 ~\n"
                  "\n"
                  "elements [115, 150)\n") != std::string::npos);
  CHECK(text.ends_with("* handed to the optimizer of this cell's rank   ✗ wrong   ~ stale: another rank owns it\n"));
}

TEST_CASE("explain shows four ranges of elements, the wrong one among them, and all on demand") {
  CheckOptions check;
  check.host = false;
  const CheckResult result = check_text(
      scenario_text(
          R"({ "dp": 8 })", R"([ { "name": "weight", "shape": [16] } ])",
          R"([ { "name": "micro_batches", "op": "each", "steps": [ { "name": "backward", "op": "backward" } ] },
           { "name": "mean", "op": "reduce_scatter", "over": "dp", "reduce": "avg", "geometry": { "kind": "flat" } },
           { "name": "twice", "op": "scale", "by": 2, "when": "rank.dp == 6" } ])"),
      check);
  const auto text_of = [&](const ExplainOptions& options) {
    std::string text;
    explain_text(result, options, [&](std::string_view part) { text += part; });
    return text;
  };
  ExplainOptions options;
  const std::string some = text_of(options);
  INFO(some);
  CHECK(some.find("elements [4, 6)\n") != std::string::npos);
  CHECK(some.find("elements [6, 8)\n") == std::string::npos);
  CHECK(some.find("elements [12, 14)\n") != std::string::npos);
  CHECK(some.find("\n… 4 more ranges; --all or -v shows them\n") != std::string::npos);
  options.all = true;
  CHECK(text_of(options).find("elements [14, 16)\n") != std::string::npos);
  CHECK(text_of(options).find("more range") == std::string::npos);
}

TEST_CASE("explain takes a parameter and a step") {
  ExplainOptions options;
  options.parameter = "norm";
  options.step = "dp_reduce_scatter";
  CHECK(explain(options) ==
        "mismatch  case.json  small\n"
        "  pp 2 × dp 2 = 4 ranks, 1 micro-batch, loss token_mean over even tokens\n"
        "  norm, elements [0, 10)\n"
        "\n"
        "after dp_reduce_scatter\n"
        "       dp 0   dp 1\n"
        "pp 1   g2 ~   (g2+g3)/2 *\n"
        "\n"
        "* handed to the optimizer of this cell's rank   ~ stale: another rank owns it\n");
}

TEST_CASE("a parameter or step that does not exist is answered with the nearest") {
  ExplainOptions options;
  options.parameter = "wrod";
  CHECK_THROWS_AS(explain(options), InputError);
  options.parameter.clear();
  options.step = "embedding_all_reduc";
  try {
    explain(options);
    FAIL("no error");
  } catch (const InputError& error) {
    CHECK(error.diagnostics().front().message.find("did you mean \"embedding_all_reduce\"") != std::string::npos);
  }
}

TEST_CASE("explain says of a parameter that no step reaches that none does") {
  const CheckResult result = check_text(scenario_text(
      R"({ "pp": 2 })", R"([ { "name": "w", "shape": [4], "stage": 0 }, { "name": "v", "shape": [4], "stage": 1 } ])",
      R"([ { "name": "micro_batches", "op": "each",
             "steps": [ { "name": "backward", "op": "backward", "params": ["v"] } ] } ])"));
  ExplainOptions options;
  options.parameter = "w";
  std::string text;
  explain_text(result, options, [&](std::string_view part) { text += part; });
  CHECK(text.find("  w, elements [0, 4)\n\nno step of this schedule acts on it\n") != std::string::npos);
}

TEST_CASE("explain shows the stage at which the parameter stands that was asked for, among many that are tied") {
  std::string parameters;
  for (int stage = 0; stage < 30; ++stage)
    parameters += std::string(stage > 0 ? ", " : "") + R"({ "name": "w)" + std::to_string(stage) +
                  R"(", "shape": [4], "tied": "w", "stage": )" + std::to_string(stage) + " }";
  const CheckResult result = check_text(scenario_text(
      R"({ "pp": 30 })", "[ " + parameters + " ]",
      R"([ { "name": "micro_batches", "op": "each", "steps": [ { "name": "backward", "op": "backward" } ] },
           { "name": "tie", "op": "all_reduce", "over": "pp" } ])"));
  ExplainOptions options;
  options.parameter = "w29";
  std::string text;
  explain_text(result, options, [&](std::string_view part) { text += part; });
  INFO(text);
  CHECK(text.find("\npp 0 ") != std::string::npos);
  CHECK(text.find("\npp 29 ") != std::string::npos);
  CHECK(text.find("\npp 20 ") == std::string::npos);
}
