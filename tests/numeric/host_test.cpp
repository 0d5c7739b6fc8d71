// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <vector>

#include "lockstep/numeric.h"
#include "tests/catch.h"
#include "tests/numeric/expected.h"
#include "tests/schedule/builder.h"

using namespace lockstep;
using namespace lockstep::test;

namespace {

constexpr std::int64_t n = 9;  // elements: no multiple of a group's size

struct Expected {
  int rank;
  Intervals owned;
  Formula formula;
};

// One parameter, one micro-batch, `ranks` ranks along dp: what each of them must hold.
void check_values(int ranks, std::vector<Step> steps, const std::vector<Expected>& expected) {
  const Schedule built = schedule_of(dp(ranks), {parameter("w", {n})}, std::move(steps));
  const Timeline timeline = walk(built);
  REQUIRE(timeline.outcome.kind == Outcome::Kind::complete);
  const HostResult result = run_host(built, timeline);
  const numeric::Choice choice = choice_of(built, timeline);
  REQUIRE(choice.arithmetic == Arithmetic::float32);
  for (const Expected& each : expected) {
    INFO("rank " << each.rank);
    CHECK(timeline.owned[0][static_cast<std::size_t>(each.rank)][0] == each.owned);
    CHECK(result.buffers[static_cast<std::size_t>(each.rank)].hash == hash_of(each.formula, each.owned, choice));
  }
}

const Intervals all = {{0, n}};

Step scaled(const std::string& by) {
  Step result = step(Op::scale, "scale");
  result.by = Expression::parse(by);
  return result;
}

Step averaged(Step step) {
  step.reduction = Reduction::average;
  return step;
}

Step rooted(Step step, int position) {
  step.root = Root{position, {}};
  return step;
}

Step moving(Op op, const std::string& from, const std::string& to) {
  Step result = step(op, from + " to " + to);
  result.from = from;
  result.buffer = to;
  return result;
}

Step leftover(const std::string& what, bool per_rank, const std::string& by) {
  Step result = step(Op::leftover, "leftover " + what);
  result.what = what;
  result.per_rank = per_rank;
  result.by = Expression::parse(by);
  return result;
}

Schedule with_loss(Schedule&& schedule, Loss::Kind kind) {
  schedule.batch.loss_of_use["main"].kind = kind;
  return std::move(schedule);
}

HostResult run(const Schedule& schedule, const HostOptions& options = {}) {
  return run_host(schedule, walk(schedule), options);
}

}  // namespace

TEST_CASE("backward, scale, all_reduce and zero do what their names say") {
  check_values(3, {backwards()}, {{0, all, {{1, g(0)}}}, {2, all, {{1, g(2)}}}});
  check_values(3, {backwards(), scaled("-3/4")}, {{1, all, {{-0.75, g(1)}}}});
  check_values(3, {backwards(), collective(Op::all_reduce, "ar", Axis::dp)},
               {{1, all, {{1, g(0)}, {1, g(1)}, {1, g(2)}}}});
  check_values(3, {backwards(), averaged(collective(Op::all_reduce, "ar", Axis::dp))},
               {{2, all, {{1. / 3, g(0)}, {1. / 3, g(1)}, {1. / 3, g(2)}}}});
  check_values(2, {backwards(), step(Op::zero, "zero")}, {{0, all, {}}});
  check_values(2, {backwards(), scaled("0")}, {{1, all, {}}});
}

