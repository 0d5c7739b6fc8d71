// SPDX-License-Identifier: Apache-2.0
#include "src/device/stream_order.h"

#include "lockstep/cuda.h"
#include "tests/catch.h"
#include "tests/device/asynchronous_schedule.h"
#include "tests/device/compared_engines.h"
#include "tests/device/host_gpu.h"

using namespace lockstep;
using namespace lockstep::test;

// Streams run on the host in an order drawn with a seed, in which only the order of each stream and marks count.

namespace {

struct Streams {
  explicit Streams(unsigned seed) {
    auto made = std::make_unique<HostGpu>(host_facts(), seed);
    launcher = &made->launcher();
    cuda = std::make_unique<CudaDevice>(std::move(made));
  }
  HostLauncher* launcher = nullptr;
  std::unique_ptr<CudaDevice> cuda;
};

Step wait_for(const std::string& name) {
  Step result = step(Op::wait, "");
  result.wait_for = name;
  return result;
}

Step asynchronous(Step made) {
  made.async = true;
  return made;
}

Step half(const std::string& name) {
  Step result = step(Op::scale, name);
  result.by = Expression(Rational(1, 2));
  return result;
}

Step noise() {
  Step result = step(Op::leftover, "noise");
  result.what = "noise";
  result.per_rank = true;
  return result;
}

/// How many of 20 replays differ.
int different(std::vector<Step> steps, const std::vector<Parameter>& parameters, int ranks = 4) {
  const Schedule built = schedule_of(dp(ranks), parameters, std::move(steps));
  REQUIRE(walk(built).outcome.kind == Outcome::Kind::race);
  const RaceReplays found = replay_race(built, {}, *Streams(3).cuda);
  REQUIRE(found.replays == 20);
  return found.different;
}

}  // namespace

TEST_CASE("asynchronous schedules without a race give the bits of a replay in order, however streams are run") {
  unsigned streamed = 0, several_steps = 0;
  Compared compared;
  for (unsigned seed = 0; seed < cases(300, 10); ++seed) {
    const Schedule built = AsynchronousSchedule(seed).make();
    const std::optional<Timeline> timeline = walk_if_possible(built);
    if (!timeline || timeline->outcome.kind != Outcome::Kind::complete) continue;
    const HostResult host = run_host(built, *timeline);
    for (const unsigned order : {0u, 1u}) {
      INFO("seed " << seed << ", order " << order);
      Streams gpu(10 * seed + order);
      require_equal(host, run_cuda(built, *timeline, {}, *gpu.cuda));
      streamed += gpu.launcher->stream_launches > 0;
    }
    compared.add(host);
    several_steps += timeline->step_ends.size() > 1;
  }
  CHECK(compared.schedules > static_cast<int>(cases(75, 10)));
  CHECK(compared.wrong > static_cast<int>(cases(25, 10)));
  CHECK(streamed > cases(75, 10));
  CHECK(several_steps > cases(15, 10));
}

TEST_CASE("races of random schedules are observed") {
  unsigned races = 0, observed = 0, replayed = 0;
  for (unsigned seed = 0; seed < cases(600, 10); ++seed) {
    const Schedule built = AsynchronousSchedule(seed).make();
    const std::optional<Timeline> timeline = walk_if_possible(built);
    if (!timeline || timeline->outcome.kind != Outcome::Kind::race) continue;
    ++races;
    const RaceReplays found = replay_race(built, {}, *Streams(seed).cuda);
    CHECK(found.why.empty() == (found.replays > 0));
    replayed += found.replays > 0;
    observed += found.different > 0;
  }
  CHECK(races > cases(150, 10));
  CHECK(replayed > cases(150, 10));
  // A race leaves no trace where both steps only read, where nothing reads afterwards, or where their order is all one.
  CHECK(observed * 10 > replayed * 4);
}

TEST_CASE("what is touched in flight shows, wherever its wait is missing") {
  const std::vector<Parameter> one = {parameter("w", {40})};
  const Step reduce = asynchronous(collective(Op::all_reduce, "reduce", Axis::dp));
  SECTION("a step in front of the wait") {
    CHECK(different({backwards(), reduce, noise(), wait_for("reduce")}, one) > 3);
  }
  SECTION("at the end of the list") { CHECK(different({backwards(), reduce}, one) > 3); }
  SECTION("an asynchronous local step") {
    CHECK(different(
              {backwards(), asynchronous(half("half")), collective(Op::all_reduce, "sum", Axis::dp), wait_for("half")},
              one) > 3);
  }
  SECTION("one asynchronous step behind another") {
    Step gather = asynchronous(collective(Op::reduce_scatter, "scatter", Axis::dp));
    CHECK(different({backwards(), reduce, gather, wait_for("reduce"), wait_for("scatter")}, one) > 3);
  }
  SECTION("members whose buffers are cut differently, one at a time in memory that they share") {
    Step scatter = collective(Op::reduce_scatter, "scatter", Axis::dp);
    Step owned = reduce;
    owned.on_owned = true;
    CHECK(different({backwards(), scatter, owned, noise(), wait_for("reduce")}, one) > 3);
  }
}

TEST_CASE("a schedule that its waits do not save is not replayed") {
  Step reduce = asynchronous(collective(Op::all_reduce, "reduce", Axis::dp));
  reduce.when = Expression::parse("rank.dp == 0");
  const Schedule built = schedule_of(dp(2), {parameter("w", {4})}, {backwards(), reduce, half("half")});
  REQUIRE(walk(built).outcome.kind == Outcome::Kind::race);
  Streams gpu(1);
  const RaceReplays found = replay_race(built, {}, *gpu.cuda);
  CHECK(found.replays == 0);
  CHECK(found.why == "with its waits the schedule does not come to the end of an optimizer step either");
  CHECK(gpu.launcher->launches == 0);
}

TEST_CASE("streams are used for plans with asynchronous steps alone, and each is told with its step") {
  const Schedule plain =
      schedule_of(dp(4), {parameter("w", {40})}, {backwards(), collective(Op::all_reduce, "reduce", Axis::dp)});
  Streams without(1);
  run_cuda(plain, walk(plain), {}, *without.cuda);
  CHECK(without.launcher->stream_launches == 0);
  const Schedule built =
      schedule_of(dp(4), {parameter("w", {40})},
                  {backwards(), asynchronous(collective(Op::all_reduce, "reduce", Axis::dp)), wait_for("reduce")});
  const Timeline timeline = walk(built);
  Streams with(1);
  run_cuda(built, timeline, {}, *with.cuda);
  CHECK(with.launcher->stream_launches > 0);
  bool named = false;
  for (std::uint64_t number = 1; number <= with.launcher->launches; ++number) {
    Streams failing(1);
    failing.launcher->fails_at = number;
    try {
      run_cuda(built, timeline, {}, *failing.cuda);
      FAIL("launch " << number << " did not fail");
    } catch (const CudaFailure& failure) {
      named = named || std::string(failure.what()).find("step \"reduce\" (all_reduce)") != std::string::npos;
    }
  }
  CHECK(named);
}
