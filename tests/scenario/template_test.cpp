// SPDX-License-Identifier: Apache-2.0
// Names of "let" that stand for names of "let" share what they stand for.
#include "src/scenario/template.h"

#include <fmt/format.h>

#include <set>
#include <utility>
#include <vector>

#include "src/base/budget.h"
#include "src/expression/node.h"
#include "tests/catch.h"

using namespace lockstep;
using scenario::Template;

namespace {

Json json_of_text(const std::string& text) {
  Diagnostics none;
  return parse_json(std::make_shared<const Source>(Source{"ours.jsonc", text}), none);
}

/// A template that keeps sizes, at a layout of so many data parallel ranks.
struct Kept {
  explicit Kept(int dp) : mesh(with(dp)) {
    Environment environment;
    environment.mesh = &mesh;
    values.emplace(environment, diagnostics);
    values->keep_sizes();
  }
  static Layout with(int dp) {
    Layout layout;
    layout.dp = layout.dp_shard = dp;
    return layout;
  }
  void let(const std::string& json) { values->define_all(json_of_text(json)); }
  std::optional<bool> condition(const std::string& text) { return values->condition(Json::string(text)); }

  Mesh mesh;
  Diagnostics diagnostics;
  std::optional<Template> values;
};

/// `a0` is `first`, and each further name up to a`last` what `next` makes of "@", the name before.
std::string chain(const std::string& first, const std::string& next, int last) {
  std::string json = fmt::format(R"({{"a0": "{}")", first);
  for (int i = 1; i <= last; ++i) {
    std::string text = next;
    for (std::size_t at = text.find('@'); at != std::string::npos; at = text.find('@'))
      text.replace(at, 1, fmt::format("a{}", i - 1));
    json += fmt::format(R"(, "a{}": "{}")", i, text);
  }
  return json + "}";
}

/// Different nodes, each counted once.
std::size_t nodes(const Expression& expression) {
  std::set<const Expression::Node*> seen;
  const auto visit = [&](const auto& self, const Expression::Node& node) -> void {
    if (!seen.insert(&node).second) return;
    for (const auto& child : node.children) self(self, *child);
  };
  visit(visit, expression.tree());
  return seen.size();
}

bool at(const Expression& condition, int dp) {
  const Mesh mesh(Kept::with(dp));
  Environment environment;
  environment.mesh = &mesh;
  return condition.truth(environment);
}

}  // namespace

TEST_CASE("a chain of names of which each stands twice for the one before has as many nodes as it is long") {
  Kept kept(2);
  kept.let(chain("dp + 1", "@ + @", 40));
  REQUIRE(kept.diagnostics.empty());
  REQUIRE(kept.condition("a40 > 5497558138880") == false);  // 2^40 * 5
  REQUIRE(kept.values->decided().size() == 1);
  const Expression& condition = *kept.values->decided().begin();
  CHECK(nodes(condition) <= 45);
  CHECK(condition.names() == std::set<std::string>{"dp"});
  CHECK_FALSE(condition.uses_rank());
  for (const int dp : {1, 2, 3, 4, 5, 6, 7, 100, 4096}) CHECK(at(condition, dp) == (dp > 4));
}

TEST_CASE("two readings of one chain come to one condition, and another chain to another") {
  Kept one(2), other(3), longer(2);
  one.let(chain("dp + 1", "@ + @", 40));
  other.let(chain("dp + 1", "@ + @", 40));
  longer.let(chain("dp + 2", "@ + @", 40));
  for (Kept* kept : {&one, &other, &longer}) REQUIRE(kept->condition("a40 > 5") == true);
  CHECK(one.values->decided() == other.values->decided());
  CHECK_FALSE(one.values->decided() == longer.values->decided());
  Expressions all = one.values->decided();
  all.insert(other.values->decided().begin(), other.values->decided().end());
  CHECK(all.size() == 1);
  all.insert(longer.values->decided().begin(), longer.values->decided().end());
  CHECK(all.size() == 2);
}