TEST_CASE("a reduce_scatter leaves stale elements and an all_gather brings the slices together") {
  const Formula sum = {{1, g(0)}, {1, g(1)}};
  check_values(2, {backwards(), collective(Op::reduce_scatter, "rs", Axis::dp)},
               {{0, {{0, 5}}, sum}, {1, {{5, 9}}, sum}});
  check_values(
      2, {backwards(), collective(Op::reduce_scatter, "rs", Axis::dp), collective(Op::all_gather, "ag", Axis::dp)},
      {{0, all, sum}, {1, all, sum}});
  // A second reduction over the whole buffer takes the stale elements along.
  const Schedule built = schedule_of(
      dp(2), {parameter("w", {n})},
      {backwards(), collective(Op::reduce_scatter, "rs", Axis::dp), collective(Op::all_reduce, "ar", Axis::dp)});
  const Timeline timeline = walk(built);
  const HostResult result = run_host(built, timeline);
  CHECK(result.buffers[0].hash == hash_of({{1, g(0)}, {2, g(1)}}, {{0, 5}}, choice_of(built, timeline)));
  CHECK(result.buffers[1].hash == hash_of({{2, g(0)}, {1, g(1)}}, {{5, 9}}, choice_of(built, timeline)));
}

TEST_CASE("broadcast and reduce use their root") {
  check_values(3, {backwards(), rooted(collective(Op::broadcast, "b", Axis::dp), 1)},
               {{0, all, {{1, g(1)}}}, {1, all, {{1, g(1)}}}, {2, all, {{1, g(1)}}}});
  check_values(3, {backwards(), rooted(collective(Op::reduce, "r", Axis::dp), 2)},
               {{2, all, {{1, g(0)}, {1, g(1)}, {1, g(2)}}}, {0, {}, {}}});
}

TEST_CASE("copy, accumulate and leftovers act on the buffers that they name") {
  Step other = step(Op::scale, "double main");
  other.buffer = "main";
  other.by = Expression::parse("2");
  check_values(2, {backwards(), moving(Op::copy, "grad", "main"), other, moving(Op::accumulate, "main", "grad")},
               {{1, all, {{3, g(1)}}}});
  check_values(2, {backwards(), moving(Op::accumulate, "grad", "grad")}, {{0, all, {{2, g(0)}}}});
  check_values(2, {backwards(), moving(Op::copy, "never", "grad")}, {{0, all, {}}});
  check_values(
      2, {backwards(), leftover("parameter", false, "1/2"), leftover("noise", true, "-3")},
      {{0,
        all,
        {{1, g(0)}, {0.5, numeric::leftover_key(0, "parameter", -1)}, {-3, numeric::leftover_key(0, "noise", 0)}}},
       {1,
        all,
        {{1, g(1)}, {0.5, numeric::leftover_key(0, "parameter", -1)}, {-3, numeric::leftover_key(0, "noise", 1)}}}});
}

TEST_CASE("a collective on what is owned acts on those elements alone") {
  Layout layout = dp(4);
  layout.dp_shard = 2;
  layout.dp_replicate = 2;
  Step second = collective(Op::all_reduce, "replicas", Axis::dp_replicate);
  second.on_owned = true;
  const std::vector<Step> gathered = {backwards(), collective(Op::reduce_scatter, "rs", Axis::dp_shard), second,
                                      collective(Op::all_gather, "ag", Axis::dp_shard)};
  CHECK(run(with_loss(schedule_of(layout, {parameter("w", {n})}, gathered), Loss::Kind::sum)).match);
  Step scatter = second;
  scatter.op = Op::reduce_scatter;
  const std::vector<Step> scattered = {backwards(), collective(Op::reduce_scatter, "rs", Axis::dp_shard), scatter};
  const Schedule twice = with_loss(schedule_of(layout, {parameter("w", {n})}, scattered), Loss::Kind::sum);
  const Timeline timeline = walk(twice);
  CHECK(timeline.owned[0][0][0] == Intervals{{0, 3}});
  CHECK(run_host(twice, timeline).match);
}

