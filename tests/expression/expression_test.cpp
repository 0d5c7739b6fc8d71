// SPDX-License-Identifier: Apache-2.0
#include "lockstep/expression.h"

#include "lockstep/batch.h"
#include "lockstep/diagnostic.h"
#include "src/base/budget.h"
#include "src/expression/node.h"
#include "tests/catch.h"

using namespace lockstep;

namespace {

using Names = std::map<std::string, ExpressionValue, std::less<>>;

Layout layout() {
  Layout layout;
  layout.tp = 2, layout.cp = 2, layout.dp = 4, layout.dp_shard = 2, layout.dp_replicate = 2, layout.pp = 2;
  layout.sequence_parallel = true;
  return layout;
}

struct World {
  Mesh mesh{layout()};
  Batch batch;
  Names names;
  Environment environment;

  World() {
    environment.mesh = &mesh;
    environment.counts = &batch;
    environment.names = &names;
  }
  Rational number(const std::string& text) const { return Expression::parse(text).number(environment); }
  bool truth(const std::string& text) const { return Expression::parse(text).truth(environment); }
  std::string error(const std::string& text) const {
    try {
      Expression::parse(text).evaluate(environment);
    } catch (const ExpressionError& mistake) {
      return std::to_string(mistake.offset) + ": " + mistake.what();
    }
    return "";
  }
};

}  // namespace

TEST_CASE("numbers are exact") {
  const World world;
  CHECK(world.number("0.1") == Rational(1, 10));
  CHECK(world.number("5e8") == Rational(500000000));
  CHECK(world.number("0.1+0.2") == Rational(3, 10));
  CHECK(world.error(".5") == "0: the character \".\" has no meaning in an expression");
}

TEST_CASE("operators bind as usual") {
  const World world;
  CHECK(world.number("1+2*3") == 7);
  CHECK(world.number("(1+2)*3") == 9);
  CHECK(world.number("8/4/2") == 1);
  CHECK(world.number("1-2-3") == -4);
  CHECK(world.number("--2*-3") == -6);
  CHECK(world.truth("not 1 == 2 and true"));
  CHECK(world.truth("true or false and false"));
  CHECK(world.truth("1 < 2 or 1/0 == 1"));
  CHECK_FALSE(world.truth("1 > 2 and 1/0 == 1"));
}

TEST_CASE("functions") {
  const World world;
  CHECK(world.number("lcm(4, 6)") == 12);
  CHECK(world.number("min(3, 1/2)") == Rational(1, 2));
  CHECK(world.number("max(3, 1/2, 5)") == 5);
  CHECK(world.number("floor(-1/2)") == -1);
  CHECK(world.number("ceil(7/2)") == 4);
  CHECK(world.number("ceil(4)") == 4);
  CHECK(world.error("lcm(1/2)") == "5: \"lcm\" takes positive whole numbers, but \"1 / 2\" is 1/2");
  CHECK(world.error("lmc(2)") == "0: there is no function \"lmc\"" + did_you_mean("lmc", {"lcm"}));
  CHECK(world.error("floor(1, 2)") == "0: \"floor\" takes one number, found 2");
  CHECK(world.error("min + 1") == "0: \"min\" is a function; write \"min(…)\"");
}

TEST_CASE("names of the layout and the batch have values") {
  World world;
  CHECK(world.number("tp*cp*dp*pp") == world.number("world"));
  CHECK(world.number("dp_shard + dp_replicate + edp + etp") == 2 + 2 + 16 + 1);
  CHECK(world.truth("sequence_parallel"));
  CHECK(world.number("virtual_stages") == 1);
  CHECK(world.number("micro_batches + steps") == 3);
  world.names.emplace("tp", Rational(7));
  world.names.emplace("optimizer", std::string("adam"));
  CHECK(world.number("tp") == 7);
  CHECK(world.truth("optimizer == 'adam' and optimizer != 'sgd'"));
  CHECK(world.error("optimiser == 'adam'") ==
        "0: there is no name \"optimiser\" here" + did_you_mean("optimiser", {"optimizer"}));
}

TEST_CASE("coordinates of the rank are known where there is a rank") {
  World world;
  CHECK(world.error("rank.tp") == "0: this depends on the rank, and there is no rank here");
  world.environment.rank = 31;
  CHECK(world.number("rank.tp + 10*rank.cp + 100*rank.dp + 1000*rank.pp") == 1311);
  CHECK(world.number("rank.dp_shard + 10*rank.dp_replicate + 100*rank.sp") == 11);
  CHECK(world.number("rank.edp + rank.ep + rank.etp") == 15);
  CHECK(world.truth("rank.pp == last and last == rank.dp and rank.sp == first"));
  CHECK(world.error("rank.dq") == "0: there is no axis \"dq\"" + did_you_mean("dq", {"dp"}));
  CHECK(world.error("rank") == "0: \"rank\" by itself is no number; write \"rank.AXIS\", as in \"rank.pp\"");
}

