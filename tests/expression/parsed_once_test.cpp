// SPDX-License-Identifier: Apache-2.0
#include "src/expression/parsed_once.h"

#include <optional>
#include <string>

#include "tests/catch.h"

using namespace lockstep;
using expression::ParsedOnce;

namespace {

bool is_shared(const std::string& text) { return &Expression::parse(text).tree() == &Expression::parse(text).tree(); }

}  // namespace

TEST_CASE("a text is parsed once while somebody asks for that, and longer where two do") {
  const Expression before = Expression::parse("dp * 2");
  std::optional<ParsedOnce> outer;
  outer.emplace();
  const Expression first = Expression::parse("dp * 2");
  CHECK(&first.tree() != &before.tree());
  { const ParsedOnce inner; }
  CHECK(&first.tree() == &Expression::parse("dp * 2").tree());
  CHECK(&first.tree() != &Expression::parse("dp*2").tree());
  CHECK(Expression::parse("dp*2").text() == "dp*2");
  outer.reset();
  CHECK(&first.tree() != &Expression::parse("dp * 2").tree());
  CHECK(first.text() == "dp * 2");
}

TEST_CASE("a text that is no expression is refused each time, and a long one is not kept") {
  const ParsedOnce once;
  for (int time = 0; time < 2; ++time) CHECK_THROWS_AS(Expression::parse("dp *"), ExpressionError);
  CHECK(is_shared("dp + 1"));
  CHECK_FALSE(is_shared("dp" + std::string(300, ' ') + "+ 1"));
}
