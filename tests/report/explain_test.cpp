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
  CHECK(explain({}) ==
        "mismatch  case.json  small\n"
        "  pp 2 × dp 2 = 4 ranks, 1 micro-batch\n"
        "  word, elements [40, 115)\n"
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
        "* handed to this rank's optimizer   ✗ wrong   ~ stale: another rank owns it\n");
}

TEST_CASE("explain takes a parameter and a step") {
  ExplainOptions options;
  options.parameter = "norm";
  options.step = "dp_reduce_scatter";
  CHECK(explain(options) ==
        "mismatch  case.json  small\n"
        "  pp 2 × dp 2 = 4 ranks, 1 micro-batch\n"
        "  norm, elements [0, 10)\n"
        "\n"
        "after dp_reduce_scatter\n"
        "       dp 0   dp 1\n"
        "pp 1   g2 ~   (g2+g3)/2 *\n"
        "\n"
        "* handed to this rank's optimizer   ~ stale: another rank owns it\n");
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