TEST_CASE("first and last need something that has ends") {
  World world;
  const std::string why = "can only be compared with rank.AXIS, micro_batch or step, as in \"rank.pp == last\"";
  CHECK(world.error("last") == "0: \"last\" " + why);
  CHECK(world.error("rank.pp == last - 1") == "11: \"last\" " + why);
  CHECK(world.error("1 == last") == "5: \"last\" " + why);
  CHECK(world.error("last == last") == "0: \"last\" " + why);
  world.environment.step = 0;
  world.environment.micro_batch = 1;
  CHECK(world.truth("micro_batch == last and step == last and step == first"));
}

TEST_CASE("micro_batches are those of the optimizer step") {
  World world;
  world.batch.micro_batch_counts = {2, 3};
  CHECK(world.error("micro_batches") ==
        "0: \"micro_batches\" has no one value here: optimizer step 0 has 2 micro-batches, step 1 has 3");
  world.environment.step = 1;
  CHECK(world.number("micro_batches") == 3);
  world.environment.micro_batch = 2;
  CHECK(world.truth("micro_batch == last"));
}

TEST_CASE("the optimizer step may stay unsaid where there is only one") {
  World world;
  world.batch.micro_batch_counts = {2};
  CHECK(world.number("step") == 0);
  world.batch.micro_batch_counts = {2, 2};
  CHECK(world.error("step") == "0: this depends on the optimizer step, and there is none here");
  world.environment.step = 1;
  CHECK(world.number("step") == 1);
}

TEST_CASE("tokens are those of the rank and the micro-batch") {
  World world;
  world.environment.rank = 0;
  world.environment.step = 0;
  CHECK(world.error("tokens") ==
        "0: outside \"each\" there is no current micro-batch; write \"sum(tokens, …, micro_batch)\" for all of them");
  CHECK(world.error("micro_batch") == "0: \"micro_batch\" has a meaning only inside \"each\"");
  world.environment.micro_batch = 1;
  CHECK(world.number("tokens") == 2);
  // dp 0…3 and cp 0, 1 in micro-batch 1: residues 1 2 0 1 and 2 0 1 2.
  CHECK(world.number("sum(tokens, dp)") == 2 + 4 + 1 + 2);
  CHECK(world.number("sum(tokens, dp, cp)") == 9 + 4 + 1 + 2 + 4);
  CHECK(world.number("sum(tokens, dp_shard, dp_replicate)") == 9);
  CHECK(world.number("sum(tokens, dp_replicate)") == 2 + 1);
  CHECK(world.number("sum(tokens, dp_shard)") == 2 + 4);
  CHECK(world.number("sum(tokens.aux, micro_batch)") == 1 + 2);
  CHECK(world.error("sum(tokens, tp)") ==
        "12: the tokens are not split along \"tp\"; sum them over dp, cp, sp or micro_batch");
  CHECK(world.error("sum(tp, dp)") == "4: \"sum\" adds up tokens: write \"sum(tokens, AXES, micro_batch)\"");
  world.environment.rank = 2;  // cp 1
  CHECK(world.number("tokens") == 4);
  CHECK(world.number("sum(tokens, micro_batch)") == 2 + 4);
}

TEST_CASE("a number may have an exponent, with or without a sign") {
  const World world;
  CHECK(world.number("2e3") == 2000);
  CHECK(world.number("2E+3") == 2000);
  CHECK(world.number("2e-3") == Rational(1, 500));
  CHECK(world.number("2.5e+1 + 1") == 26);
}

TEST_CASE("an expression that nobody wrote is the number 0") { CHECK(Expression().number({}) == 0); }

