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

TEST_CASE("what stands behind the brackets of a cut formula is told, of each that is open") {
  CHECK(report::elided("clip((g0+g1+g2+g3+g4+g5+g6+g7+g8)/16)", 34) == "clip((g0+g1+g2+g3+…)/16) (9 terms)");
  CHECK(report::elided("clip((g0+g1+g2+g3+g4+g5+g6+g7+g8)/16) + g9", 38) == "clip((g0+g1+g2+g3+…)/16) … (10 terms)");
  CHECK(report::elided("clip3.1(clip(2*(g0+g1+g2+g3+g4+g5+g6+g7+g8)/16)/2)/4", 44) ==
        "clip3.1(clip(2*(g0+g1+…)/16)/2)/4 (9 terms)");
  // With terms beside them.
  CHECK(report::elided("clip((g0+g1+g2+g3+g4+g5)/16 + g6 + clip(g7+g8)/2)/3 + g9", 38) ==
        "clip((g0+g1+g2+…)/16+…)/3 … (10 terms)");
  CHECK(report::elided("clip(clip(g0 + g1 + g2) + (g3+g4)/2 + g5 + g6 + g7)", 47) ==
        "clip(clip(g0 + g1 + g2) + (g3+…)/2+…) (8 terms)");
}

TEST_CASE("signs in a name are no terms") {
  CHECK(report::elided("g0['a+2'+5] + g1['a-2'@3] + g2[b+1] + g3", 37) == "g0['a+2'+5] + g1['a-2'@3] … (4 terms)");
  CHECK(report::elided("g0['(a'] + 2*(g1['it''s+1']+g2+g3+g4+g5+g6+g7)/3", 44) ==
        "g0['(a'] + 2*(g1['it''s+1']+…)/3 (8 terms)");
  CHECK(report::elided("sum(g['a+b'], cp, dp, micro_batch) + g1", 30) == "sum(g['a+b'], cp, … (2 terms)");
  CHECK(report::elided("g0[(a] + (g1+g2+g3+g4+g5+g6+g7+g8)/3", 33) == "g0[(a] + (g1+g2+g3+…)/3 (9 terms)");
}

TEST_CASE("who can ask for more reads how much more there is") {
  CHECK(report::shortened("g3 + (g0+g1)/2", 40) == "g3 + (g0+g1)/2");
  CHECK(report::shortened("g0.0 + 2*g1.0 + 4*g2.0 + 8*g3.0 + 16*g0.1 + 32*g1.1", 50) ==
        "g0.0 + 2*g1.0 … and 4 more terms (-v prints all)");
  CHECK(report::shortened("-(g0.0+g1.0+g2.0+g3.0+g0.1+g1.1+g2.1+g3.1+g0.2)/2", 48) ==
        "-(g0.0+…)/2 … and 8 more terms (-v prints all)");
  CHECK(report::shortened("(g0+g1+g2+g3+g4+g5+g6+g7+g8)/9 + g9 + g10 + g11", 46) ==
        "(g0+…)/9 … and 11 more terms (-v prints all)");
  CHECK(report::shortened("g0['" + std::string(60, 'n') + "'] + g1", 40) == "g0['nn … and 1 more term (-v prints all)");
  CHECK(report::shortened("g0['" + std::string(60, 'n') + "']", 40) == "g0['nnnnnnnnnnnnnnnnnn … (-v prints all)");
}

TEST_CASE("a sentence is broken at spaces, and formulas are not") {
  const std::string words = "rank 0 gets the gradient";
  CHECK(report::wrapped(words, 4) == words);
  const std::string formula = report::unbroken("g0 + g1 + g2 + g3");
  const std::string filler(110, 'x');
  CHECK(report::wrapped("  " + filler + " gets " + formula + " of w", 4) ==
        "  " + filler + " gets\n    g0 + g1 + g2 + g3 of w");
  // What is wider than a line stands alone.
  const std::string wide(130, 'y');
  CHECK(report::wrapped("a " + wide + " b", 2) == "a\n  " + wide + "\n  b");
  // Spaces at the end begin no line.
  CHECK(report::wrapped(filler + "          ", 4) == filler);
  CHECK(report::wrapped(filler + " " + filler + "   ", 0) == filler + "\n" + filler);
  CHECK(report::wrapped("   ", 4).empty());
  // Colours take up no columns.
  CHECK(report::wrapped("\x1b[1m" + std::string(118, 'z') + "\x1b[0m a", 2) ==
        "\x1b[1m" + std::string(118, 'z') + "\x1b[0m a");
}
