// SPDX-License-Identifier: Apache-2.0
#include "tests/symbolic/formula_world.h"

using namespace formula_test;

TEST_CASE("any algebra of a formula is the same formula") {
  const Schedule all = schedule_of(layout(1, 4, 1), {parameter("weight")}, {2});
  const Buffer buffer(all, 0);
  const std::vector<Term> expected = buffer.parse("g3 + (g0+g1)/2");
  for (const char* text : {"g3+g0/2+g1/2", "(2*g3 + g0 + g1)/2", "0.5*(g0 + g1) + g3", "g3 - -(g0+g1)*(1/2)",
                           "0 + g3 + (g0+g1)/2", "g3.0 + g3.1 + (g0.0+g0.1+g1)/2", "g2 + g3 + g0/2 + g1/2 - g2",
                           "g3 + 5e-1*(g0+g1)", "g3 + (g0+g1)/2e0", "g3 + (g0+g1)*5e-1"}) {
    INFO(text);
    CHECK(same_terms(buffer.parse(text), expected));
  }
  CHECK(buffer.parse("g0 - g0").empty());
  CHECK(buffer.parse("0").empty());
}

TEST_CASE("a formula that is none is explained at its place") {
  const Schedule all = schedule_of(layout(2, 2, 1), {parameter("weight")}, {2});
  const Buffer buffer(all, 0);
  CHECK(buffer.error("") == "0: expected a gradient such as \"g3\", but the formula ends");
  CHECK(buffer.error("g0 + ?") == "5: expected a gradient such as \"g3\"");
  CHECK(buffer.error("g0 +") == "4: expected a gradient such as \"g3\", but the formula ends");
  CHECK(buffer.error("g0 g2") == "3: expected an operator or the end of the formula");
  CHECK(buffer.error("(g0") == "3: expected \")\"");
  CHECK(buffer.error("g0*g2") == "2: two gradients cannot be multiplied: formulas are linear");
  CHECK(buffer.error("1/g0") == "1: a formula cannot divide by a gradient");
  CHECK(buffer.error("g0/0") == "2: division by zero");
  CHECK(buffer.error("g0 + 1") == "3: a number and a gradient cannot be added; multiply the number with a gradient");
  CHECK(buffer.error("2") == "0: a formula is made of gradients, as in \"(g0+g1)/2\", but this is the number 2");
  CHECK(buffer.error("g9") == "0: there is no rank 9; there are 4 ranks, counted from 0");
  CHECK(buffer.error("g") ==
        "0: a gradient needs its rank, as in \"g3\"; \"g\" by itself stands in \"sum(g, AXES)\" alone");
  CHECK(buffer.error("g0.7") ==
        "0: there is no micro-batch 7; there are 2, counted from 0 through the optimizer steps");
  CHECK(buffer.error("g0.aux") == "0: the parameter has no use \"aux\"");
  CHECK(buffer.error("g1") ==
        "0: rank 1 contributes nothing here under the name \"g1\"; where several ranks compute the same, the lowest "
        "names it");
  CHECK(buffer.error("h0") ==
        "0: \"h0\" is no gradient (write \"g3\" for rank 3's), and no step leaves a leftover of that name");
  CHECK(buffer.error("g0[wieght]") == "3: there is no parameter \"wieght\"" + did_you_mean("wieght", {"weight"}));
  CHECK(buffer.error("g0[weight") == "2: \"[\" has no \"]\"");
  CHECK(
      buffer.error("sum(g, ep)")
          .starts_with("7: a sum runs over tp, cp, sp, dp, pp, dp_shard, dp_replicate and micro_batch; found \"ep\""));
  CHECK(buffer.error("sum(g.1, dp, micro_batch)") == "13: the sum names one micro-batch and runs over all of them");
  CHECK(buffer.error("'x") == "0: this name has no closing quote \"'\"");
}

TEST_CASE("a mistake covers the characters that are wrong, one at least") {
  const Schedule all = schedule_of(layout(1, 2, 1), {parameter("weight")});
  const Buffer buffer(all, 0);
  const auto length_of = [&](const std::string& text) -> std::size_t {
    try {
      buffer.parse(text);
    } catch (const ExpressionError& error) {
      return error.length;
    }
    return 0;
  };
  CHECK(length_of("g0 + ?") == 1);
  CHECK(length_of("g0 +") == 1);
  CHECK(length_of("g0 + hello") == 5);
  CHECK(length_of("g0[wieght] + g1") == 6);
}

TEST_CASE("parameter names may hold the characters of a bracket") {
  const Schedule all = schedule_of(layout(1, 2, 1), {parameter("weight"), parameter("a[0]+1@2")});
  const Buffer buffer(all, 0);
  const std::vector<Term> terms = buffer.parse("g0[a[0]+1@2+7]");
  REQUIRE(terms.size() == 1);
  CHECK(terms[0].logical == 1);
  CHECK(terms[0].offset == 7);
  CHECK(buffer.print(terms) == "g0['a[0]+1@2'+7]");
}