TEST_CASE("mistakes are sentences at their place") {
  const World world;
  CHECK(world.error("") == "0: the expression is empty");
  CHECK(world.error("1 +") == "3: expected a value, but the expression ends");
  CHECK(world.error("(1") == "2: expected \")\", but the expression ends");
  CHECK(world.error("1 2") == "2: expected an operator or the end of the expression, but found \"2\"");
  CHECK(world.error("1 < 2 < 3") == "6: comparisons do not chain; write \"a < b and b < c\"");
  CHECK(world.error("2tp") == "1: a number ends here and a name begins; write \"2*NAME\" for a product");
  CHECK(world.error("tp = 2") == "3: write \"==\" to compare");
  CHECK(world.error("tp && 2") == "3: write \"and\" for \"&&\"");
  CHECK(world.error("2 × 3") == "2: the character \"×\" has no meaning in an expression");
  CHECK(world.error("'x") == "0: this string has no closing quote \"'\"");
  CHECK(world.error("1/(tp-2)") == "1: division by zero: \"tp - 2\" is 0 here");
  CHECK(world.error("10 + 3/(tp-2)") == "6: division by zero: \"tp - 2\" is 0 here");
  CHECK(world.error("1 + true") == "4: expected a number, but found the truth value true");
  CHECK(world.error("tp and true") == "0: expected a truth value, but \"tp\" is the number 2");
  CHECK(world.error("tp == 'a'") == "3: \"==\" compares values of one kind, but found the number 2 and the string 'a'");
  CHECK(world.error("1e999") == "0: the number \"1e999\" is out of range");
}

TEST_CASE("deep and long expressions are errors, not crashes") {
  const World world;
  CHECK(world.number(std::string(150, '(') + "1" + std::string(150, ')')) == 1);
  CHECK(world.error(std::string(100000, '(')) == "200: the expression is nested deeper than 200 levels");
  CHECK(world.error(std::string(100000, '-')) == "200: the expression is nested deeper than 200 levels");
  std::string beside = "(1)";
  for (int i = 0; i < 300; ++i) beside += "+(1)";
  CHECK(world.number(beside) == 301);
  std::string sum = "1";
  for (int i = 0; i < 100000; ++i) sum += "+1";
  CHECK(world.error(sum).find("more than 1000 operators in a row") != std::string::npos);
  CHECK(world.number(sum.substr(0, 1001)) == 501);
}

TEST_CASE("constants depend on nothing that varies") {
  World world;
  world.environment.rank = 3;
  world.environment.micro_batch = 0;
  const auto constant = [&](const std::string& text) { return Expression::parse(text).constant(world.environment); };
  CHECK(constant("tp*2") == ExpressionValue(Rational(4)));
  CHECK(constant("rank.sp") == ExpressionValue(Rational(0)));
  CHECK(constant("rank.sp == last") == ExpressionValue(true));
  CHECK_FALSE(constant("rank.tp"));
  CHECK_FALSE(constant("micro_batch"));
  CHECK_FALSE(constant("tokens"));
  CHECK_FALSE(constant("rank.pp == last"));
  CHECK(constant("rank.tp == 0 and tp == 3") == ExpressionValue(false));
  CHECK(constant("tp == 2 or rank.tp == 0") == ExpressionValue(true));
  world.batch.micro_batch_counts = {1, 2};
  CHECK_FALSE(constant("micro_batches"));
}

TEST_CASE("substitution works out what it can") {
  Names names;
  names.emplace("average", true);
  names.emplace("factor", Rational(1, 3));
  names.emplace("kind", std::string("it's"));
  const auto substituted = [&](const std::string& text) {
    return Expression::parse(text).substitute(names).to_string();
  };
  CHECK(substituted("average and rank.pp == last") == "rank.pp == last");
  CHECK(substituted("rank.pp == last and not average") == "false");
  CHECK(substituted("dp / factor") == "dp / (1/3)");
  CHECK(substituted("dp * (2 + 1)") == "dp * 3");
  CHECK(substituted("1 / (factor - factor)") == "1 / 0");
  CHECK(substituted("kind == other") == "'it''s' == other");
  CHECK(substituted("micro_batch == last") == "micro_batch == last");
}

TEST_CASE("text reads back to the same expression") {
  const std::string texts[] = {"a - (b - c)",           "(a + b) * c / d",
                               "a / (b * c)",           "-(a + b) * -c",
                               "a - -2 * -b",           "not (a == b or c < d) and e",
                               "(a == b) == (c == d)",  "lcm(n, 128) + sum(tokens.aux, dp, micro_batch) + tokens",
                               "rank.dp_shard != last", "step >= 1 or micro_batch == first",
                               "kind == 'ad''am'"};
  for (const std::string& text : texts) {
    CHECK(Expression::parse(text).to_string() == text);
  }
  CHECK(Expression(ExpressionValue(Rational(-1, 3))).to_string() == "-1/3");
}

