// SPDX-License-Identifier: Apache-2.0
#include "src/report/brief_statement.h"

#include "tests/catch.h"

using lockstep::report::brief_statement;

TEST_CASE("a statement with short lists stays as it is") {
  for (const char* statement : {"right for every size, with sp = 1 and tp = 1", "right only at dp = 1 and tp = 1",
                                "wrong for every size", "wrong at some sizes", "no proof for every size",
                                "wrong as soon as dp ≥ 2 and pp ≥ 2, wherever its cuts give an element these owners",
                                "wrong for every dp ≥ 2 but dp = 3 or dp = 5",
                                "wrong for dp = 2; for dp = 3; for dp = 4; for dp = 5; for dp = 6",
                                "other gradients as soon as dp ≥ 2, or pp ≥ 2, but not at dp = 7"}) {
    INFO(statement);
    CHECK(brief_statement(statement) == statement);
  }
}

TEST_CASE("of many conditions the simplest are told, and how many more there are") {
  CHECK(
      brief_statement("wrong as soon as cp ≥ 2 and dp ≥ 30, or dp ≥ 60, or cp ≥ 60, or tp ≥ 2 and dp ≥ 30, or tp ≥ 3, "
                      "cp ≥ 3 and dp ≥ 7, or tp ≥ 60") ==
      "wrong as soon as dp ≥ 60, or cp ≥ 60, or tp ≥ 60, or one of 3 more conditions holds (-v prints all)");
  CHECK(
      brief_statement("other gradients as soon as dp ≥ 1, or dp ≥ 2, or dp ≥ 3, or dp ≥ 4, or dp ≥ 5, or dp ≥ 60, but "
                      "not at dp = 7, of the sizes that could be followed") ==
      "other gradients as soon as dp ≥ 1, or dp ≥ 2, or dp ≥ 3, or one of 3 more conditions holds, but not at dp = 7, "
      "of the sizes that could be followed (-v prints all)");
}

TEST_CASE("exceptions that are not told are counted") {
  CHECK(brief_statement("wrong for every dp ≥ 2 but dp = 10 or dp = 3 or dp = 4 or dp = 5 or dp = 6 or dp = 7") ==
        "wrong for every dp ≥ 2 but dp = 3 or dp = 4 or dp = 5 or at one of 3 more sizes (-v prints all)");
  CHECK(
      brief_statement(
          "wrong as soon as dp ≥ 2, or cp ≥ 2, but not at dp = 3 or dp = 4 or dp = 5 or dp = 6 or dp = 7 or "
          "dp = 8") ==
      "wrong as soon as dp ≥ 2, or cp ≥ 2, but not at dp = 3 or dp = 4 or dp = 5 or at one of 3 more sizes (-v prints "
      "all)");
}

TEST_CASE("of many ranges the simplest are told, with what each is unless") {
  CHECK(
      brief_statement("wrong for tp ≥ 2, cp ≥ 2 and dp ≥ 3; for cp = 9; for cp = 11; for tp = 4; for dp = 20; for dp = "
                      "3, of the sizes that could be followed") ==
      "wrong for cp = 9; for tp = 4; for dp = 3; for 3 more ranges of sizes, of the sizes that could be followed (-v "
      "prints all)");
  CHECK(
      brief_statement(
          "wrong for dp ≥ 2; for cp = 1, or cp = 2, or cp = 3, or cp = 4, or cp = 5, or cp = 16 unless cp*dp "
          "= 16") ==
      "wrong for dp ≥ 2; for cp = 1, or cp = 2, or cp = 3, or one of 3 more ranges, unless cp*dp = 16 (-v prints all)");
}

TEST_CASE("what cuts decide is shortened by itself") {
  CHECK(brief_statement(
            "wrong for dp = 5; also wrong as soon as dp ≥ 1, or dp ≥ 2, or dp ≥ 3, or dp ≥ 4, or dp ≥ 5, or dp "
            "≥ 6, wherever its cuts give an element these owners") ==
        "wrong for dp = 5; also wrong as soon as dp ≥ 1, or dp ≥ 2, or dp ≥ 3, or one of 3 more conditions holds, "
        "wherever its cuts give an element these owners (-v prints all)");
}