TEST_CASE("a parameter whose name could be read as something else stands in quotes") {
  for (const char* name : {"a+2", "a-2", "a@0", "b]", "x y", "it''s", "''", "[", "a-2b", "a,b", "(w)"}) {
    std::string plain = name;
    for (std::size_t at = 0; (at = plain.find("''", at)) != std::string::npos; ++at) plain.erase(at, 1);
    const Schedule all =
        schedule_of(layout(1, 2, 1), {parameter("weight"), parameter("a"), parameter("b"), parameter(plain)});
    const Buffer buffer(all, 0);
    for (const std::string behind : {"", "+7", "-3"}) {
      const std::string text = "g1['" + std::string(name) + "'" + behind + "]";
      INFO(text);
      CHECK(buffer.again(text) == text);
      CHECK(buffer.parse(text).front().logical == 3);
    }
  }
  // The element two further on of one, and another parameter.
  const Schedule both = schedule_of(layout(1, 2, 1), {parameter("weight"), parameter("a"), parameter("a+2")});
  const Buffer buffer(both, 0);
  CHECK(buffer.again("g0['a'+2] + g1['a+2']") == "g0[a+2] + g1['a+2']");
  CHECK(buffer.parse("g0['a'+2]").front().logical == 1);
}

TEST_CASE("a parameter of letters, digits and the signs of paths stands without quotes") {
  for (const char* name : {"embedding.word_embeddings.weight", "blocks/0/w:1", "layer-norm.weight", "*", "größe"}) {
    const Schedule all = schedule_of(layout(1, 2, 1), {parameter("weight"), parameter(name)});
    const std::string text = "g0[" + std::string(name) + "]";
    CHECK(Buffer(all, 0).again(text) == text);
  }
}

TEST_CASE("what is wrong in a quoted bracket is said at its place") {
  const Schedule all = schedule_of(layout(1, 2, 1), {parameter("weight"), parameter("a+2")});
  const Buffer buffer(all, 0);
  CHECK(buffer.error("g0['a+3']") == "3: there is no parameter \"a+3\"; did you mean \"a+2\"?");
  CHECK(buffer.error("g0['a+2'") == "8: expected \"]\"");
  CHECK(buffer.error("g0['a+2' ]") == "8: expected \"]\"");
  CHECK(buffer.error("g0['a+2'+]") == "8: expected a number of elements");
  CHECK(buffer.error("g0['a+2'@]") == "9: expected a number");
  CHECK(buffer.error("g0['a+2") == "3: this name has no closing quote \"'\"");
  CHECK(buffer.error("g0['a+2'@7]") == "0: rank 7 holds no piece of \"a+2\"");
}

TEST_CASE("deep and long formulas are no crash") {
  const Schedule all = schedule_of(layout(1, 2, 1), {parameter("weight")});
  const Buffer buffer(all, 0);
  CHECK(buffer.error(std::string(100000, '(')) == "200: the formula is nested deeper than 200 levels");
  CHECK(buffer.error(std::string(100000, '-')) == "200: the formula is nested deeper than 200 levels");
  std::string text = "g0";
  for (int i = 0; i < 50000; ++i) text += "+g1";
  CHECK(buffer.again(text) == "g0 + 50000*g1");
}

TEST_CASE("what is clipped stands in a parenthesis behind the name of its factor, and reads back") {
  const Schedule all = schedule_of(layout(1, 2, 1), {parameter("weight")}, {1, 1});
  const Buffer buffer(all, 0);
  for (const char* text : {"clip(g0 + g1)", "clip((g0+g1)/2)", "g0 + clip(g1)", "clip0(g0) + clip1(g1)",
                           "clip1.2(clip0(g0))", "clip.1(g0)", "clip(-g0)", "clip(clip(g0 + g1))"}) {
    INFO(text);
    CHECK(buffer.again(text) == text);
  }
  CHECK(buffer.again("clip.0 (g0) + 2*clip(g1)/2") == "clip(g0 + g1)");
  CHECK(buffer.again("clip(clip0(g0))") == buffer.again("clip0(clip(g0))"));
  CHECK(buffer.again("clip(g0) - clip(g0)") == "0");
  CHECK_FALSE(same_terms(buffer.parse("clip(g0)"), buffer.parse("g0")));
  CHECK_FALSE(same_terms(buffer.parse("clip(g0)"), buffer.parse("clip.1(g0)")));
  const std::vector<Term> terms = buffer.parse("clip1.2(g0)");
  REQUIRE(terms.size() == 1);
  CHECK(terms.front().clips == std::vector<ClipFactor>{{1, 2}});
  // In the second step what has no number is that step's.
  CHECK(Buffer(all, 0, 0, 1).parse("clip(g0)").front().clips == std::vector<ClipFactor>{{-1, 1}});
}

TEST_CASE("a factor that is none is explained at its place") {
  const Schedule all = schedule_of(layout(1, 2, 1), {parameter("weight")});
  const Buffer buffer(all, 0);
  CHECK(buffer.error("clip2(g0)") == "0: there is no rank 2; there are 2 ranks, counted from 0");
  CHECK(buffer.error("g0 + clip.1(g0)") ==
        "5: there is no optimizer step 1; there is 1 optimizer step, counted from 0");
  CHECK(buffer.error("clip(2)") == "4: gradients are clipped, not numbers");
  CHECK(buffer.error("clip(g0") == "7: expected \")\"");
  CHECK(buffer.error("clip(g0)*clip(g1)") == "8: two gradients cannot be multiplied: formulas are linear");
  // By itself it is a name like others.
  CHECK(buffer.error("clip") ==
        "0: \"clip\" is no gradient (write \"g3\" for rank 3's), and no step leaves a leftover of that name");
  CHECK(buffer.error("clipped(g0)").starts_with("0: \"clipped\" is no gradient"));
}