TEST_CASE("a collective on what is owned leaves stale elements as they are") {
  Layout layout = dp(4);
  layout.dp_shard = layout.dp_replicate = 2;
  Step on_owned = collective(Op::all_reduce, "replicas", Axis::dp_replicate), own = step(Op::own, "own all");
  on_owned.on_owned = true;
  own.over = Over{};
  const Schedule built =
      schedule_of(layout, {parameter("w", {n})},
                  {backwards(), collective(Op::reduce_scatter, "rs", Axis::dp_shard), on_owned, own});
  const Timeline timeline = walk(built);
  REQUIRE(timeline.owned[0][0][0] == all);
  const numeric::Choice choice = choice_of(built, timeline);
  const Formula sum = {{1, g(0)}, {1, g(1)}, {1, g(2)}, {1, g(3)}};
  for (const HostBuffer& buffer : run_host(built, timeline).buffers) {
    const bool low = buffer.rank % 2 == 0;  // dp_shard is the fast axis
    GradientHash expected = hash_of(sum, {low ? Interval{0, 5} : Interval{5, n}}, choice);
    expected += hash_of({{1, g(buffer.rank)}}, {low ? Interval{5, n} : Interval{0, 5}}, choice);
    CHECK(buffer.hash == expected);
  }
}

TEST_CASE("a piece that several unlinked buffers hold enters the hash of the reference once") {
  const HostResult result = run(schedule_of(dp(3), {parameter("w", {n})}, {backwards()}));
  CHECK_FALSE(result.match);
  for (const HostBuffer& buffer : result.buffers) CHECK(buffer.expected_hash == result.reference[0]);
}

TEST_CASE("members that act on different elements meet by position") {
  // Rank 0 owns the first half and rank 1 the second; their owned parts are then added.
  Step cross = collective(Op::all_reduce, "cross", Axis::dp);
  cross.on_owned = true;
  const Schedule built =
      schedule_of(dp(2), {parameter("w", {10})}, {backwards(), collective(Op::reduce_scatter, "rs", Axis::dp), cross});
  const Timeline timeline = walk(built);
  const HostResult result = run_host(built, timeline);
  const numeric::Choice choice = choice_of(built, timeline);
  std::vector<float> low(5), high(5);
  std::vector<std::int32_t> numbers(10);
  const auto multiple = static_cast<float>(*choice.multiple.to_int64());
  std::vector<float> sums(10, 0.0f);
  for (int rank = 0; rank < 2; ++rank) {
    numeric::generate(g(rank), choice.bits, 0, 10, numbers.data());
    for (std::size_t i = 0; i < 10; ++i) sums[i] += multiple * static_cast<float>(numbers[i]);
  }
  for (std::size_t i = 0; i < 5; ++i) low[i] = high[i] = sums[i] + sums[i + 5];
  CHECK(result.buffers[0].hash == hash_elements(low.data(), 5, 0));
  CHECK(result.buffers[1].hash == hash_elements(high.data(), 5, 5));
  CHECK_FALSE(result.match);
}

