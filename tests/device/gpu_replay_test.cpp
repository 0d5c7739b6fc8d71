// SPDX-License-Identifier: Apache-2.0
#include "src/device/gpu_replay.h"

#include "src/device/joined_tasks.h"
#include "src/numeric/component.h"
#include "src/numeric/exactness.h"
#include "tests/catch.h"
#include "tests/device/host_gpu.h"
#include "tests/schedule/builder.h"

using namespace lockstep;
using namespace lockstep::test;
using namespace lockstep::numeric;

namespace {

void check_same(const Findings& found, const Findings& expected) {
  CHECK(found.reference == expected.reference);
  REQUIRE(found.checks.size() == expected.checks.size());
  for (std::size_t i = 0; i < found.checks.size(); ++i) {
    CHECK(found.checks[i].right == expected.checks[i].right);
    CHECK(found.checks[i].got == expected.checks[i].got);
    CHECK(found.checks[i].expected == expected.checks[i].expected);
  }
}

}  // namespace

TEST_CASE("stretches of elements with gaps between them are replayed in every kind of number") {
  Layout layout = dp(4);
  layout.tp = 2;
  Parameter cut = parameter("w", {60, 100});
  cut.shard = {{Axis::tp, 1, false}};
  Step gather = collective(Op::all_gather, "gather", Axis::dp);
  Schedule built =
      schedule_of(layout, {cut}, {backwards(), collective(Op::reduce_scatter, "scatter", Axis::dp), gather}, 1, 2);
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
      const Findings expected = replay(built.model, plan, options, elements, 64);
      HostGpu gpu(host_facts(), 7u);
      device::GpuReplay on_gpu(gpu, built.model, 4096);
      const Findings found = on_gpu.replay(plan, options, elements, most);
      INFO(name_of(arithmetic) << ", " << most << " at a time");
      CHECK(gpu.launcher().fused_launches > 0);
      check_same(found, expected);
    }
  }
}

TEST_CASE(
    "with few packs in the memory of a block the first and the last block of elements alone are replayed in one "
    "kernel") {
  Step mean = collective(Op::all_reduce, "mean", Axis::dp);
  Schedule built = schedule_of(dp(2), {parameter("w", {5000})}, {backwards(), mean}, 1, 2);
  built.batch.loss_of_use["main"].kind = Loss::Kind::sum;
  const Timeline timeline = walk(built);
  const Components components = find_components(built, timeline);
  Plan plan = Planner(built, timeline, components).plan(components.list.at(0));
  ReplayOptions options;
  options.arithmetic = Arithmetic::float32;
  options.bits = 2;
  options.hashed.assign(plan.pieces.size(), 1);
  REQUIRE(bind(plan, {options.arithmetic, Rational(1), options.bits, 4}));
  const Findings expected = replay(built.model, plan, options, {{0, 5000}}, 512);
  const device::GpuLayout layout(plan);
  const auto fused_launches = [&](unsigned packs) {
    const device::GpuFacts facts = host_facts(1 << 28, kernels::fused_bytes(layout.slots(), layout.results(), packs));
    REQUIRE(device::fused_packs(facts, layout.slots(), layout.results()) == packs);
    HostGpu gpu(facts, packs);
    device::GpuReplay on_gpu(gpu, built.model, 4096);
    const Findings found = on_gpu.replay(plan, options, {{0, 5000}}, 512);
    check_same(found, expected);
    return gpu.launcher().fused_launches;
  };
  CHECK(fused_launches(128) == 10);
  CHECK(fused_launches(64) == 2);
}

TEST_CASE("with many buffers there is more memory for them, and never more than three quarters of what is free") {
  constexpr std::uint64_t gibibyte = std::uint64_t{1} << 30, mebibyte = std::uint64_t{1} << 20;
  const auto planned = [](int ranks, std::uint64_t free_memory) {
    const Schedule built = schedule_of(dp(ranks), {parameter("w", {1'000'000'000})},
                                       {backwards(), collective(Op::all_reduce, "sum", Axis::dp)});
    const Timeline timeline = walk(built);
    Preparation preparation(built, timeline, true, 1);
    for (const std::size_t component : preparation.chosen()) preparation.look_at(component);
    preparation.decide();
    return device::GpuMemoryPlan(host_facts(free_memory), built, preparation, device::joined(preparation.tasks()), 0)
        .for_buffers;
  };
  const auto within = [](std::uint64_t bytes, std::uint64_t most) { return bytes <= most && bytes > most - most / 64; };
  CHECK(within(planned(8, 80 * gibibyte), 4 * gibibyte));
  CHECK(within(planned(127, 80 * gibibyte), 128 * 64 * mebibyte));  // and a reference
  CHECK(within(planned(127, 8 * gibibyte), 6 * gibibyte));
}

TEST_CASE("a block that is cut for several processes has room in the memory that is planned for it") {
  struct Room {
    std::uint64_t most = 0, longest = 0;  // elements of a block as planned, and of the longest
    bool fits = false;
  };
  const auto room = [](std::int64_t numel) {
    const Schedule built =
        schedule_of(dp(7), {parameter("w", {numel})}, {backwards(), collective(Op::all_reduce, "sum", Axis::dp)});
    const Timeline timeline = walk(built);
    Preparation preparation(built, timeline, true, 1);
    for (const std::size_t component : preparation.chosen()) preparation.look_at(component);
    preparation.decide();
    const std::vector<Task> tasks = {preparation.tasks().front()};
    const device::Folding folding(7, 7);
    const device::GpuMemoryPlan plan(host_facts(250'000), built, preparation, tasks, 0, &folding);
    Room result{static_cast<std::uint64_t>(plan.block_elements[0])};
    for (const device::Block& block : device::cut_into_blocks(tasks[0].elements, plan.block_elements[0], 7))
      result.longest = std::max<std::uint64_t>(result.longest, block.count());
    const Arithmetic arithmetic = preparation.prepared()[tasks[0].component].choice.arithmetic;
    const std::uint64_t element = (2 + device::slots_for_network) * device::bytes_of(arithmetic);
    result.fits = device::stride_of(result.longest + device::more_for_network(7)) * element <= plan.for_buffers;
    return result;
  };
  const auto most = static_cast<std::int64_t>(room(1'000'000).most);
  int longer = 0;
  for (std::int64_t numel = 3 * most - 30; numel <= 3 * most; ++numel) {
    const Room found = room(numel);
    INFO(numel << " elements in blocks of " << found.most << ", one of " << found.longest);
    CHECK(found.fits);
    longer += found.longest > found.most;
  }
  CHECK(longer > 0);
}

TEST_CASE("the memory of a block holds as many packs as it has room for") {
  const device::GpuFacts facts = host_facts(1 << 20, 100'000);
  CHECK(device::fused_packs(facts, 4, 11) == 256);
  const unsigned some = device::fused_packs(facts, 40, 401);
  CHECK(some > 0);
  CHECK(kernels::fused_bytes(40, 401, some) <= 100'000);
  CHECK(device::fused_packs(facts, 1000, 11) == 0);
}
