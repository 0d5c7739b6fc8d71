// SPDX-License-Identifier: Apache-2.0
#include "lockstep/cuda.h"
#include "tests/catch.h"
#include "tests/device/compared_engines.h"
#include "tests/device/host_gpu.h"

using namespace lockstep;
using namespace lockstep::test;

// The engine over kernels that the host runs thread by thread: all that it does but CUDA itself.

namespace {

/// A device whose launcher can be looked at while it works.
struct Device {
  explicit Device(device::GpuFacts facts = host_facts(), unsigned seed = 1) {
    auto made = std::make_unique<HostGpu>(std::move(facts), seed);
    launcher = &made->launcher();
    cuda = std::make_unique<CudaDevice>(std::move(made));
  }
  HostResult run(const Schedule& schedule, const Timeline& timeline, const HostOptions& options = {}) {
    return run_cuda(schedule, timeline, options, *cuda);
  }
  HostLauncher* launcher = nullptr;
  std::unique_ptr<CudaDevice> cuda;
};

Schedule averaged(int ranks, std::int64_t elements) {
  Step mean = collective(Op::reduce_scatter, "mean", Axis::dp);
  mean.reduction = Reduction::average;
  return schedule_of(dp(ranks), {parameter("w", {elements})}, {backwards(), mean}, 2);
}

}  // namespace

TEST_CASE("the cuda engine finds what the host engine finds on random schedules, in both ways of replaying") {
  unsigned fused = 0, stepwise = 0;
  compare_on_random_schedules(400, [&](unsigned seed, const Schedule& built, const Timeline& timeline) {
    // Too little memory in a block for most, and enough.
    Device device(host_facts(std::uint64_t{1} << 26, seed % 3 == 0 ? 16'000 : 200'000), seed);
    HostResult result = device.run(built, timeline);
    fused += device.launcher->fused_launches > 0;
    stepwise += device.launcher->fused_launches == 0;
    return result;
  });
  CHECK(fused > cases(100, 10));
  CHECK(stepwise > cases(20, 10));
}

TEST_CASE("however many blocks its memory makes of a buffer, the hashes are those of the host engine") {
  const Schedule built = cut_and_whole({70, 98}, 1, 30'001, Dtype::bfloat16);
  const Timeline timeline = walk(built);
  const HostResult host = run_host(built, timeline);
  REQUIRE(host.elements == host.of);
  std::uint64_t launches = 0;
  for (const std::uint64_t memory : {1u << 24, 1u << 20, 1u << 18}) {
    Device device(host_facts(memory));
    require_equal(host, device.run(built, timeline));
    CHECK(device.launcher->launches > launches);  // more blocks
    CHECK(device.launcher->most_used < memory);
    launches = device.launcher->launches;
  }
}

TEST_CASE("a schedule that does not fit is refused with the numbers, before anything is allocated") {
  const Schedule built = averaged(4, 40'000);
  const Timeline timeline = walk(built);
  Device tiny(host_facts(8192));
  CHECK_THROWS_WITH(tiny.run(built, timeline),
                    "GPU 0 (host): w of it needs 10.0 KiB, and of its 8.0 KiB of memory 8.0 KiB are free, of which the "
                    "cuda engine takes 6.0 KiB. Not even the smallest block of elements fits; --engine host replays it "
                    "in the machine's memory");
  CHECK(tiny.launcher->most_used == 0);
  CHECK(tiny.launcher->launches == 0);
}

TEST_CASE("a call that fails is told with its step, and all memory is given back") {
  const Schedule built = averaged(4, 1000);
  const Timeline timeline = walk(built);
  Device device;
  device.run(built, timeline);
  const std::uint64_t launches = device.launcher->launches;
  bool named = false;
  for (std::uint64_t number = 1; number <= launches; ++number) {
    Device failing;
    failing.launcher->fails_at = number;
    try {
      failing.run(built, timeline);
      FAIL("launch " << number << " did not fail");
    } catch (const CudaFailure& failure) {
      named = named || std::string(failure.what()).find("step \"mean\" (reduce_scatter)") != std::string::npos;
    }
  }
  CHECK(named);
}

TEST_CASE("a replay in one kernel that differs in one bit from the one step by step is a bug of lockstep") {
  const Schedule built = averaged(4, 1000);
  const Timeline timeline = walk(built);
  Device device;
  device.launcher->spoils_fused = true;
  CHECK_THROWS_AS(device.run(built, timeline), InternalError);
  CHECK(device.launcher->fused_launches == 1);
}

TEST_CASE("small files of the corpus have the host engine's hashes") {
  compare_on_small_files(0, [](unsigned number, const Schedule& built, const Timeline& timeline) {
    return Device(host_facts(), number).run(built, timeline);
  });
}

TEST_CASE("with a limit on elements there are more blocks, and less memory is taken") {
  const Schedule built = averaged(4, 3000);
  const Timeline timeline = walk(built);
  const HostResult host = run_host(built, timeline);
  Device all, few;
  HostOptions options;
  require_equal(host, all.run(built, timeline, options));
  options.block_elements = 700;
  require_equal(host, few.run(built, timeline, options));
  CHECK(few.launcher->launches > 2 * all.launcher->launches);
  CHECK(few.launcher->most_used < all.launcher->most_used);
}
