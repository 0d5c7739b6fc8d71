// SPDX-License-Identifier: Apache-2.0
#include "lockstep/mpi.h"
#include "tests/catch.h"
#include "tests/device/compared_engines.h"
#include "tests/device/thread_transport.h"

using namespace lockstep;
using namespace lockstep::test;

// The engine over threads in place of MPI's processes: all that it does but the network.
// tests/device/test_mpi_transport.py tests the network, tests/cli/test_mpi.py the whole.

namespace {

HostResult run_in_threads(int processes, const Schedule& schedule, const Timeline& timeline,
                          const HostOptions& options = {}) {
  HostResult result;
  ThreadJob(processes).run([&](device::Transport& transport) {
    MpiJob job(std::make_unique<BorrowedTransport>(transport));
    HostResult found = run_mpi(schedule, timeline, options, job);
    if (job.process() == 0) result = std::move(found);
  });
  return result;
}

}  // namespace

TEST_CASE("the mpi engine finds what the host engine finds on random schedules, however ranks are folded") {
  compare_on_random_schedules(800, [](unsigned seed, const Schedule& built, const Timeline& timeline) {
    return run_in_threads(std::vector{1, 2, 3, 8}[seed % 4], built, timeline);
  });
}

TEST_CASE("a buffer of many blocks has the hash that the host engine gives it") {
  const Schedule built = cut_and_whole({700, 999}, 0, 300'001);
  const Timeline timeline = walk(built);
  const HostResult host = run_host(built, timeline);
  REQUIRE(host.elements == host.of);
  for (const int processes : {1, 2, 3, 8}) require_equal(host, run_in_threads(processes, built, timeline));
}

TEST_CASE("what the host engine samples the mpi engine samples alike") {
  const Schedule built = schedule_of(dp(4), {parameter("w", {100'000'000}), parameter("v", {7})},
                                     {backwards(), collective(Op::all_reduce, "sum", Axis::dp)}, 4);
  const Timeline timeline = walk(built);
  HostOptions options;
  options.seed = 5;
  const HostResult host = run_host(built, timeline, options);
  REQUIRE(host.sampled);
  require_equal(host, run_in_threads(3, built, timeline, options));
}
