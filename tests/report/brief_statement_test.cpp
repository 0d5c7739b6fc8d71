// SPDX-License-Identifier: Apache-2.0
#include "src/report/brief_statement.h"

#include <fmt/format.h>

#include "tests/catch.h"

using lockstep::report::brief_statement;

namespace {

/// "dp ≥ 11, or dp ≥ 12, …": `count` of them.
std::string list(const std::string& relation, const std::string& between, int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += (i == 0 ? "" : between) + fmt::format("{} {}", relation, 11 + i);
  return text;
}

const std::string cut = ", wherever its cuts give an element these owners";

}  // namespace

TEST_CASE("a statement with short lists stays as it is") {
  for (const std::string& statement :
       {std::string("right for every size, with sp = 1 and tp = 1"), std::string("right only at dp = 1 and tp = 1"),
        std::string("wrong for every size"), std::string("wrong at some sizes"), std::string("no proof for every size"),
        "wrong as soon as dp ≥ 2 and pp ≥ 2" + cut, std::string("wrong for every dp ≥ 2 but dp = 3 or dp = 5"),
        "wrong for " + list("dp =", "; for ", 8), "wrong for every size but " + list("dp =", " or ", 8),
        "other gradients as soon as " + list("dp ≥", ", or ", 8) + ", but not at dp = 7"}) {
    INFO(statement);
    CHECK(brief_statement(statement) == statement);
  }
}

TEST_CASE("of many conditions the simplest are told, and how many more there are") {
  CHECK(
      brief_statement("wrong as soon as cp ≥ 2 and dp ≥ 30, or dp ≥ 60, or cp ≥ 60, or tp ≥ 2 and dp ≥ 30, or tp ≥ 3, "
                      "cp ≥ 3 and dp ≥ 7, or tp ≥ 2 and dp ≥ 3, or tp ≥ 60, or tp ≥ 9 and cp ≥ 70, or sp ≥ 10 and cp "
                      "≥ 70") ==
      "wrong as soon as dp ≥ 60, or cp ≥ 60, or tp ≥ 2 and dp ≥ 3, or tp ≥ 60, or one of 5 more conditions holds (-v "
      "prints all)");
  CHECK(
      brief_statement("other gradients as soon as " + list("dp ≥", ", or ", 9) +
                      ", but not at dp = 7, of the sizes that could be followed") ==
      "other gradients as soon as dp ≥ 11, or dp ≥ 12, or dp ≥ 13, or dp ≥ 14, or one of 5 more conditions holds, but "
      "not at dp = 7, of the sizes that could be followed (-v prints all)");
}

TEST_CASE("exceptions that are not told are counted") {
  CHECK(
      brief_statement("wrong for every dp ≥ 2 but " + list("dp =", " or ", 9)) ==
      "wrong for every dp ≥ 2 but dp = 11 or dp = 12 or dp = 13 or dp = 14 or at one of 5 more sizes (-v prints all)");
  CHECK(brief_statement("wrong as soon as dp ≥ 2, or cp ≥ 2, but not at " + list("dp =", " or ", 10)) ==
        "wrong as soon as dp ≥ 2, or cp ≥ 2, but not at dp = 11 or dp = 12 or dp = 13 or dp = 14 or at one of 6 more "
        "sizes (-v prints all)");
}

TEST_CASE("of many ranges the simplest are told, with what each is unless") {
  CHECK(brief_statement("wrong for tp ≥ 2, cp ≥ 2 and dp ≥ 3; for " + list("dp =", "; for ", 8) +
                        ", of the sizes that could be followed") ==
        "wrong for dp = 11; for dp = 12; for dp = 13; for dp = 14; for 5 more ranges of sizes, of the sizes that could "
        "be followed (-v prints all)");
  CHECK(
      brief_statement("wrong for dp ≥ 2; for " + list("cp =", ", or ", 9) + " unless cp*dp = 16; for pp = 2") ==
      "wrong for dp ≥ 2; for cp = 11, or cp = 12, or cp = 13, or cp = 14, or one of 5 more ranges, unless cp*dp = 16; "
      "for pp = 2 (-v prints all)");
}

TEST_CASE("what cuts decide is shortened by itself") {
  CHECK(brief_statement("wrong for dp = 5; also wrong as soon as " + list("dp ≥", ", or ", 9) + cut) ==
        "wrong for dp = 5; also wrong as soon as dp ≥ 11, or dp ≥ 12, or dp ≥ 13, or dp ≥ 14, or one of 5 more "
        "conditions holds" +
            cut + " (-v prints all)");
}
