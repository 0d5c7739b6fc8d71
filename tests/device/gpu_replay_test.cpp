// SPDX-License-Identifier: Apache-2.0
#include "src/device/gpu_replay.h"

#include "src/numeric/component.h"
#include "src/numeric/exactness.h"
#include "tests/catch.h"
#include "tests/device/host_gpu.h"
#include "tests/schedule/builder.h"

using namespace lockstep;
using namespace lockstep::test;
using namespace lockstep::numeric;

TEST_CASE("stretches of elements with gaps between them are replayed in every kind of number") {
  Layout layout = dp(4);
  layout.tp = 2;
  Parameter cut = parameter("w", {60, 100});
  cut.shard = {{Axis::tp, 1, false}};
  Step gather = collective(Op::all_gather, "gather", Axis::dp);
  Schedule built =
      schedule(layout, {cut}, {backwards(), collective(Op::reduce_scatter, "scatter", Axis::dp), gather}, 1, 2);
  built.batch.loss_of_use["main"].kind = Loss::Kind::sum;  // whole numbers, which 16 bits hold
  const Timeline timeline = walk(built);
  const Components components = find_components(built, timeline);
  const Planner planner(built, timeline, components);
  const Intervals elements = {{0, 1}, {3, 40}, {49, 51}, {512, 1500}, {2001, 2002}, {2499, 3000}};
  for (const Arithmetic arithmetic :
       {Arithmetic::bfloat16, Arithmetic::float16, Arithmetic::float32, Arithmetic::float64, Arithmetic::prime61}) {
    for (const std::int64_t most : {100, 10'000}) {
      Plan plan = planner.plan(components.list.at(0));
      ReplayOptions options;
      options.arithmetic = arithmetic;
      options.bits = 2;
      options.hashed.assign(plan.pieces.size(), 1);
      REQUIRE(bind(plan, {arithmetic, Rational(1), options.bits, 4}));
      Findings expected = replay(built.model, plan, options, {0, 0}, 64);
      for (const Interval& each : elements) expected.add(replay(built.model, plan, options, each, 64));
      HostGpu gpu(host_facts(), 7u);
      device::GpuReplay on_gpu(gpu, built.model, 4096);
      const Findings found = on_gpu.replay(plan, options, elements, most);
      INFO(name_of(arithmetic) << ", " << most << " at a time");
      CHECK(gpu.launcher().fused_launches > 0);
      CHECK(found.reference == expected.reference);
      REQUIRE(found.checks.size() == expected.checks.size());
      for (std::size_t i = 0; i < found.checks.size(); ++i) {
        CHECK(found.checks[i].right == expected.checks[i].right);
        CHECK(found.checks[i].got == expected.checks[i].got);
        CHECK(found.checks[i].expected == expected.checks[i].expected);
      }
    }
  }
}

TEST_CASE("as many threads share the memory of a block as it has room for") {
  const device::GpuFacts facts = host_facts(1 << 20, 100'000);
  CHECK(device::fused_threads(facts, 4, 11) == 256);
  const unsigned some = device::fused_threads(facts, 40, 401);
  CHECK(some > 0);
  CHECK(kernels::fused_bytes(40, 401, some) <= 100'000);
  CHECK(device::fused_threads(facts, 1000, 11) == 0);
}
