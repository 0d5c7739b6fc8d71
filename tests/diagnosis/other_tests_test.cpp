// SPDX-License-Identifier: Apache-2.0
#include "src/diagnosis/other_tests.h"

#include "src/diagnosis/kind_of_mistake.h"
#include "tests/catch.h"
#include "tests/diagnosis/small.h"

using namespace lockstep;
using namespace lockstep::test;

namespace {

std::string_view replicas(const std::string& steps) {
  const CheckResult result = check_text(two_ranks(steps));
  REQUIRE(result.verdict == Verdict::mismatch);
  return diagnosis::name_of(diagnosis::compare_replicas(result));
}

bool passes(const std::string& steps, const Rational& tolerance = Rational(8, 100)) {
  const CheckResult result = check_text(two_ranks(steps));
  REQUIRE(result.verdict == Verdict::mismatch);
  return diagnosis::within_tolerance(result, tolerance);
}

std::string scaled(const std::string& by, const std::string& more = "") {
  return mean_step + R"(, { "name": "s", "op": "scale", "by": ")" + by + "\"" + more + " }";
}

}  // namespace

TEST_CASE("replicas agree, differ, or are none") {
  CHECK(replicas(R"({ "name": "sum", "op": "all_reduce", "over": "dp" })") == "agree");
  CHECK(replicas(scaled("2", R"(, "only": { "dp": [1] })")) == "differ");
  CHECK(replicas(R"({ "name": "sum", "op": "reduce_scatter", "over": "dp" })") == "nothing to compare");
}

TEST_CASE("a wrong norm is seen by replicas that scale by different ones") {
  const auto norm = [](const std::string& keys) {
    return mean_step + R"(, { "name": "n", "op": "norm" )" + keys + " }";
  };
  CHECK(replicas(norm(R"(, "over": "dp")")) == "agree");
  CHECK(replicas(norm(R"(, "count": "rank.dp == 1")")) == "differ");
  CHECK(
      replicas(
          R"({ "name": "mean", "op": "reduce_scatter", "over": "dp", "reduce": "avg" }, { "name": "n", "op": "norm" })") ==
      "nothing to compare");
  // The norm alone tells replicas apart whose values agree.
  CHECK(replicas(R"({ "name": "sum", "op": "all_reduce", "over": "dp" },
                    { "name": "n", "op": "norm", "count": "rank.dp == 1" })") == "differ");
}

TEST_CASE("only the norm is wrong, or values too") {
  CHECK(diagnosis::wrong_in_norm_alone(
      check_text(two_ranks(mean_step + R"(, { "name": "n", "op": "norm", "over": "dp" })"))));
  CHECK_FALSE(diagnosis::wrong_in_norm_alone(check_text(two_ranks(scaled("2")))));
  CHECK_FALSE(diagnosis::wrong_in_norm_alone(check_text(two_ranks(mean_step + R"(, { "name": "n", "op": "norm" })"))));
  CHECK_FALSE(diagnosis::wrong_in_norm_alone(
      check_text(two_ranks(scaled("2") + R"(, { "name": "n", "op": "norm", "over": "dp" })"))));
}

TEST_CASE("a tolerance passes coefficients on its edge and none beyond") {
  CHECK(passes(scaled("1.08")));
  CHECK_FALSE(passes(scaled("1.0801")));
  CHECK(passes(scaled("0.92")));
  CHECK_FALSE(passes(scaled("0.9199")));
  CHECK(passes(scaled("2"), Rational(1)));
  // One contribution too large, the other too small.
  CHECK(passes(R"({ "name": "s", "op": "scale", "by": "1.05 - rank.dp / 10" }, )" + mean_step));
  CHECK_FALSE(passes(R"({ "name": "s", "op": "scale", "by": "1.1 - rank.dp / 5" }, )" + mean_step));
}

TEST_CASE("no tolerance passes what is missing or does not belong") {
  CHECK_FALSE(passes(R"({ "name": "s", "op": "scale", "by": "1/2" })", Rational(1, 2)));
  CHECK_FALSE(passes(mean_step + R"(, { "name": "p", "op": "leftover", "what": "parameter", "by": "1/1000" })"));
  CHECK_FALSE(passes(mean_step + R"(, { "name": "n", "op": "norm" },
                                     { "name": "c", "op": "clip", "only": { "dp": 0 } })",
                     Rational(1, 2)));
  const CheckResult unowned =
      check_text(two_ranks(mean_step + R"(, { "name": "own", "op": "own", "over": "dp", "when": "rank.dp == 0" })"));
  REQUIRE_FALSE(symbolic_of(unowned)->unowned.empty());
  CHECK_FALSE(diagnosis::within_tolerance(unowned, Rational(1)));
}