TEST_CASE("an expression knows on what it depends") {
  const auto parse = [](const char* text) { return Expression::parse(text); };
  CHECK(parse("rank.pp").uses_rank());
  CHECK(parse("tokens").uses_rank());
  CHECK(parse("sum(tokens, dp, micro_batch)").uses_rank());
  CHECK_FALSE(parse("sum(tokens, dp_shard, dp_replicate, cp, sp, micro_batch)").uses_rank());
  CHECK_FALSE(parse("sum(tokens, dp, micro_batch)").uses_micro_batch());
  CHECK(parse("sum(tokens, dp)").uses_micro_batch());
  CHECK(parse("1/micro_batches").uses_step());
  CHECK_FALSE(parse("1/dp").uses_step());
  CHECK(parse("a*dp + min(b, a)").names() == std::set<std::string>{"a", "b", "dp"});
}

namespace {

/// 2^40 times a name, as sums of 40 nodes.
Expression doubled(const char* name) {
  auto node = expression::name_node(name);
  for (int i = 0; i < 40; ++i) node = expression::binary_node("+", node, node);
  return Expression::of(node);
}

}  // namespace

TEST_CASE("what walks a tree of shared parts looks at each once") {
  const World world;
  const Expression expression = doubled("dp");
  CHECK(expression.number(world.environment) == Rational(std::int64_t{4} << 40));
  CHECK(expression.names() == std::set<std::string>{"dp"});
  CHECK_FALSE(expression.uses_rank());
  CHECK(expression == doubled("dp"));
  CHECK_FALSE(expression == doubled("tp"));
  const ExpressionOrder before;
  CHECK(before(expression, doubled("tp")) != before(doubled("tp"), expression));
  CHECK_FALSE(before(expression, doubled("dp")));
  CHECK_FALSE(before(doubled("dp"), expression));
  CHECK(expression.substitute({{"dp", Rational(3)}}).number({}) == Rational(std::int64_t{3} << 40));
  CHECK(expression.constant(world.environment) == ExpressionValue(Rational(std::int64_t{4} << 40)));
  // Parts that others share stay shared.
  const Expression other = Expression::parse("2 * x - x").substitute({}, {{"x", expression}});
  CHECK(&*other.tree().children[1] == &expression.tree());
  CHECK(other.number(world.environment) == Rational(std::int64_t{4} << 40));
}

TEST_CASE("a tree whose text has no end is cut in messages, and in parts with names where all of it is needed") {
  const Expression expression = doubled("dp");
  CHECK_FALSE(expression::print(expression.tree(), 10'000).has_value());
  CHECK_THROWS_AS(expression.to_string(), OverBudget);
  const std::string shown = expression::shown(expression.tree());
  CHECK(shown.size() <= 1010);
  CHECK(shown.starts_with("dp + dp + (dp + dp) + "));
  expression::SharedText text;
  CHECK(text.print(Expression::parse("1 + x > 2").substitute({}, {{"x", expression}}).root()) ==
        "1 + (shared_39 + shared_39) > 2");
  REQUIRE(text.names().size() == 39);
  CHECK(text.names()[0] == std::pair<std::string, std::string>("shared_1", "dp + dp"));
  CHECK(text.names()[38].second == "shared_38 + shared_38");
  // What was named before has its name in another tree as well.
  CHECK(text.print(Expression::parse("-x").substitute({}, {{"x", expression}}).root()) == "-(shared_39 + shared_39)");
}

TEST_CASE("the order of expressions is total, and no two of one text differ") {
  const std::vector<std::string> texts = {"1",
                                          "2",
                                          "'x'",
                                          "true",
                                          "dp",
                                          "tp",
                                          "rank.dp",
                                          "rank.tp",
                                          "micro_batch",
                                          "step",
                                          "tokens",
                                          "tokens.b",
                                          "-dp",
                                          "not true",
                                          "dp + 1",
                                          "1 + dp",
                                          "dp - 1",
                                          "dp * tp",
                                          "min(dp, tp)",
                                          "max(dp, tp)",
                                          "sum(tokens, dp)",
                                          "sum(tokens, cp)",
                                          "sum(tokens, dp, micro_batch)",
                                          "rank.pp == last",
                                          "rank.pp == first"};
  const ExpressionOrder before;
  Expressions all;
  for (const std::string& text : texts) {
    all.insert(Expression::parse(text));
    CHECK_FALSE(before(Expression::parse(text), Expression::parse(" " + text + " ")));
  }
  CHECK(all.size() == texts.size());
  for (const std::string& a : texts) {
    for (const std::string& b : texts) {
      const Expression one = Expression::parse(a), other = Expression::parse(b);
      CHECK(before(one, other) + before(other, one) == (a == b ? 0 : 1));
    }
  }
}
