// SPDX-License-Identifier: Apache-2.0
#include "lockstep/diagnostic.h"
#include "src/numeric/loops.h"
#include "tests/catch.h"

using namespace lockstep;

TEST_CASE("the fastest loops are used unless others are named, and a name that is none is a mistake") {
  const std::vector<numeric::Loops>& list = numeric::available_loops();
  REQUIRE_FALSE(list.empty());
  CHECK(list.back().target == "portable");
  CHECK(&numeric::loops_named(nullptr) == &list.front());
  CHECK(&numeric::loops_named("") == &list.front());
  for (const numeric::Loops& loops : list) CHECK(&numeric::loops_named(loops.target.c_str()) == &loops);
  try {
    numeric::loops_named("protable");
    FAIL("there are such loops");
  } catch (const InputError& error) {
    const std::string& message = error.diagnostics().front().message;
    CHECK(message.starts_with(
        "LOCKSTEP_TARGET is \"protable\", which this machine or this build does not have; known are "));
    CHECK(message.find("portable; did you mean") != std::string::npos);
  }
}
