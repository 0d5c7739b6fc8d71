// SPDX-License-Identifier: Apache-2.0
#include "src/report/style.h"

#include "tests/catch.h"

using namespace lockstep;

TEST_CASE("ranks are listed in stretches") {
  CHECK(report::rank_list({3}) == "rank 3");
  CHECK(report::rank_list({0, 1}) == "ranks 0, 1");
  CHECK(report::rank_list({0, 1, 2, 3, 8}) == "ranks 0-3, 8");
  CHECK(report::rank_list({0, 2, 4, 6, 8}, 2) == "ranks 0, 2 and 3 more");
}

TEST_CASE("width counts characters, not bytes") {
  CHECK(report::text_width("2 × g") == 5);
  CHECK(report::padded("×", 3) == "×  ");
  CHECK(report::padded("long", 2) == "long");
}

TEST_CASE("without colour a text stays as it is") {
  CHECK(report::Style(false).bad("x") == "x");
  CHECK(report::Style(true).bad("x") == "\x1b[31;1mx\x1b[0m");
}