TEST_CASE("Megatron-LM 844: stages that cut the tied embedding differently add stale halves") {
  Layout layout = dp(2);
  layout.pp = 2;
  Parameter first = parameter("embedding", {64}), filler = parameter("filler", {64}), last = parameter("output", {64}),
            norm = parameter("norm", {64});
  first.tied = last.tied = "embedding";
  filler.stage = 0;
  norm.stage = last.stage = 1;
  Step scatter = averaged(collective(Op::reduce_scatter, "dp_reduce_scatter", Axis::dp));
  scatter.geometry.own().kind = Geometry::Kind::bucket;
  Step embedding = collective(Op::all_reduce, "embedding_all_reduce", Axis::pp);
  embedding.params = Selectors({"tied:embedding"});
  Step backward = backwards();
  const auto build = [&](std::vector<Step> steps) {
    Schedule built = schedule_of(layout, {first, filler, norm, last}, std::move(steps));
    built.batch.tokens_of_use["main"].kind = Batch::Tokens::Kind::even;
    built.batch.loss_of_use["main"].kind = Loss::Kind::local_mean;
    return built;
  };
  const Schedule buggy = build({backward, scatter, embedding});
  const Timeline timeline = walk(buggy);
  const HostResult result = run_host(buggy, timeline);
  CHECK_FALSE(result.match);
  const numeric::Choice choice = choice_of(buggy, timeline);
  const auto use = [](int rank) { return numeric::gradient_key(0, rank, 0, rank / 2); };
  for (const HostBuffer& buffer : result.buffers) {
    const LocalBuffer& local = buggy.model.local(buffer.rank).buffers[static_cast<std::size_t>(buffer.buffer)];
    const bool tied = buggy.model.logicals()[static_cast<std::size_t>(local.logical)].tied == "embedding";
    INFO("rank " << buffer.rank << " buffer " << buffer.buffer);
    CHECK(buffer.right == !(tied && (buffer.rank == 1 || buffer.rank == 2)));
    if (!tied) continue;
    const Formula right = {{0.5, use(0)}, {0.5, use(1)}, {0.5, use(2)}, {0.5, use(3)}};
    const Intervals& owned =
        timeline.owned[0][static_cast<std::size_t>(buffer.rank)][static_cast<std::size_t>(buffer.buffer)];
    CHECK(buffer.expected_hash == hash_of(right, owned, choice));
    if (buffer.rank == 1) CHECK(buffer.hash == hash_of({{1, use(3)}, {0.5, use(0)}, {0.5, use(1)}}, owned, choice));
    if (buffer.rank == 2) CHECK(buffer.hash == hash_of({{1, use(0)}, {0.5, use(2)}, {0.5, use(3)}}, owned, choice));
  }
  CHECK(run(build({backward, embedding, scatter})).match);
}

TEST_CASE("the hash of the reference is that of the whole logical gradient, whatever the sharding") {
  std::vector<GradientHash> hashes;
  for (const int tp : {1, 2, 4}) {
    Layout layout = dp(2);
    layout.tp = tp;
    Parameter rows = parameter("rows", {8, 12}), columns = parameter("columns", {8, 12});
    if (tp > 1) {
      rows.shard = {{Axis::tp, 0, false}};
      columns.shard = {{Axis::tp, 1, false}};
    }
    const Schedule built =
        with_loss(schedule_of(layout, {rows, columns}, {backwards(), collective(Op::all_reduce, "ar", Axis::dp)}),
                  Loss::Kind::sum);
    const Timeline timeline = walk(built);
    const HostResult result = run_host(built, timeline);
    CHECK(result.match);
    // The sharded gradient is the sum over the tp ranks' own tokens, so the numbers differ; that
    // the shards add up to the whole is what is compared.
    for (std::size_t logical = 0; logical < 2; ++logical) {
      GradientHash sum;
      for (const HostBuffer& buffer : result.buffers) {
        if (buffer.buffer == static_cast<int>(logical) && built.mesh.coordinate(buffer.rank, Axis::dp) == 0)
          sum += buffer.hash;
      }
      CHECK(result.reference[logical] == sum);
    }
  }
}

TEST_CASE("later optimizer steps are compared too, and the first wrong one is reported") {
  Step zero = when(step(Op::zero, "zero"), "step == 0");
  const Schedule forgets = with_loss(
      schedule_of(dp(2), {parameter("w", {n})}, {zero, backwards(), collective(Op::all_reduce, "ar", Axis::dp)}, 1, 3),
      Loss::Kind::sum);
  const HostResult result = run(forgets);
  CHECK_FALSE(result.match);
  CHECK(result.step == 1);
  const Schedule clears =
      with_loss(schedule_of(dp(2), {parameter("w", {n})},
                            {step(Op::zero, "zero"), backwards(), collective(Op::all_reduce, "ar", Axis::dp)}, 1, 3),
                Loss::Kind::sum);
  const HostResult right = run(clears);
  CHECK(right.match);
  CHECK(right.step == 2);
}

