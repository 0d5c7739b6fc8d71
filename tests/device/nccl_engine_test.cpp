// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <chrono>

#include "lockstep/nccl.h"
#include "src/device/nccl_module.h"
#include "tests/catch.h"
#include "tests/device/compared_engines.h"
#include "tests/device/fake_nccl.h"
#include "tests/device/host_gpu.h"
#include "tests/device/thread_transport.h"

using namespace lockstep;
using namespace lockstep::test;

extern "C" lockstep::device::OpenGpuNetwork lockstep_open_gpu_network;

// The engine, and the code that speaks NCCL, among threads in place of processes: with kernels that the host runs, and
// with a double of NCCL that holds it to NCCL's rules. What a GPU and its network do is all that is missing.

namespace {

/// How the processes of a test begin.
struct GpuProcesses {
  explicit GpuProcesses(int count_) : count(count_), board(std::make_shared<device::Board>(count_)) {}

  /// Calls work(job) in each of them, in a network that has joined them. What a process cannot do is on the board.
  void run(const std::function<void(NcclJob&)>& work) {
    ThreadJob(count).run([&](device::Transport& transport) {
      Job job(std::make_unique<BorrowedTransport>(transport));
      auto gpu = std::make_unique<HostGpu>(host_facts(job.process() == 0 ? memory_of_first : memory),
                                           static_cast<unsigned>(job.process()) + 1);
      std::unique_ptr<device::GpuNetwork> network;
      try {
        network.reset(lockstep_open_gpu_network({job.messenger(), *board, job.process(), patience}));
      } catch (const device::OtherFailure&) {
        throw;
      } catch (const device::GpuFailure& failure) {
        board->fail(job.process(), device::Board::Cause::own, failure.what());
        throw;
      }
      if (wrap) network = wrap(job.process(), std::move(network));
      NcclJob nccl(job, board, std::move(gpu), std::move(network));
      work(nccl);
    });
  }

  int count;
  std::shared_ptr<device::Board> board;
  std::uint64_t memory = std::uint64_t{1} << 27, memory_of_first = memory;
  std::chrono::milliseconds patience{20'000};
  /// Puts something around the network of a process.
  std::function<std::unique_ptr<device::GpuNetwork>(int process, std::unique_ptr<device::GpuNetwork>)> wrap;
};

/// A process that ends without a word when it comes to a place, and gives nothing back: as if it were killed.
class Vanishing : public device::GpuNetwork {
 public:
  struct Gone {};
  Vanishing(std::unique_ptr<device::GpuNetwork> of, int at) : of_(of.get()), left_(at) {
    static auto& kept = *new std::vector<device::GpuNetwork*>;  // for ever, or they would count as leaked
    kept.push_back(of.release());
  }
  void prepare(const std::vector<device::Processes>& groups) override { of_->prepare(groups); }
  void go_to(const device::ReplayPlace& place) override {
    if (left_-- == 0) throw Gone();
    of_->go_to(place);
  }
  void finish_own() override { of_->finish_own(); }
  using Group = const device::Processes&;
  using Counts = const std::vector<std::uint64_t>&;
  void all_reduce(Group g, kernels::Domain d, const void* s, void* r, std::uint64_t n, double f) override {
    of_->all_reduce(g, d, s, r, n, f);
  }
  void reduce(Group g, kernels::Domain d, const void* s, void* r, std::uint64_t n, std::size_t at, double f) override {
    of_->reduce(g, d, s, r, n, at, f);
  }
  void reduce_scatter(Group g, kernels::Domain d, const void* s, void* r, Counts n, double f) override {
    of_->reduce_scatter(g, d, s, r, n, f);
  }
  void all_gather(Group g, kernels::Domain d, const void* s, void* r, Counts n) override {
    of_->all_gather(g, d, s, r, n);
  }
  void broadcast(Group g, kernels::Domain d, void* v, std::uint64_t n, std::size_t at) override {
    of_->broadcast(g, d, v, n, at);
  }
  void exchange(Group g, kernels::Domain d, const void* s, void* r, Counts n, std::uint64_t stride) override {
    of_->exchange(g, d, s, r, n, stride);
  }

