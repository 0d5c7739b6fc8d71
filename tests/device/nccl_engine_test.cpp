// SPDX-License-Identifier: Apache-2.0
#include <chrono>

#include "lockstep/nccl.h"
#include "src/device/nccl_module.h"
#include "tests/catch.h"
#include "tests/device/equal_results.h"
#include "tests/device/fake_nccl.h"
#include "tests/device/host_gpu.h"
#include "tests/device/thread_transport.h"
#include "tests/numeric/random_schedule.h"

using namespace lockstep;
using namespace lockstep::test;

extern "C" lockstep::device::OpenGpuNetwork lockstep_open_gpu_network;

// The engine, and the code that speaks NCCL, among threads in place of processes: with kernels that the host runs, and
// with a double of NCCL that holds it to NCCL's rules. What a GPU and its network do is all that is missing.

namespace {

/// How the processes of a test begin.
struct GpuProcesses {
  explicit GpuProcesses(int count_) : count(count_), board(std::make_shared<device::Board>(count_)) {}

  /// Calls work(job) in each of them, in a network that has joined them.
  void run(const std::function<void(NcclJob&)>& work) {
    ThreadJob(count).run([&](device::Transport& transport) {
      Job job(std::make_unique<BorrowedTransport>(transport));
      auto gpu = std::make_unique<HostGpu>(host_facts(memory), static_cast<unsigned>(job.process()) + 1);
      std::unique_ptr<device::GpuNetwork> network(
          lockstep_open_gpu_network({job.messenger(), *board, job.process(), patience}));
      NcclJob nccl(job, board, std::move(gpu), std::move(network));
      work(nccl);
    });
  }

  int count;
  std::shared_ptr<device::Board> board;
  std::uint64_t memory = std::uint64_t{1} << 27;
  std::chrono::milliseconds patience{20'000};
};

HostResult run_in_threads(GpuProcesses& processes, const Schedule& schedule, const Timeline& timeline,
                          const HostOptions& options = {}) {
  HostResult result;
  processes.run([&](NcclJob& job) {
    HostResult found = run_nccl(schedule, timeline, options, job);
    if (job.job().process() == 0) result = std::move(found);
  });
  return result;
}

Schedule averaged(int ranks, std::int64_t elements) {
  Step mean = collective(Op::reduce_scatter, "mean", Axis::dp);
  mean.reduction = Reduction::average;
  return schedule(dp(ranks), {parameter("w", {elements})}, {backwards(), mean}, 2);
}

}  // namespace

TEST_CASE("the nccl engine finds what the host engine finds on random schedules, however ranks are folded on GPUs") {
  int compared = 0, matches = 0, in_field = 0, bfloat16 = 0;
  FakeNccl::reset();
  for (unsigned seed = 0; seed < 500; ++seed) {
    const Schedule built = RandomSchedule(seed).make();
    Timeline timeline;
    try {
      timeline = walk(built);
    } catch (const InputError&) {
      continue;
    }
    const HostResult host = run_host(built, timeline);
    GpuProcesses processes(std::vector{1, 2, 3, 8}[seed % 4]);
    if (seed % 3 == 0) processes.memory = 1 << 20;  // several blocks
    INFO("seed " << seed << ", " << built.mesh.world() << " ranks on " << processes.count << " processes");
    require_equal(host, run_in_threads(processes, built, timeline));
    REQUIRE(FakeNccl::violations() == std::vector<std::string>());
    REQUIRE(FakeNccl::communicators() == 0);
    ++compared;
    matches += host.match;
    for (const HostBuffer& buffer : host.buffers) {
      in_field += buffer.arithmetic == Arithmetic::prime61;
      bfloat16 += buffer.arithmetic == Arithmetic::bfloat16;
    }
  }
  // Both verdicts, every arithmetic and every call must have occurred, or this shows nothing.
  CHECK(compared > 250);
  CHECK(matches > 80);
  CHECK(compared - matches > 90);
  CHECK(in_field > 30);
  CHECK(bfloat16 > 0);
  CHECK(FakeNccl::aborted() == 0);
  const std::map<std::string, int> calls = FakeNccl::calls();
  for (const char* name : {"ncclAllReduce", "ncclReduce", "ncclReduceScatter", "ncclAllGather", "ncclBroadcast",
                           "ncclSend", "ncclRecv", "ncclCommSplit", "ncclRedOpCreatePreMulSum"}) {
    INFO(name);
    CHECK(calls.contains(name));
  }
}

TEST_CASE("a buffer of many blocks on several GPUs has the hash that the host engine gives it") {
  Parameter cut = parameter("cut", {70, 98});
  Parameter whole = parameter("whole", {30'001});
  Step mean = collective(Op::reduce_scatter, "mean", Axis::dp);
  mean.reduction = Reduction::average;
  Layout layout = dp(4);
  layout.tp = 2;
  cut.shard = {{Axis::tp, 1, false}};
  whole.partial = {Axis::tp};
  Step partial = collective(Op::all_reduce, "partial", Axis::tp);
  partial.params = Selectors({"whole"});
  const Schedule built = schedule(layout, {cut, whole}, {backwards(), partial, mean}, 2);
  const Timeline timeline = walk(built);
  const HostResult host = run_host(built, timeline);
  REQUIRE(host.elements == host.of);
  for (const int count : {1, 2, 3, 8, 11}) {
    FakeNccl::reset();
    GpuProcesses processes(count);
    processes.memory = 1 << 20;
    INFO(count << " processes");
    require_equal(host, run_in_threads(processes, built, timeline));
    CHECK(FakeNccl::violations() == std::vector<std::string>());
  }
}

TEST_CASE("averages by a power of two are NCCL's, others are computed behind the sum") {
  const auto calls_with = [](int ranks, int count) {
    FakeNccl::reset();
    const Schedule built = averaged(ranks, 4096);
    const Timeline timeline = walk(built);
    GpuProcesses processes(count);
    require_equal(run_host(built, timeline), run_in_threads(processes, built, timeline));
    return FakeNccl::calls();
  };
  CHECK_FALSE(calls_with(4, 4).contains("ncclRedOpCreatePreMulSum"));  // ncclAvg
  CHECK(calls_with(4, 2).contains("ncclRedOpCreatePreMulSum"));
  CHECK(calls_with(8, 1).contains("ncclRedOpCreatePreMulSum"));
  CHECK_FALSE(calls_with(6, 3).contains("ncclRedOpCreatePreMulSum"));
}

TEST_CASE("equal parts are one call of NCCL, unequal ones a group of them") {
  FakeNccl::reset();
  const Schedule equal = averaged(4, 4096), uneven = averaged(4, 4095);
  GpuProcesses processes(4);
  run_in_threads(processes, equal, walk(equal));
  std::map<std::string, int> calls = FakeNccl::calls();
  CHECK(calls.contains("ncclReduceScatter"));
  CHECK_FALSE(calls.contains("ncclReduce"));
  FakeNccl::reset();
  run_in_threads(processes, uneven, walk(uneven));
  calls = FakeNccl::calls();
  CHECK_FALSE(calls.contains("ncclReduceScatter"));
  CHECK(calls.contains("ncclReduce"));
}