TEST_CASE("losses and uneven tokens: the documented factors are right and others are not") {
  const auto match = [](Loss::Kind kind, const std::string& by, bool even) {
    Layout layout = dp(2);
    layout.cp = 2;
    Step backward = backwards();
    backward.steps[0].by = Expression::parse(by);
    Step reduce = step(Op::all_reduce, "ar");
    reduce.over = Over{{{Axis::dp, std::nullopt}, {Axis::cp, std::nullopt}}};
    Schedule built = with_loss(schedule_of(layout, {parameter("w", {n})}, {backward, reduce}, 2), kind);
    if (even) built.batch.tokens_of_use["main"].kind = Batch::Tokens::Kind::even;
    return run(built).match;
  };
  CHECK(match(Loss::Kind::sum, "1", false));
  CHECK(match(Loss::Kind::token_mean, "1 / sum(tokens, dp, cp, micro_batch)", false));
  CHECK(match(Loss::Kind::micro_batch_mean, "1 / sum(tokens, cp) / dp / micro_batches", false));
  CHECK(match(Loss::Kind::local_mean, "1 / tokens / dp / cp / micro_batches", false));
  CHECK_FALSE(match(Loss::Kind::token_mean, "1 / tokens / dp / cp / micro_batches", false));
  CHECK_FALSE(match(Loss::Kind::micro_batch_mean, "1 / tokens / dp / cp / micro_batches", false));
  CHECK(match(Loss::Kind::token_mean, "1 / tokens / dp / cp / micro_batches", true));
  CHECK_FALSE(match(Loss::Kind::sum, "1 / tokens", false));
}

TEST_CASE("a dtype that is too short is replaced by the next wider one, with a note") {
  const auto run_in = [](Dtype dtype, int ranks, int divisor) {
    Parameter w = parameter("w", {n});
    w.dtype = dtype;
    Step backward = backwards();
    backward.steps[0].by = Expression(Rational(1, divisor));
    Schedule built = schedule_of(dp(ranks), {w}, {backward, collective(Op::all_reduce, "ar", Axis::dp)});
    built.batch.tokens_of_use["main"].kind = Batch::Tokens::Kind::even;
    built.batch.loss_of_use["main"].kind = Loss::Kind::weight;
    built.batch.loss_of_use["main"].weight = Expression(Rational(1, divisor));
    return run(built);
  };
  const auto arithmetic = [](const HostResult& result) { return result.buffers[0].arithmetic; };
  CHECK(arithmetic(run_in(Dtype::float32, 2, 1)) == Arithmetic::float32);
  CHECK(run_in(Dtype::float32, 2, 1).notes.empty());
  CHECK(arithmetic(run_in(Dtype::bfloat16, 2, 1)) == Arithmetic::bfloat16);
  CHECK(arithmetic(run_in(Dtype::bfloat16, 64, 1)) == Arithmetic::float32);
  CHECK(arithmetic(run_in(Dtype::float32, 2, 3 * 5 * 7 * 11 * 13)) ==
        Arithmetic::float32);  // the multiple cancels again
  const HostResult wide = run_in(Dtype::bfloat16, 64, 1);
  REQUIRE(wide.notes.size() == 1);
  CHECK(wide.notes[0] ==
        "1 parameter cannot be exact in bfloat16 (up to 10 significant bits are needed); computed in float32.");
  CHECK(arithmetic(run_in(Dtype::float16, 64, 1)) == Arithmetic::float16);
  CHECK(arithmetic(run_in(Dtype::float16, 512, 1)) == Arithmetic::float32);
  for (const Dtype dtype : {Dtype::bfloat16, Dtype::float16, Dtype::float32, Dtype::float64}) {
    CHECK(run_in(dtype, 8, 3).match);
    CHECK(run_in(dtype, 8, 256).match);
  }
}

