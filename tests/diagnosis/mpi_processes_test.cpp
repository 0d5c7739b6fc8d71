// SPDX-License-Identifier: Apache-2.0
#include "src/diagnosis/mpi_processes.h"

#include "lockstep/mpi.h"
#include "tests/catch.h"
#include "tests/device/thread_transport.h"
#include "tests/diagnosis/small.h"

using namespace lockstep;
using namespace lockstep::test;

// Processes as threads: what check_scenario does in a job, without MPI.

namespace {

const std::string right = R"({ "name": "mean", "op": "all_reduce", "over": "dp", "reduce": "avg" })";

/// What each process finds about its own text.
std::vector<CheckResult> check_in_threads(const std::vector<std::string>& texts, CheckOptions options = {}) {
  std::vector<CheckResult> results(texts.size());
  ThreadJob(static_cast<int>(texts.size())).run([&](device::Transport& transport) {
    MpiJob job(std::make_unique<BorrowedTransport>(transport));
    CheckOptions own = options;
    own.mpi = &job;
    if (job.process() != 0) own.symbolic = own.host = false;
    const auto process = static_cast<std::size_t>(job.process());
    results[process] = check_text(texts[process], own);
  });
  return results;
}

}  // namespace

TEST_CASE("processes check a scenario together, and the first one knows what all found") {
  for (const std::string& text : {two_ranks(right), megatron_844()}) {
    const std::vector<CheckResult> results = check_in_threads({text, text, text});
    const CheckResult& first = results.front();
    REQUIRE(numbers_of(first, "mpi") != nullptr);
    CHECK(engine_of(first, "mpi")->processes == 3);
    CHECK(first.disagreement.empty());
    CHECK(first.verdict == check_text(text).verdict);
    CHECK(numbers_of(first, "mpi")->buffers.size() == numbers_of(first, "host")->buffers.size());
    CHECK(results[1].engines.empty());
  }
}

TEST_CASE("the mpi engine alone gives the verdict, the step and the wrong set") {
  CheckOptions options;
  options.symbolic = options.host = false;
  const CheckResult alone = check_in_threads({megatron_844(), megatron_844()}, options).front();
  const CheckResult all = check_text(megatron_844());
  CHECK(alone.verdict == Verdict::mismatch);
  CHECK(wrong_set(alone).ranks == wrong_set(all).ranks);
  CHECK(wrong_set(alone).parameters == wrong_set(all).parameters);
  CHECK(numbers_of(alone) == numbers_of(alone, "mpi"));
  CHECK(numbers_of(all) == numbers_of(all, "host"));
}

TEST_CASE("a process that reads another scenario is an error of all, and no one waits") {
  const std::string other = two_ranks(R"({ "name": "sum", "op": "all_reduce", "over": "dp" })");
  for (const CheckResult& result : check_in_threads({two_ranks(right), other, two_ranks(right)})) {
    CHECK(result.verdict == Verdict::error);
    CHECK(result.machine_failed);
    REQUIRE(result.errors.size() == 1);
    CHECK(result.errors.front().message.find("process 1 of 3 reads another scenario than process 0") == 0);
  }
}

TEST_CASE("a process that cannot begin is named, with its reason") {
  CheckResult results[2];
  ThreadJob(2).run([&](device::Transport& transport) {
    MpiJob job(std::make_unique<BorrowedTransport>(transport));
    CheckResult& result = results[job.process()];
    result = check_text(two_ranks(right));
    diagnosis::begin_together(result, &job, [&] {
      if (job.process() == 1) throw std::bad_alloc();
    });
  });
  for (const CheckResult& result : results) {
    CHECK(result.machine_failed);
    REQUIRE(result.errors.size() == 1);
    CHECK(result.errors.front().message == "process 1 of 2 cannot begin: out of memory");
    CHECK(result.timeline == nullptr);  // of the others, too: nothing is replayed
  }
}

TEST_CASE("what is wrong in the scenario itself is the same error in all processes, and no machine's fault") {
  const std::string divides = two_ranks(R"({ "name": "mean", "op": "scale", "by": "1/rank.dp" })");
  for (const CheckResult& result : check_in_threads({divides, divides})) {
    CHECK(result.verdict == Verdict::error);
    CHECK_FALSE(result.machine_failed);
    CHECK_FALSE(result.errors.empty());
  }
}

TEST_CASE("--ranks larger than the world is an error of the scenario") {
  CheckOptions options;
  options.mpi_ranks_for_all = true;
  const std::string text = two_ranks(right);
  const CheckResult result = check_in_threads({text, text, text}, options).front();
  REQUIRE(result.errors.size() == 1);
  CHECK(result.errors.front().message ==
        "the layout has 2 ranks, fewer than the 3 processes of --ranks; give at most 2");
  CHECK_FALSE(result.machine_failed);
  CHECK(check_in_threads({text, text}, options).front().verdict == Verdict::match);
}
