// SPDX-License-Identifier: Apache-2.0
#include "src/report/elide.h"

#include "src/report/style.h"
#include "tests/catch.h"

using namespace lockstep;

TEST_CASE("a formula that fits stays as it is") {
  CHECK(report::elided("g3 + (g0+g1)/2", 40) == "g3 + (g0+g1)/2");
  CHECK(report::elided("g3 + (g0+g1)/2", report::unlimited_width) == "g3 + (g0+g1)/2");
}

TEST_CASE("a longer formula is cut after a term and counts its terms") {
  CHECK(report::elided("g0.m0 + 2*g1.m0 + 4*g2.m0 + 8*g3.m0 + 16*g0.m1", 40) ==
        "g0.m0 + 2*g1.m0 + 4*g2.m0 … (5 terms)");
  CHECK(report::elided("-(g0.m0+g1.m0+g2.m0+g3.m0+g0.m1+g1.m1)/2", 30) == "-(g0.m0+g1.m0+…)/2 (6 terms)");
}

TEST_CASE("a term that does not fit is cut in itself, between characters") {
  const std::string cut = report::elided("×××××××××××××××××××××××××××××××××××××××××××××", 20);
  CHECK(report::text_width(cut) <= 20);
  CHECK(cut == "××××××××× … (1 term)");
}