TEST_CASE("a condition on a chain is a guard of its faults and of its rules, which are as short") {
  Kept kept(2);
  kept.let(chain("dp - 2 + 1", "@ + @", 40));
  kept.let(R"json({"quotient": {"if": "a40 > 0", "then": "1 / (a40 - 1)", "else": "1"}})json");
  kept.values->apply_rules(json_of_text(R"json([{"refuse": "a40 > 1099511627776", "because": "large"}])json"),
                           [](const auto&) { return Place{}; });
  REQUIRE(kept.values->rules().size() == 1);
  const Expression& rule = kept.values->rules().begin()->first;
  CHECK(nodes(rule) <= 60);
  for (const int dp : {1, 2, 3, 4}) CHECK(at(rule, dp) == (dp > 2));
  REQUIRE(kept.condition("quotient > 0") == true);
  for (const Expression& condition : kept.values->decided()) CHECK(nodes(condition) <= 100);
}

TEST_CASE("whether a divisor is above 0 is seen of a chain, of each part once") {
  const std::vector<std::pair<std::string, bool>> chains = {
      {"@ + @", true},         {"ceil(@) + ceil(@)", true}, {"ceil(@ / 2) * lcm(2, ceil(@))", true},
      {"min(@, @ + 1)", true}, {"max(@ - 1, @)", true},     {"floor(@) + floor(@)", false},
      {"@ - @ / 2", false}};
  for (const auto& [next, is_seen] : chains) {
    INFO(next);
    Kept kept(2);
    kept.let(chain("dp", next, 30));
    REQUIRE(kept.diagnostics.empty());
    // Each name that may have too many digits has a condition of its own, and so has the quotient by such a one.
    const std::size_t chain = kept.values->decided().size();
    CHECK(chain <= 30);
    kept.let(R"json({"quotient": "1 / a30"})json");
    REQUIRE(kept.condition("quotient > 0") == true);
    const std::size_t more = kept.values->decided().size() - chain;
    CHECK((chain == 0 ? more == (is_seen ? 1 : 2) : more <= 3));
  }
}

TEST_CASE("what must be written as text, and what is too deep, is undecided with the name that makes it so") {
  Kept kept(2);
  kept.let(chain("dp + 1", "@ + @", 40));
  CHECK(kept.values->substitute(Json::string("a4 / 2")).text().size() < 200);
  try {
    kept.values->substitute(Json::string("a3 / a40"));
    FAIL("a text of 2^40 sums was written");
  } catch (const OverBudget& over) {
    CHECK(std::string(over.what()) ==
          "the name \"a40\" in \"let\" (ours.jsonc:1) has more than 10000 characters, written out in sizes");
  }
  // Of which none is too long by itself.
  try {
    kept.values->substitute(Json::string("a9 + a9 + a9"));
    FAIL("a text of 3 * 2^9 sums was written");
  } catch (const OverBudget& over) {
    CHECK(std::string(over.what()) ==
          "the expression \"a9 + a9 + a9\" has more than 10000 characters, written out in sizes");
  }
  Kept deep(2);
  try {
    deep.let(chain("dp + 1", "1 + @", 1100));
    FAIL("a tree of 1100 levels was made");
  } catch (const OverBudget& over) {
    CHECK(std::string(over.what()) ==
          "the name \"a999\" in \"let\" (ours.jsonc:1) is an expression too deep, written out in sizes");
  }
}

TEST_CASE("a name of a string is not taken for the size of that name") {
  Kept kept(2);
  kept.let(R"json({"axis": "'dp'", "sized": "dp * 2"})json");
  REQUIRE(kept.condition("axis == 'dp' and sized == 4") == true);
  REQUIRE(kept.values->decided().size() == 1);
  CHECK(kept.values->decided().begin()->to_string() == "dp * 2 == 4");
}
