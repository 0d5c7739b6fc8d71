// SPDX-License-Identifier: Apache-2.0
#include "src/diagnosis/workload.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "tests/catch.h"
#include "tests/schedule/builder.h"

using namespace lockstep;
using namespace lockstep::test;

namespace {

diagnosis::Workload mean_on(int ranks, int micro_batches = 1) {
  return diagnosis::estimate_workload(schedule_of(dp(ranks), {parameter("a", {5}), parameter("b", {3})},
                                                  {backwards(), collective(Op::all_reduce, "mean", Axis::dp)},
                                                  micro_batches));
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("ranks, buffers and elements are counted exactly") {
  const diagnosis::Workload workload = mean_on(4);
  CHECK(workload.ranks == 4);
  CHECK(workload.buffers == 8);
  CHECK(workload.elements == 4 * (5 + 3));
}

TEST_CASE("calls are those of every rank, buffer, step and micro-batch, and little more") {
  for (const int ranks : {2, 4, 64}) {
    for (const int micro_batches : {1, 5}) {
      const double calls = ranks * 2 * (micro_batches + 1);
      const diagnosis::Workload workload = mean_on(ranks, micro_batches);
      CHECK(workload.calls >= calls);
      CHECK(workload.calls <= 1.25 * calls);
    }
  }
}

TEST_CASE("terms are at least those of the formulas that there will be") {
  CHECK(mean_on(64).terms >= 64 + 64);  // each rank's own, then the sum of all
  // A backward on top of a sum makes as many formulas as there are ranks, each as long as the sum.
  Step again = backwards();
  again.name = "again";
  again.steps[0].name = "backward_again";
  const diagnosis::Workload regrown = diagnosis::estimate_workload(
      schedule_of(dp(64), {parameter("w", {5})}, {backwards(), collective(Op::all_reduce, "sum", Axis::dp), again}));
  CHECK(regrown.terms >= 64 * 64);
  CHECK(regrown.terms < 64 * 64 * 8);
}

TEST_CASE("what was set to zero costs no terms any more") {
  const Step sum = collective(Op::all_reduce, "sum", Axis::dp);
  const auto terms = [&](const std::vector<Step>& steps) {
    return diagnosis::estimate_workload(schedule_of(dp(64), {parameter("w", {5})}, steps)).terms;
  };
  CHECK(terms({backwards(), sum, step(Op::zero, "zero"), sum}) == terms({backwards(), sum}));
}

TEST_CASE("contributions that are clipped in part are as many terms as there are products of factors") {
  const auto terms = [&](int clips, bool in_a_copy, bool counted) {
    std::vector<Step> steps = {backwards(), collective(Op::all_reduce, "sum", Axis::dp)};
    for (int i = 0; i < clips; ++i) {
      const std::string number = std::to_string(i);
      Step copy = step(Op::copy, "copy" + number), clip = step(Op::clip, "clip" + number),
           add = step(Op::accumulate, "add" + number);
      copy.from = add.buffer = "grad";
      copy.buffer = clip.buffer = add.from = "copy";
      if (counted) steps.push_back(step(Op::norm, "norm" + number));
      if (in_a_copy) {
        steps.insert(steps.end(), {copy, clip, add});
      } else {
        clip.buffer = "grad";
        steps.push_back(clip);
      }
    }
    return diagnosis::estimate_workload(schedule_of(dp(2), {parameter("w", {5})}, steps)).terms;
  };
  for (const int clips : {1, 4, 12, 20}) {
    CHECK(terms(clips, true, true) >= 2 * (1 << clips));  // the formula of the last sum
    CHECK(terms(clips, false, true) <= 2 * 2 + 2 * (1 + clips));
    // All by one factor: its powers.
    CHECK(terms(clips, true, false) >= 2 * (1 + clips));
    CHECK(terms(clips, true, false) <= 2 * 2 * 3 * (1 + clips) * (1 + clips));
  }
  CHECK(terms(80, true, true) > 2e9);
  // Micro-batches that are reduced and clipped one by one have one factor each.
  Step each = backwards();
  each.steps.push_back(collective(Op::all_reduce, "sum", Axis::dp));
  each.steps.push_back(step(Op::norm, "norm"));
  each.steps.push_back(step(Op::clip, "clip"));
  const diagnosis::Workload workload =
      diagnosis::estimate_workload(schedule_of(dp(8), {parameter("w", {5})}, {each}, 64));
  CHECK(diagnosis::too_large(workload).empty());
  CHECK(workload.terms < 1e6);
}

TEST_CASE("memory that is there is enough, and memory that is not there is told") {
  const diagnosis::Workload workload = mean_on(4);
  CHECK(diagnosis::too_large(workload).empty());
  CHECK(diagnosis::too_large_here(workload, workload.bytes).empty());
  const std::string said = diagnosis::too_large_here(workload, 1024.0 * 1024 * (1LL << 30));
  CHECK(contains(said, "needs about 1024.0 TiB of memory, and "));
  CHECK(contains(said, "4 ranks hold 8 gradient buffers together"));
}

TEST_CASE("a check is refused for its calls, its terms or its elements, each alone") {
  diagnosis::Workload workload = mean_on(4);
  workload.calls = 6e8;
  CHECK(contains(diagnosis::too_large(workload), "run more than 500 million times"));
  workload = mean_on(4);
  workload.terms = 3e9;
  CHECK(contains(diagnosis::too_large(workload), "more than 2 billion terms"));
  workload = mean_on(4);
  workload.elements = 5e18;
  CHECK(contains(diagnosis::too_large(workload), "more than the 4.6e18 that can be counted"));
}

TEST_CASE("the memory that there is is not more than the machine has, nor than the process may have") {
  const double before = diagnosis::available_bytes();
  CHECK(before > 1e6);
  CHECK(before < 1e15);
  rlimit old{};
  REQUIRE(getrlimit(RLIMIT_AS, &old) == 0);
  // Above what this program has already; a sanitizer has more than any machine.
  rlim_t pages = 0;
  REQUIRE(std::ifstream("/proc/self/statm") >> pages);
  rlimit lower = old;
  lower.rlim_cur = std::min<rlim_t>(old.rlim_cur, pages * static_cast<rlim_t>(sysconf(_SC_PAGESIZE)) + 100'000'000);
  REQUIRE(setrlimit(RLIMIT_AS, &lower) == 0);
  const double limited = diagnosis::available_bytes();
  REQUIRE(setrlimit(RLIMIT_AS, &old) == 0);
  CHECK(limited <= static_cast<double>(lower.rlim_cur));
}