TEST_CASE("factors that no float can hold are computed modulo a prime") {
  const auto weights = [](const std::string& loss, const std::string& by) {
    Step each = backwards();
    each.steps[0].by = Expression::parse(by);
    Schedule built = schedule_of(dp(3), {parameter("w", {n})}, {each, collective(Op::all_reduce, "ar", Axis::dp)});
    built.batch.loss_of_use["main"].kind = Loss::Kind::weight;
    built.batch.loss_of_use["main"].weight = Expression::parse(loss);
    return run(built);
  };
  const std::string fraction = "1 / (999983 + 36 * rank.dp) / (999961 + 22 * rank.dp)";
  const HostResult right = weights(fraction, fraction);
  CHECK(right.match);
  CHECK(right.buffers[0].arithmetic == Arithmetic::prime61);
  CHECK(right.buffers[0].hash == right.buffers[0].expected_hash);
  REQUIRE(right.notes.size() == 1);
  CHECK(right.notes[0].find("computed modulo the prime 2^61 - 1.") != std::string::npos);
  CHECK_FALSE(weights(fraction, "1 / (999983 + 36 * rank.dp) / (999961 + 24 * rank.dp)").match);
}

TEST_CASE("what can be computed in no way is not replayed, and only counts as right") {
  // More digits than float64 has, and the prime itself as a divisor.
  const std::string weight = "1 / (999983 + 36 * rank.dp) / (999961 + 22 * rank.dp) / 2305843009213693951";
  Step each = backwards();
  each.steps[0].by = Expression::parse(weight);
  Schedule built = schedule_of(dp(3), {parameter("w", {n})}, {each, collective(Op::all_reduce, "ar", Axis::dp)});
  built.batch.loss_of_use["main"].kind = Loss::Kind::weight;
  built.batch.loss_of_use["main"].weight = Expression::parse(weight);
  const HostResult result = run(built);
  REQUIRE(result.buffers.size() == 3);
  for (const HostBuffer& buffer : result.buffers) CHECK((!buffer.replayed && buffer.right));
  CHECK(result.elements == 0);
  CHECK(result.of == 3 * n);
  REQUIRE_FALSE(result.notes.empty());
  CHECK(result.notes.back() ==
        "w needs more bits than float64 has, and a factor that has no value modulo 2^61 - 1; it was not replayed.");
  const HostResult plain = run(schedule_of(dp(3), {parameter("w", {n})}, {backwards()}));
  for (const HostBuffer& buffer : plain.buffers) CHECK(buffer.replayed);
}

TEST_CASE("what must be in memory at once and is too large for that is not replayed") {
  // Rank 0 owns the first half and rank 1 the second; their owned parts are then added.
  Step cross = collective(Op::all_reduce, "cross", Axis::dp);
  cross.on_owned = true;
  const std::vector<Step> steps = {backwards(), collective(Op::reduce_scatter, "rs", Axis::dp), cross};
  const auto replayed = [&](std::int64_t numel) {
    const HostResult result = run(schedule_of(dp(2), {parameter("w", {numel})}, steps));
    for (const HostBuffer& buffer : result.buffers) CHECK(buffer.replayed == (result.elements > 0));
    CHECK(result.notes.empty() == (result.elements > 0));
    return result;
  };
  CHECK(replayed(1000).elements > 0);
  const HostResult large = replayed(20'000'000);
  CHECK(large.elements == 0);
  CHECK(large.match);
  CHECK(
      large.notes.front() ==
      "w and the buffers that it meets act on elements at different places, so that their 610 MiB would have to be in "
      "memory at once (the limit is 256 MiB); they were not replayed.");
}

TEST_CASE("a reference in float64 is hashed once") {
  Parameter w = parameter("w", {n});
  w.dtype = Dtype::float64;
  const Schedule built =
      with_loss(schedule_of(dp(2), {w}, {backwards(), collective(Op::all_reduce, "ar", Axis::dp)}), Loss::Kind::sum);
  const Timeline timeline = walk(built);
  const HostResult result = run_host(built, timeline);
  CHECK(result.match);
  const numeric::Choice choice = choice_of(built, timeline);
  REQUIRE(choice.arithmetic == Arithmetic::float64);
  std::vector<double> sums(n, 0.0);
  std::vector<std::int32_t> numbers(n);
  for (int rank = 0; rank < 2; ++rank) {
    numeric::generate(g(rank), choice.bits, 0, n, numbers.data());
    for (std::size_t i = 0; i < n; ++i) sums[i] += numbers[i];
  }
  CHECK(result.reference[0] == hash_elements(sums.data(), n, 0));
  CHECK(result.buffers[0].hash == result.reference[0]);
}

