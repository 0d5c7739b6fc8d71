// SPDX-License-Identifier: Apache-2.0
#include "lockstep/parametric.h"

#include "lockstep/prove.h"
#include "tests/catch.h"

using namespace lockstep;

namespace {

Scenario read_text(const std::string& text) {
  return read_scenario(std::make_shared<const Source>(Source{"test.json", text}));
}

std::string scenario_text(const std::string& layout, const std::string& parameters, const std::string& steps,
                          const std::string& batch = R"({ "tokens": "even" })") {
  return R"({ "lockstep": 1, "layout": )" + layout + R"(, "model": { "parameters": )" + parameters +
         R"( }, "batch": )" + batch + R"(, "schedule": { "steps": )" + steps + " } }";
}

/// One parameter, a backward in each micro-batch, then these steps.
std::string after_backward(const std::string& steps, const std::string& layout = R"({ "dp": 2 })",
                           const std::string& by = "1/micro_batches") {
  return scenario_text(
      layout, R"([ { "name": "weight", "shape": [24] } ])",
      R"([ { "name": "each", "op": "each", "steps": [ { "name": "backward", "op": "backward", "by": ")" + by +
          R"(" } ] }, )" + steps + " ]");
}

/// NVIDIA/Megatron-LM#844 with stages counted from the end, so that they exist for every pp.
std::string megatron_844(const std::string& separate) {
  return scenario_text(
      R"({ "pp": 2, "dp": 2 })",
      R"([ { "name": "word", "shape": [150], "stage": 0, "tied": "embedding" }, { "name": "layer.0", "shape": [70], "stage": 0 },
                       { "name": "norm", "shape": [10], "stage": -1 }, { "name": "output", "shape": [150], "stage": -1, "tied": "embedding" } ])",
      R"([ { "name": "each", "op": "each", "steps": [ { "name": "backward", "op": "backward", "by": "1/micro_batches" } ] },
                       { "name": "dp_reduce_scatter", "op": "reduce_scatter", "over": "dp", "reduce": "avg",
                         "geometry": { "kind": "bucket", "align_parameter": 1, "align_bucket": "n")" +
          separate + R"( } },
                       { "name": "embedding_all_reduce", "op": "all_reduce", "over": { "pp": ["first", "last"] }, "params": ["tied:embedding"] } ])");
}

std::string statement(const std::string& text) { return Prover(read_text(text)).proof().statement; }

}  // namespace

TEST_CASE("the worked example: #844 for every dp and pp", "[parametric]") {
  const Prover wrong(read_text(megatron_844("")));
  CHECK(wrong.proof().statement ==
        "wrong as soon as dp ≥ 2 and pp ≥ 2, wherever its cuts give an element these owners");
  CHECK(wrong.proof().verdict == Proof::Verdict::wrong);
  REQUIRE(wrong.proof().counterexample);
  CHECK(describe(wrong.proof().counterexample->sizes).find("dp 2, pp 2, 1 micro-batch") != std::string::npos);
  CHECK(wrong.proof().counterexample->got == "g3 + (g0+g1)/2");
  CHECK(wrong.proof().counterexample->expected == "(g0+g1+g2+g3)/2");
  CHECK(wrong.proof().wrong_parameters == std::vector<std::string>{"word"});

  const Prover right(read_text(megatron_844(R"(, "separate": ["tied:embedding"])")));
  CHECK(right.proof().statement == "right for every size");
  CHECK(right.proof().verdict == Proof::Verdict::right);
  CHECK_FALSE(right.proof().counterexample);
}