 private:
  device::GpuNetwork* of_;  // never given back
  int left_;
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
  return schedule_of(dp(ranks), {parameter("w", {elements})}, {backwards(), mean}, 2);
}

}  // namespace

TEST_CASE("the nccl engine finds what the host engine finds on random schedules, however ranks are folded on GPUs") {
  FakeNccl::reset();
  compare_on_random_schedules(500, [](unsigned seed, const Schedule& built, const Timeline& timeline) {
    GpuProcesses processes(std::vector{1, 2, 3, 8}[seed % 4]);
    if (seed % 3 == 0) processes.memory = processes.memory_of_first = 1 << 20;  // several blocks
    HostResult result = run_in_threads(processes, built, timeline);
    REQUIRE(FakeNccl::violations() == std::vector<std::string>());
    REQUIRE(FakeNccl::communicators() == 0);
    return result;
  });
  // Every call must have occurred, or this shows nothing.
  CHECK(FakeNccl::aborted() == 0);
  const std::map<std::string, int> calls = FakeNccl::calls();
  for (const char* name : {"ncclAllReduce", "ncclReduce", "ncclReduceScatter", "ncclAllGather", "ncclBroadcast",
                           "ncclSend", "ncclRecv", "ncclCommSplit"}) {
    INFO(name);
    CHECK(calls.contains(name));
  }
}

TEST_CASE("a buffer of many blocks on several GPUs has the hash that the host engine gives it") {
  const Schedule built = cut_and_whole({70, 98}, 1, 30'001);
  const Timeline timeline = walk(built);
  const HostResult host = run_host(built, timeline);
  REQUIRE(host.elements == host.of);
  for (const int count : {1, 2, 3, 8, 11}) {
    FakeNccl::reset();
    GpuProcesses processes(count);
    processes.memory = 1 << 18;  // that of the first is larger: blocks must fit everywhere
    INFO(count << " processes");
    require_equal(host, run_in_threads(processes, built, timeline));
    CHECK(FakeNccl::violations() == std::vector<std::string>());
  }
}

TEST_CASE("with a limit on elements there are more blocks on several GPUs as well, and a note where that cannot be") {
  const auto calls_with = [](const Schedule& built, std::int64_t block_elements, std::string& note) {
    FakeNccl::reset();
    const Timeline timeline = walk(built);
    GpuProcesses processes(2);
    HostOptions options;
    options.block_elements = block_elements;
    HostResult found = run_in_threads(processes, built, timeline, options);
    if (block_elements > 0 && !found.notes.empty()) {
      note = found.notes.back();
      found.notes.pop_back();
    }
    require_equal(run_host(built, timeline), found);
    return FakeNccl::calls()["ncclAllReduce"];
  };
  std::string note;
  const Schedule summed =
      schedule_of(dp(4), {parameter("w", {3000})}, {backwards(), collective(Op::all_reduce, "sum", Axis::dp)}, 2);
  const int at_once = calls_with(summed, 0, note);
  REQUIRE(at_once > 0);
  CHECK(calls_with(summed, 700, note) == 5 * at_once);
  CHECK(note.empty());
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
  CHECK(calls_with(8, 2).contains("ncclRedOpCreatePreMulSum"));
  CHECK_FALSE(calls_with(8, 1).contains("ncclRedOpCreatePreMulSum"));  // alone
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

namespace {

/// All sum up, then each gets the mean of its part.
Schedule two_collectives(int ranks) {
  Step mean = collective(Op::reduce_scatter, "mean", Axis::dp);
  mean.reduction = Reduction::average;
  return schedule_of(dp(ranks), {parameter("w", {1000})},
                     {backwards(), collective(Op::all_reduce, "sum", Axis::dp), mean}, 2);
}

/// On four GPUs those of dp 2 meet in pairs.
Schedule in_pairs() {
  Layout layout = dp(2);
  layout.tp = 2;
  return schedule_of(layout, {parameter("w", {1000})}, {backwards(), collective(Op::all_reduce, "sum", Axis::dp)});
}

/// What the board says after a run that must fail in each of the processes that do not vanish.
std::string failure_of(GpuProcesses& processes, const Schedule& built) {
  const Timeline timeline = walk(built);
  std::atomic<int> failed = 0;
  try {
    processes.run([&](NcclJob& job) {
      try {
        run_nccl(built, timeline, {}, job);
      } catch (const NcclFailure&) {
        ++failed;
        throw;
      }
    });
    FAIL("nothing failed");
  } catch (const Vanishing::Gone&) {
  } catch (const std::exception&) {
  }
  CHECK(failed <= processes.count);
  return processes.board->failure().value_or("");
}

}  // namespace

TEST_CASE("a process that does not come is missed, and said to be, with where it should be and where it is") {
  FakeNccl::reset();
  GpuProcesses processes(3);
  processes.patience = std::chrono::milliseconds(200);
  processes.wrap = [](int process, std::unique_ptr<device::GpuNetwork> network) {
    if (process != 2) return network;
    return std::unique_ptr<device::GpuNetwork>(std::make_unique<Vanishing>(std::move(network), 2));
  };
  const std::string why = failure_of(processes, two_collectives(3));
  INFO(why);
  const std::size_t number = why.find("process ") == 0 ? static_cast<std::size_t>(why[8] - '0') : 9;
  REQUIRE(number < 2);
  CHECK(why ==
        "process " + std::to_string(number) + " (GPU " + std::to_string(number) +
            ") waits in step \"mean\" (reduce_scatter) of optimizer step 0 for process 2 (GPU 2), which is in step "
            "\"sum\" (all_reduce) of optimizer step 0; nobody has moved for 200 ms. The communicators were aborted. "
            "LOCKSTEP_NCCL_TIMEOUT=SECONDS in the environment waits longer, and NCCL_DEBUG=WARN says more");
  CHECK(FakeNccl::communicators() == 1);  // that of the process that is gone
  CHECK(FakeNccl::aborted() == 2);
  FakeNccl::reset();
}

TEST_CASE("any call of NCCL that fails ends the replay of all processes with its sentence, and aborts") {
  const Schedule built = two_collectives(4);  // replayed with numbers and with residues
  const Timeline timeline = walk(built);
  FakeNccl::reset();
  GpuProcesses well(4);
  run_in_threads(well, built, timeline);
  const std::map<std::string, int> calls = FakeNccl::calls();
  REQUIRE(calls.contains("ncclSend"));
  REQUIRE(calls.contains("ncclReduceScatter"));
  for (const auto& [name, count] : calls) {
    const bool at_the_end = name == "ncclCommFinalize" || name == "ncclCommDestroy";
    for (const int number : {1, count / 2, count}) {
      if (number == 0 || at_the_end || name == "ncclCommGetAsyncError") continue;
      FakeNccl::reset();
      FakeNccl::fail(name, number, ncclSystemError);
      GpuProcesses processes(4);
      processes.patience = std::chrono::milliseconds(5'000);
      const std::string why = failure_of(processes, built);
      INFO(name << ", call " << number << ": " << why);
      const std::string told = name == "ncclGroupEnd" ? "ncclSend and ncclRecv" : name;
      CHECK(why.find(told + " failed in process ") == 0);
      CHECK(why.find(" of 4 during ") != std::string::npos);
      CHECK(why.find(": \"unhandled system error\"; a small /dev/shm") != std::string::npos);
      CHECK(FakeNccl::communicators() == 0);
    }
  }
}

TEST_CASE("what is being split off when a process stops waiting for it is given back too") {
  const Schedule built = in_pairs();
  FakeNccl::reset();
  GpuProcesses well(4);
  run_in_threads(well, built, walk(built));
  REQUIRE(FakeNccl::calls().contains("ncclCommSplit"));
  // At least 24 polls, two for each wait, come before the collectives.
  for (int number = 1; number <= 30; ++number) {
    FakeNccl::reset();
    FakeNccl::fail("ncclCommGetAsyncError", number, ncclSystemError);
    GpuProcesses processes(4);
    processes.patience = std::chrono::milliseconds(5'000);
    const std::string why = failure_of(processes, built);
    INFO("poll " << number << ": " << why);
    CHECK(why.find("ncclCommGetAsyncError failed in process ") == 0);
    CHECK(FakeNccl::communicators() == 0);
  }
}

TEST_CASE("a process whose GPU is busy for longer than the others have patience is not missed") {
  FakeNccl::reset();
  FakeNccl::work(1, std::chrono::milliseconds(6'000), cudaSuccess);
  GpuProcesses processes(2);
  processes.patience = std::chrono::milliseconds(3'000);
  const Schedule built = two_collectives(2);
  require_equal(run_host(built, walk(built)), run_in_threads(processes, built, walk(built)));
  CHECK(FakeNccl::violations() == std::vector<std::string>());
  CHECK(FakeNccl::aborted() == 0);
}

TEST_CASE("a kernel that fails in front of a call of NCCL is not said to be that call") {
  FakeNccl::reset();
  FakeNccl::work(1, std::chrono::milliseconds(0), cudaErrorInvalidDevice);
  GpuProcesses processes(2);
  const std::string why = failure_of(processes, two_collectives(2));
  INFO(why);
  CHECK(why.find("a kernel of lockstep failed in process 1 (GPU 1) of 2 during ") == 0);
  CHECK(why.find("CUDA_LAUNCH_BLOCKING=1") != std::string::npos);
  CHECK(FakeNccl::communicators() == 0);
}

TEST_CASE("a communicator whose end fails is given back too") {
  // The destructor says nothing: what is left is all that can be seen.
  const Schedule built = in_pairs();
  FakeNccl::reset();
  FakeNccl::fail("ncclCommFinalize", 1, ncclSystemError);
  GpuProcesses processes(4);
  processes.patience = std::chrono::milliseconds(300);
  run_in_threads(processes, built, walk(built));
  CHECK(FakeNccl::communicators() == 0);
  CHECK(FakeNccl::aborted() > 0);
}

TEST_CASE("a failure that NCCL reports later is polled while a process waits") {
  FakeNccl::reset();
  FakeNccl::fail_later(1, 1, ncclRemoteError);
  GpuProcesses processes(2);
  const std::string why = failure_of(processes, two_collectives(2));
  INFO(why);
  CHECK(why.find(" failed in process 1 (GPU 1) of 2 during step ") != std::string::npos);
  CHECK(why.find("\"remote process exited\"; another process ended or lost its network") != std::string::npos);
  CHECK(FakeNccl::communicators() == 0);
}

TEST_CASE("a failure of one GPU is that of all processes, and names the process") {
  FakeNccl::reset();
  GpuProcesses processes(2);
  processes.memory = processes.memory_of_first = 4096;
  const std::string why = failure_of(processes, two_collectives(2));
  INFO(why);
  CHECK(why.find(" of 2: GPU 0 (host): w of it needs ") != std::string::npos);
  CHECK(why.find(", of which the nccl engine takes ") != std::string::npos);
  CHECK(FakeNccl::communicators() == 0);
}

TEST_CASE("two processes on one GPU are refused before NCCL refuses them") {
  FakeNccl::reset();
  FakeNccl::share_gpus();
  GpuProcesses processes(3);
  const std::string why = failure_of(processes, two_collectives(3));
  CHECK(why ==
        "process 1 (GPU 1) has the GPU of process 0, and NCCL refuses two processes on one GPU: start at most one for "
        "each GPU of a machine, or use --engine cuda, which has all ranks on one");
  CHECK(FakeNccl::communicators() == 0);
}

TEST_CASE("small files of the corpus have the host engine's hashes on several GPUs") {
  FakeNccl::reset();
  compare_on_small_files(3, [](unsigned number, const Schedule& built, const Timeline& timeline) {
    GpuProcesses processes(std::vector{1, 2, 3, 5}[number % 4]);
    HostResult result = run_in_threads(processes, built, timeline);
    REQUIRE(FakeNccl::violations() == std::vector<std::string>());
    return result;
  });
}