TEST_CASE("a tolerance on the norm takes elements for equally large") {
  const auto text = [](const std::string& large, const std::string& over) {
    return scenario_text(
        R"({ "dp": 2 })", R"([ { "name": "w", "shape": [)" + large + R"(] }, { "name": "v", "shape": [10] } ])",
        R"([ { "name": "micro_batches", "op": "each", "steps": [ { "name": "backward", "op": "backward" } ] }, )" +
            mean_step + R"(, { "name": "n", "op": "norm", "params": "w" },
                    { "name": "m", "op": "norm", "params": "v", "over": )" +
            over + " } ]");
  };
  const Rational tolerance(8, 100);
  // v twice: the norm is sqrt(80 / 70), 7 % too large, then sqrt(60 / 50), 10 %.
  CHECK(diagnosis::within_tolerance(check_text(text("60", "\"dp\"")), tolerance));
  CHECK_FALSE(diagnosis::within_tolerance(check_text(text("40", "\"dp\"")), tolerance));
  // v not at all: sqrt(60 / 70), 7 % too small, then sqrt(40 / 50), 11 %.
  const std::string never = R"("dp", "count": "1 == 2")";
  CHECK(diagnosis::within_tolerance(check_text(text("60", never)), tolerance));
  CHECK_FALSE(diagnosis::within_tolerance(check_text(text("40", never)), tolerance));
  const std::string averaged = R"("dp", "combine": "mean_of_norms")";
  CHECK_FALSE(diagnosis::within_tolerance(check_text(text("6000", averaged)), tolerance));
}

TEST_CASE("a fault in the model: its kind, and what other tests would see of it") {
  const auto check = [](const std::string& layout, const std::string& edit) {
    return check_text(R"json({ "lockstep": 1, "layout": {)json" + layout + R"json(}, "model": { "preset": "llama",
      "layers": 1, "hidden": 8, "heads": 2, "query_groups": 2, "ffn": 8, "vocab": 16, "edits": [)json" +
                      edit + R"json(] }, "schedule": { "framework": "megatron",
      "options": { "calculate_per_token_loss": true } } })json");
  };
  // Twice what is right on both ranks, and a share on each.
  const CheckResult twice = check(R"("tp": 2, "sequence_parallel": true)", R"({ "drop": "attention.norm" })");
  CHECK(diagnosis::wrong_in_model_alone(twice));
  CHECK(name_of(diagnosis::kind_of_mistake(twice)) == "in the model");
  CHECK(diagnosis::name_of(diagnosis::compare_replicas(twice)) == "agree");
  CHECK_FALSE(diagnosis::within_tolerance(twice, Rational(8, 100)));
  CHECK(diagnosis::within_tolerance(twice, Rational(101, 100)));
  const CheckResult share = check(R"("tp": 2)", R"({ "drop": "mlp.copy_to_tp" })");
  CHECK(diagnosis::name_of(diagnosis::compare_replicas(share)) == "differ");
  const CheckResult right = check(R"("tp": 2)", "");
  CHECK(right.verdict == Verdict::match);
  CHECK_FALSE(diagnosis::wrong_in_model_alone(right));
}