TEST_CASE("for which sizes a schedule is wrong", "[parametric]") {
  const std::string mean = R"({ "name": "mean", "op": "all_reduce", "over": "dp", "reduce": "avg" })";
  CHECK(statement(after_backward(mean)) == "right for every size");
  CHECK(statement(after_backward(R"({ "name": "sum", "op": "all_reduce", "over": "dp" })")) == "right only at dp = 1");
  CHECK(
      statement(after_backward(
          R"({ "name": "sum", "op": "all_reduce", "over": "dp" }, { "name": "scale", "op": "scale", "by": "1/4" })")) ==
      "wrong for every size but dp = 4");
  CHECK(
      statement(after_backward(
          R"x({ "name": "mean", "op": "all_reduce", "over": "dp", "reduce": "avg" }, { "name": "scale", "op": "scale", "by": "6/(dp*dp) - 5/dp + 2" })x")) ==
      "wrong for every size but dp = 2 or dp = 3");
  CHECK(statement(after_backward(mean, R"({ "dp": 2 })", "1")) == "right only at micro_batches = 1");
  // Numbers of micro-batches have roots as well, and so have sizes together.
  const std::string third = R"({ "name": "scale", "op": "scale", "by": "micro_batches / 5" })";
  CHECK(statement(after_backward(mean + ", " + third, R"({ "dp": 2 })")) ==
        "wrong for every size but micro_batches = 5");
  const std::string twelfth =
      R"({ "name": "sum", "op": "all_reduce", "over": "dp" }, { "name": "scale", "op": "scale", "by": "micro_batches / 12" })";
  CHECK(statement(after_backward(twelfth)) == "wrong for every size unless dp*micro_batches = 12");
  // Of two sizes the one that stands in the numerator may come second.
  const auto for_two = [&](const std::string& by, const std::string& when = "") {
    const std::string scale = R"({ "name": "scale", "op": "scale", "by": ")" + by + "\"" + when + " }";
    return statement(after_backward(mean + ", " + scale, R"({ "dp": 2, "tp": 2 })"));
  };
  CHECK(for_two("2*dp/tp") == "wrong for every size unless tp = 2*dp");
  CHECK(for_two("2*tp/dp") == "wrong for every size unless 2*tp = dp");
  CHECK(for_two("dp*tp/6") == "wrong for every size unless tp*dp = 6");
  // 67 times 67, and no other size from 2 on: beyond all that are looked at one by one.
  CHECK(for_two("dp*tp/4489", R"(, "when": "dp >= 2 and tp >= 2")") ==
        "wrong for tp ≥ 2 and dp ≥ 2 unless tp*dp = 4489");
  // A sum has no such product.
  const std::string sum =
      R"x({ "name": "sum", "op": "all_reduce", "over": "dp" }, { "name": "scale", "op": "scale", "by": "(micro_batches + dp - 4) / dp" })x";
  CHECK(statement(after_backward(sum)).find(" = 0") != std::string::npos);
  CHECK(statement(after_backward(R"({ "name": "scatter", "op": "reduce_scatter", "over": "dp", "reduce": "avg" })")) ==
        "right for every size");
  CHECK(statement(after_backward(R"({ "name": "scatter", "op": "reduce_scatter", "over": "dp", "reduce": "avg" },
                                   { "name": "gather", "op": "all_gather", "over": "dp" })")) ==
        "right for every size");
  // The slices of the others are stale.
  CHECK(statement(after_backward(R"({ "name": "scatter", "op": "reduce_scatter", "over": "dp", "reduce": "avg" },
                                   { "name": "all", "op": "own", "over": [] })")) == "right only at dp = 1");
  // What dp 0 alone has, all get.
  CHECK(statement(after_backward(R"({ "name": "root", "op": "reduce", "over": "dp", "root": 0, "reduce": "avg" },
                                   { "name": "copy", "op": "broadcast", "over": "dp", "root": 0 })")) ==
        "right for every size");
}

TEST_CASE("what is right up to a size is named by where it begins to be wrong", "[parametric]") {
  const std::string mean = R"({ "name": "mean", "op": "all_reduce", "over": "dp", "reduce": "avg" })";
  const auto halved = [](const std::string& name, const std::string& when) {
    return R"(, { "name": ")" + name + R"(", "op": "scale", "by": "1/2", "when": ")" + when + R"(" })";
  };
  CHECK(statement(after_backward(mean + halved("half", "dp >= 2"))) == "right only at dp = 1");
  CHECK(statement(after_backward(mean + halved("half", "dp >= 3"))) == "wrong as soon as dp ≥ 3");
  const std::string layout = R"({ "dp": 2, "pp": 2 })";
  CHECK(statement(after_backward(mean + halved("one", "dp >= 3") + halved("two", "pp >= 2"), layout)) ==
        "wrong as soon as pp ≥ 2, or dp ≥ 3");
  CHECK(statement(after_backward(mean + halved("one", "dp >= 3") + halved("two", "pp >= 3"), layout)) ==
        "wrong as soon as pp ≥ 3, or dp ≥ 3");
}

TEST_CASE("whether the groups of instances agree is a condition like others where they do so at every size",
          "[parametric]") {
  const auto halved = [](const std::string& when) {
    return statement(after_backward(R"({ "name": "mean", "op": "all_reduce", "over": "dp", "reduce": "avg" },
      { "name": "half", "op": "scale", "by": "1/2", "when": ")" +
                                    when + "\" }"));
  };
  CHECK(halved("instance_groups_agree") == "wrong for every size");
  CHECK(halved("not instance_groups_agree") == "right for every size");
}

TEST_CASE("what is wrong for other owners alone, and at no size that was tried, is not decided", "[parametric]") {
  // The embedding has a bucket of its own, so that both stages cut it alike.
  const Prover prover(read_text(R"({ "lockstep": 1, "layout": { "pp": 2, "dp": 2 }, "model": { "parameters": [
      { "name": "word", "shape": [8, 4], "tied": "word_embeddings", "tags": ["embedding"] },
      { "name": "layers.0", "shape": [16, 8] }, { "name": "layers.1", "shape": [16, 8], "stage": -1 },
      { "name": "output", "shape": [8, 4], "stage": -1, "tied": "word_embeddings", "tags": ["embedding"] } ] },
    "schedule": { "framework": "megatron",
                  "options": { "use_distributed_optimizer": true, "overlap_grad_reduce": true } } })"));
  CHECK(prover.proof().verdict == Proof::Verdict::undecided);
  CHECK_FALSE(prover.proof().counterexample);
  CHECK(prover.proof().statement ==
        "right at every small size that was tried; it would be wrong where its cuts give an element other owners");
}

TEST_CASE("sizes at which a framework has other steps are cases of their own", "[parametric]") {
  const auto predivided = [](const char* layout, const char* factor) {
    return std::string(R"({ "lockstep": 1, "layout": )") + layout +
           R"(, "model": { "parameters": [ { "name": "w", "shape": [6, 4] } ] }, "batch": { "micro_batches": 2 },
              "schedule": { "framework": "deepspeed",
                            "options": { "zero_stage": 3, "reduce_scatter": false, "gradient_predivide_factor": )" +
           factor + " } } }";
  };
  // DeepSpeed takes the factor back after the sum, unless it is the number of ranks.
  CHECK(statement(predivided(R"({ "dp": "any" })", "2")) == "wrong for dp = 2");
  CHECK(statement(predivided(R"({ "dp": "any" })", "7")) == "wrong for dp = 7");
  CHECK(statement(predivided(R"({ "dp": "any" })", "32")) == "wrong for dp = 32");
  CHECK(statement(predivided(R"({ "sp": "any", "dp": "any" })", "13")) ==
        "wrong for sp ≥ 2 and dp ≥ 2; for sp ≥ 2 and sp ≠ 13; for dp = 13");
  CHECK(statement(predivided(R"({ "dp": 4 })", "4")) ==
        "wrong for sp ≥ 2 and sp ≠ 4; for sp ≥ 2 and dp ≥ 2; for dp = 4, with tp = 1 and micro_batches = 2");
}

TEST_CASE("a stage that a file lists is the last one at a single size, which is a case of its own", "[parametric]") {
  const auto stated = [](const std::string& stage) {
    return statement(scenario_text(
        R"({ "pp": 8 })",
        R"([ { "name": "word", "shape": [8], "stage": 0, "tied": "t" }, { "name": "output", "shape": [8], "stage": -1, "tied": "t" },
             { "name": "middle", "shape": [8], "stage": )" +
            stage + " } ]",
        R"([ { "name": "each", "op": "each", "steps": [ { "name": "backward", "op": "backward", "by": "1/micro_batches" } ] },
             { "name": "mean", "op": "all_reduce", "over": "dp", "reduce": "avg" },
             { "name": "tie", "op": "all_reduce", "over": { "pp": ["first", "last"] }, "params": ["tied:t"] },
             { "name": "half", "op": "scale", "by": "1/2", "only": { "pp": ["last"] }, "params": ["middle"] } ])"));
  };
  CHECK(stated("2") == "wrong for pp = 3");
  CHECK(stated("5") == "wrong for pp = 6");
}

TEST_CASE(
    "an axis that a file leaves out stays as it is where some sizes of others refuse it, and one that it writes is "
    "open",
    "[parametric]") {
  // DeepSpeed does not combine its pipeline with Ulysses.
  const auto proof = [](const std::string& layout) {
    return Prover(read_text(R"({ "lockstep": 1, "layout": )" + layout + R"(,
      "model": { "parameters": [ { "name": "embed", "shape": [8] }, { "name": "head", "shape": [8], "stage": -1 } ] },
      "schedule": { "framework": "deepspeed", "options": { "zero_stage": 1 } } })"))
        .proof();
  };
  const Proof left_out = proof(R"({ "pp": 2, "dp": 2 })");
  CHECK(left_out.statement == "right for every size, with sp = 1 and tp = 1");
  CHECK(left_out.verdict == Proof::Verdict::right);
  // Parameters that are listed are those of one tp rank.
  REQUIRE(left_out.kept.size() == 2);
  CHECK(left_out.kept.front().axis == Axis::sp);
  CHECK(left_out.kept.back().axis == Axis::tp);
  const Proof written = proof(R"({ "pp": 2, "dp": 2, "sp": 1 })");
  CHECK(written.verdict == Proof::Verdict::undecided);
  REQUIRE(written.kept.size() == 1);
  CHECK(written.kept.front().axis == Axis::tp);
}

TEST_CASE("sizes of the expert mesh are \"any\" in a file", "[parametric]") {
  const auto experts = [](const char* layout, const char* edits) {
    return std::string(R"({ "lockstep": 1, "layout": )") + layout +
           R"(, "model": { "preset": "moe", "layers": 2, "hidden": 16, "heads": 4, "query_groups": 2, "ffn": 24,
                           "moe_ffn": 8, "experts": 4, "vocab": 32 }, "batch": { "micro_batches": 2 },
              "schedule": { "framework": "megatron", "options": { "calculate_per_token_loss": true }, "edits": [)" +
           edits + "] } }";
  };
  const auto open_of = [&](const char* layout) {
    const Prover prover(read_text(experts(layout, "")));
    CHECK(prover.proof().verdict == Proof::Verdict::right);
    return prover.proof().axes;
  };
  CHECK(open_of(R"({ "dp": "any", "ep": "any" })") == std::vector<Axis>{Axis::ep, Axis::edp});
  CHECK(open_of(R"({ "dp": "any", "ep": 2 })") == std::vector<Axis>{Axis::edp});
  CHECK(open_of(R"({ "tp": "any", "dp": 4, "ep": 2, "sequence_parallel": true })") == std::vector<Axis>{Axis::tp});
  const std::string divided = R"x({ "set": "token_count_scale", "by": "1 / (ep * sum(tokens, dp, micro_batch))" })x";
  CHECK(statement(experts(R"({ "dp": "any", "ep": "any" })", divided.c_str())) == "right only at ep = 1");
  const auto limit = [&](const char* layout) {
    const Prover prover(read_text(experts(layout, "")));
    REQUIRE_FALSE(prover.proof().limits.empty());
    return prover.proof().limits.front().why;
  };
  CHECK(limit(R"({ "dp": 4, "ep": "any" })") == "ep divides dp, so that both have to be \"any\"");
  CHECK(limit(R"({ "dp": "any", "cp": 2, "ep": 2 })") ==
        "beside experts only tp, dp and pp can be larger than 1, and etp is tp, where a size is \"any\"");
}

TEST_CASE("what cannot be followed is named by its step", "[parametric]") {
  const Prover prover(read_text(after_backward(R"x({ "name": "odd", "op": "scale", "by": "1/(dp+1)" })x")));
  REQUIRE_FALSE(prover.proof().limits.empty());
  CHECK(prover.proof().limits.back().step == "odd");
  CHECK(prover.proof().limits.back().why == "it divides by the sum 1 + dp");
  const Prover some(
      read_text(after_backward(R"({ "name": "some", "op": "all_reduce", "over": "dp", "when": "rank.dp > 0" })")));
  CHECK(some.proof().verdict == Proof::Verdict::undecided);
  CHECK(some.proof().limits.back().step == "some");
  CHECK(some.proof().limits.back().why == "not all ranks of a group reach it with the same parameters");
}

TEST_CASE("a proof that cannot be evaluated at some sizes names the step", "[parametric]") {
  const std::string steps = R"([
    { "name": "each", "op": "each", "steps": [ { "name": "backward", "op": "backward", "by": "1/tokens" } ] },
    { "name": "cut", "op": "reduce_scatter", "over": "cp" },
    { "name": "cut_again", "op": "reduce_scatter", "over": "dp", "on": "owned" } ])";
  const Prover prover(
      read_text(scenario_text(R"({ "cp": 2, "dp": 3 })", R"([ { "name": "weight", "shape": [64] } ])", steps, "{}")));
  CHECK(prover.proof().limits.empty());
  Sizes sizes;
  sizes.axes[Axis::dp] = 5;
  const std::optional<ParametricResult> result = prover.at(sizes);
  REQUIRE(result);
  CHECK(result->verdict == ParametricResult::Verdict::undecided);
  CHECK(result->undecided_step == "cut_again");
  CHECK(result->why == "who owns which part of an owned part is not followed where it matters");
}