TEST_CASE("above the limit only blocks around cuts and at random places are replayed") {
  const auto build = [](bool buggy) {
    Step scatter = collective(Op::reduce_scatter, "rs", Axis::dp);
    std::vector<Step> steps = {backwards(), scatter};
    if (buggy) steps.push_back(collective(Op::all_reduce, "ar", Axis::dp));
    return with_loss(schedule_of(dp(4), {parameter("huge", {100'000, 5'000}), parameter("small", {5})}, steps),
                     Loss::Kind::sum);
  };
  const HostResult right = run(build(false));
  CHECK(right.sampled);
  CHECK(right.match);
  CHECK(right.of == 4 * (500'000'000 + 5));
  CHECK(right.elements > 1'000'000);
  CHECK(right.elements < right.of);
  CHECK_FALSE(run(build(true)).match);
  HostOptions other;
  other.seed = 1;
  CHECK_FALSE(run(build(false), other).buffers[0].hash == right.buffers[0].hash);
  CHECK(run(build(false)).buffers[0].hash == right.buffers[0].hash);
}

TEST_CASE("results do not depend on threads, and progress arrives at all elements") {
  const Schedule built = with_loss(schedule_of(dp(3), {parameter("a", {3000, 700}), parameter("b", {77})},
                                               {backwards(), collective(Op::reduce_scatter, "rs", Axis::dp)}),
                                   Loss::Kind::sum);
  std::vector<HostResult> results;
  for (const int threads : {1, 2, 5}) {
    HostOptions options;
    options.threads = threads;
    std::int64_t last = 0, all_elements = 0;
    options.progress = [&](std::int64_t done, std::int64_t total) {
      CHECK(done >= last);
      last = done;
      all_elements = total;
    };
    results.push_back(run(built, options));
    CHECK(last == all_elements);
    CHECK(all_elements == results.back().of);
    CHECK(results.back().elements == results.back().of);
    CHECK(results.back().match);
    for (std::size_t i = 0; i < results.back().buffers.size(); ++i)
      CHECK(results.back().buffers[i].hash == results[0].buffers[i].hash);
  }
}

TEST_CASE("without hashes the same buffers are found wrong") {
  for (const bool right : {true, false}) {
    const Schedule built = with_loss(
        schedule_of(dp(3), {parameter("a", {3000, 700}), parameter("b", {77})},
                    {backwards(), scaled(right ? "1" : "2 - rank.dp"), collective(Op::reduce_scatter, "rs", Axis::dp)}),
        Loss::Kind::sum);
    HostOptions options;
    options.hashes = false;
    const HostResult with = run(built), without = run(built, options);
    CHECK(with.match == right);
    CHECK(without.match == right);
    REQUIRE(with.buffers.size() == without.buffers.size());
    for (std::size_t i = 0; i < with.buffers.size(); ++i) {
      CHECK(with.buffers[i].right == without.buffers[i].right);
      CHECK(without.buffers[i].hash == GradientHash());
    }
  }
}

TEST_CASE("a timeline that completed no step has nothing to compare") {
  const Schedule built = schedule_of(dp(2), {parameter("w", {n})},
                                     {backwards(), when(collective(Op::all_reduce, "ar", Axis::dp), "rank.dp == 0")});
  const Timeline timeline = walk(built);
  REQUIRE(timeline.outcome.kind == Outcome::Kind::deadlock);
  const HostResult result = run_host(built, timeline);
  CHECK_FALSE(result.match);
  CHECK(result.buffers.empty());
  CHECK(result.elements == 0);
}
