// SPDX-License-Identifier: Apache-2.0
//
// Clipping: by the factor of the norm that a rank has counted, which is right where that norm is.
#include <algorithm>

#include "lockstep/scenario.h"
#include "lockstep/symbolic.h"
#include "src/base/budget.h"
#include "tests/cases.h"
#include "tests/catch.h"
#include "tests/numeric/random_schedule.h"

using namespace lockstep;

namespace {

/// Two data-parallel ranks and one parameter of four elements; `steps` after its gradients.
struct ClippedRun {
  explicit ClippedRun(const std::string& steps, const std::string& batch = R"("micro_batches": 1, "loss": "sum")",
                      const std::string& inside = "")
      : scenario(read_scenario(std::make_shared<Source>(
            Source{"test.json", R"({ "lockstep": 1, "layout": { "dp": 2 },
              "model": { "parameters": [ { "name": "w", "shape": [4] } ] }, "batch": { )" +
                                    batch + R"( }, "schedule": { "steps": [ { "name": "zero", "op": "zero" },
              { "name": "each", "op": "each", "steps": [ { "name": "backward", "op": "backward" } )" +
                                    inside + " ] }, " + steps + " ] } }"}))),
        timeline(walk(*scenario.schedule)),
        engine(*scenario.schedule, timeline),
        result(engine.run()) {}

  std::string print(int rank, int form) const {
    return print_formula(*scenario.schedule, rank, 0, engine.terms(form, rank, 0),
                         reference_terms(*scenario.schedule, 0, 0, result.step));
  }
  std::string got(int rank) const {
    return print(rank, result.buffers[static_cast<std::size_t>(rank)].pieces.front().form);
  }

  Scenario scenario;
  Timeline timeline;
  SymbolicEngine engine;
  SymbolicResult result;
};

const std::string sum = R"({ "name": "sum", "op": "all_reduce", "over": "dp" }, )";
const std::string scatter = R"({ "name": "scatter", "op": "reduce_scatter", "over": "dp" }, )";
const std::string norm = R"({ "name": "norm", "op": "norm" }, )";
const std::string norm_over_dp = R"({ "name": "norm", "op": "norm", "over": "dp" }, )";
const std::string clip = R"({ "name": "clip", "op": "clip" })";

Step clip_at_random(std::mt19937& random, int number) {
  const auto chance = [&](unsigned of) { return random() % of == 0; };
  Step result = test::step(chance(3) ? Op::norm : Op::clip, "added" + std::to_string(number));
  if (result.op == Op::norm && !chance(3)) result.over = test::over(Axis::dp);
  if (chance(4)) result.params = Selectors({"p0"});
  if (result.op == Op::clip && chance(3)) result.on_owned = true;
  if (chance(5)) result.when = Expression::parse("rank.dp == 0");
  return result;
}

/// The same steps without those that clip; norms stay.
std::vector<Step> without_clips(std::vector<Step> steps) {
  std::erase_if(steps, [](const Step& step) { return step.op == Op::clip; });
  return steps;
}

}  // namespace

TEST_CASE("what every optimizer gets is clipped once by the norm of all, or it is wrong") {
  for (const std::string& steps : {sum + norm + clip, scatter + norm_over_dp + clip}) {
    const ClippedRun run(steps);
    CHECK(run.result.match);
    CHECK(run.got(0) == "clip(g0 + g1)");
  }
  // Not by nobody: then nothing is clipped on one device either.
  CHECK(ClippedRun(sum + R"({ "name": "norm", "op": "norm" })").result.match);
  const ClippedRun one(sum + norm + R"({ "name": "clip", "op": "clip", "only": { "dp": 0 } })");
  CHECK_FALSE(one.result.match);
  CHECK(one.got(0) == "clip(g0 + g1)");
  CHECK(one.got(1) == "g0 + g1");
  CHECK(one.print(1, one.result.buffers[1].pieces.front().reference) == "clip(g0 + g1)");
  CHECK(one.result.buffers[1].pieces.front().right_unclipped);
  CHECK(one.result.norm.empty());
  CHECK(one.result.replicas_agree == std::vector<bool>{false});
  const ClippedRun twice(sum + norm + clip + R"(, { "name": "again", "op": "clip" })");
  CHECK_FALSE(twice.result.match);
  CHECK(twice.got(0) == "clip(clip(g0 + g1))");
  CHECK_FALSE(twice.result.buffers[0].pieces.front().ratio.has_value());
}

TEST_CASE("ranks have one factor where their norms count the same values, however they came to them") {
  // Each counts its own gradient.
  CHECK(ClippedRun(norm + clip + ", " + sum.substr(0, sum.size() - 2)).got(0) == "clip0(g0) + clip1(g1)");
  // The same elements, of the same values, but too early.
  CHECK(ClippedRun(norm + sum + clip).got(1) == "clip1(g0 + g1)");
  // Half of all, each another one; or all of it twice, or a mean, which is no norm of all: one for both ranks.
  CHECK(ClippedRun(scatter + norm + clip).got(1) == "clip1(g0 + g1)");
  CHECK(ClippedRun(sum + norm_over_dp + clip).got(1) == "clip0(g0 + g1)");
  CHECK(ClippedRun(scatter + R"({ "name": "norm", "op": "norm", "over": "dp", "combine": "mean_of_norms" }, )" + clip)
            .got(1) == "clip0(g0 + g1)");
  // Rank 1 counts by itself what both have, and rank 0 nothing.
  const ClippedRun some(sum + R"({ "name": "norm", "op": "norm", "count": "rank.dp == 1" }, )" + clip);
  CHECK(some.got(0) == "clip0(g0 + g1)");
  CHECK(some.got(1) == "clip(g0 + g1)");
  // No norm counts nothing, and is missed once somebody clips by it.
  const ClippedRun none(sum + clip);
  CHECK(none.got(1) == "clip0(g0 + g1)");
  REQUIRE(none.result.norm.size() == 2);
  CHECK(none.result.norm[0].counted == "0");
  CHECK(none.result.norm[0].elements == 4);
}

TEST_CASE("a norm is of what stands there before it is clipped, and clipping it later is no change of it") {
  CHECK(ClippedRun(sum + norm + clip).result.norm.empty());
  const ClippedRun late(sum + clip + R"(, { "name": "norm", "op": "norm" })");
  CHECK(late.result.norm.empty());
  CHECK(late.got(0) == "clip0(g0 + g1)");  // by what was counted until then
  CHECK(ClippedRun(sum + norm + R"({ "name": "half", "op": "scale", "by": "1/2" }, )" + clip).result.norm.size() == 2);
  // What is done to it and undone changes nothing.
  CHECK(ClippedRun(sum + norm + R"({ "name": "turn", "op": "scale", "by": -1 }, )" + clip +
                   R"(, { "name": "back", "op": "scale", "by": -1 })")
            .result.match);
}

TEST_CASE("clipping costs about as much work as scaling, on however many ranks and parameters") {
  const auto spent = [](const std::string& last) {
    std::string parameters;
    for (int i = 0; i < 24; ++i)
      parameters += (i > 0 ? ", " : "") + std::string(R"({ "name": "w)") + std::to_string(i) + R"(", "shape": [)" +
                    std::to_string(4 + i) + "] }";
    const Scenario scenario = read_scenario(std::make_shared<Source>(
        Source{"test.json", R"({ "lockstep": 1, "layout": { "dp": 128 }, "model": { "parameters": [ )" + parameters +
                                R"( ] }, "batch": { "micro_batches": 1, "loss": "sum" }, "schedule": { "steps": [
      { "name": "each", "op": "each", "steps": [ { "name": "backward", "op": "backward" } ] }, )" +
                                sum + norm + last + " ] } }"}));
    const Timeline timeline = walk(*scenario.schedule);
    const Budget budget(Budget::run);
    SymbolicEngine(*scenario.schedule, timeline).run();
    return static_cast<double>(budget.spent());
  };
  CHECK(spent(clip) < 3 * spent(R"({ "name": "half", "op": "scale", "by": "1/2" })"));
}

TEST_CASE("each micro-batch that is clipped has a factor of its own, and each optimizer step a right one") {
  const std::string inside = R"(, { "name": "norm", "op": "norm" }, { "name": "clip", "op": "clip" })";
  const ClippedRun each(sum.substr(0, sum.size() - 2), R"("micro_batches": 2, "loss": "sum")", inside);
  CHECK(each.got(0) == "clip0.1(clip0(g0.0)) + clip0.1(g0.1) + clip1.1(clip1(g1.0)) + clip1.1(g1.1)");
  const ClippedRun two(sum + norm + clip, R"("micro_batches": 1, "loss": "sum", "steps": 2)");
  CHECK(two.result.match);
  CHECK(two.got(0) == "clip(g0 + g1)");
  // What the first step left is clipped again, by a norm that counts it too.
  const ClippedRun left(
      sum + R"({ "name": "add", "op": "accumulate", "from": "kept", "to": "grad", "when": "step == 1" }, )" + norm +
          clip + R"(, { "name": "keep", "op": "copy", "from": "grad", "to": "kept", "when": "step == 0" })",
      R"("micro_batches": 1, "loss": "sum", "steps": 2)");
  CHECK(left.result.step == 1);
  CHECK(left.got(0) == "clip0(clip.0(g0.0 + g1.0)) + clip0(g0 + g1)");
}

TEST_CASE("without its clips a schedule has the values that engines see which take every factor for 1") {
  std::mt19937 random(20261126);
  unsigned matches = 0, clipped_right = 0, clipped_wrong = 0, compared = 0;
  for (unsigned seed = 0; seed < test::cases(600); ++seed) {
    Schedule schedule = test::RandomSchedule(seed).make();
    const int added = 1 + static_cast<int>(random() % 3);
    for (int i = 0; i < added; ++i) {
      const auto place = schedule.steps.begin() + static_cast<std::ptrdiff_t>(random() % (schedule.steps.size() + 1));
      schedule.steps.insert(place, clip_at_random(random, i));
    }
    if (random() % 2 == 0) {  // and right, where the rest is
      Step count = test::collective(Op::norm, "count", Axis::dp);
      count.over.reset();
      schedule.steps.push_back(count);
      schedule.steps.push_back(test::step(Op::clip, "at_last"));
    }
    schedule.batch.micro_batch_counts.resize(1);
    Schedule plain = test::RandomSchedule(seed).make();
    plain.steps = without_clips(schedule.steps);
    plain.batch.micro_batch_counts.resize(1);
    INFO("seed " << seed);
    try {
      const Timeline timeline = walk(schedule), plain_timeline = walk(plain);
      if (timeline.outcome.kind != plain_timeline.outcome.kind) continue;  // it races with what is in flight
      SymbolicEngine engine(schedule, timeline), plain_engine(plain, plain_timeline);
      const SymbolicResult with = engine.run(), without = plain_engine.run();
      REQUIRE(with.buffers.size() == without.buffers.size());
      bool any_wrong = false, any_unclipped_wrong = false;
      for (std::size_t i = 0; i < with.buffers.size(); ++i) {
        const BufferResult &a = with.buffers[i], &b = without.buffers[i];
        REQUIRE(a.owned == b.owned);
        for (const PieceResult& piece : a.pieces) {
          any_wrong = any_wrong || !piece.right;
          any_unclipped_wrong = any_unclipped_wrong || !piece.right_unclipped;
          // Right means right at 1, too.
          if (piece.right) REQUIRE(piece.right_unclipped);
          for (const PieceResult& other : b.pieces) {
            if (intersect(piece.elements, other.elements).empty()) continue;
            REQUIRE(piece.right_unclipped == other.right);
          }
        }
      }
      ++compared;
      matches += with.match;
      const bool clips =
          std::any_of(schedule.steps.begin(), schedule.steps.end(), [](const Step& one) { return one.op == Op::clip; });
      clipped_right += clips && !with.buffers.empty() && !any_wrong;
      clipped_wrong += any_wrong && !any_unclipped_wrong;
      if (with.match && !without.norm.empty()) FAIL("a right schedule has a wrong norm without its clips");
    } catch (const InputError&) {
      continue;
    }
  }
  INFO(compared << " compared, " << matches << " match, " << clipped_right << " clipped right, " << clipped_wrong
                << " wrong by clipping alone");
  CHECK(compared > test::cases(400));
  CHECK(clipped_wrong > test::cases(20));
  CHECK((test::one_in > 1 || clipped_right > 5));  // too rare for a tenth of the cases
}
