// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <memory>

#include "lockstep/check.h"
#include "tests/catch.h"
#include "tests/device/host_gpu.h"
#include "tests/diagnosis/small.h"

using namespace lockstep;
using namespace lockstep::test;

namespace {

std::string averaged(int elements, const std::string& steps) {
  return R"json({ "lockstep": 1, "layout": { "dp": 4 }, "model": { "parameters": [ { "name": "w", "shape": [)json" +
         std::to_string(elements) + R"json(] } ] }, "schedule": { "steps": [
    { "op": "each", "name": "micro_batches", "steps": [
      { "name": "backward", "op": "backward", "by": "1/sum(tokens, dp, micro_batch)" } ] },)json" +
         steps + "] } }";
}
const char* const reduced = R"({ "name": "reduce", "op": "all_reduce", "over": "dp" })";
const char* const raced = R"({ "name": "reduce", "op": "all_reduce", "over": "dp", "async": true },
                             { "name": "noise", "op": "leftover", "what": "noise", "per": "rank" },
                             { "op": "wait", "for": "reduce" })";

CheckResult check_on(const std::string& text, std::uint64_t memory, CheckOptions options = {}) {
  CudaDevice device(std::make_unique<HostGpu>(host_facts(memory), 5u));
  options.cuda = &device;
  return check_text(text, options);
}
bool any_has(const std::vector<std::string>& notes, const std::string& part) {
  return std::any_of(notes.begin(), notes.end(),
                     [&](const std::string& note) { return note.find(part) != std::string::npos; });
}

}  // namespace

TEST_CASE(
    "what does not fit the GPU is left to the other engines, and is an error of the machine where there are none") {
  const CheckResult both = check_on(averaged(4000, reduced), 8192);
  CHECK(both.verdict == Verdict::match);
  CHECK(numbers_of(both, "cuda") == nullptr);
  CHECK_FALSE(both.machine_failed);
  CHECK(engine_of(both, "cuda")->left_out.find("the cuda engine was left out: GPU 0 (host): w of it needs 10.0 KiB") ==
        0);
  CheckOptions alone;
  alone.symbolic = alone.host = false;
  const CheckResult none = check_on(averaged(4000, reduced), 8192, alone);
  CHECK(none.verdict == Verdict::error);
  CHECK(none.machine_failed);
  REQUIRE(none.errors.size() == 1);
  CHECK(none.errors.front().message.find("GPU 0 (host): w of it needs 10.0 KiB") == 0);
  CHECK(numbers_of(check_on(averaged(4000, reduced), 1 << 20), "cuda") != nullptr);
}

TEST_CASE("a race is replayed on the GPU to its end, and a note says how often it was seen") {
  const CheckResult result = check_on(averaged(40, raced), 1 << 20);
  CHECK(result.verdict == Verdict::race);
  const RaceReplays* race = race_of(*engine_of(result, "cuda"));
  REQUIRE(race != nullptr);
  CHECK(race->replays == 20);
  CHECK(race->different > 0);
  CHECK(any_has(result.notes, "On GPU 0 (host) " + std::to_string(race->different) +
                                  " of 20 replays gave another gradient than the schedule with its waits: the race was "
                                  "observed."));
  CHECK(race_of(*engine_of(check_on(averaged(40, reduced), 1 << 20), "cuda")) == nullptr);
}

TEST_CASE("the elements of a block are limited, and buffers that are replayed in one block are named") {
  CheckOptions few;
  few.cuda_elements = 100;
  const CheckResult result = check_on(averaged(4000, reduced), 1 << 22, few);
  CHECK(result.verdict == Verdict::match);
  CHECK(numbers_of(result, "cuda")->notes.empty());
  const std::string moving = R"({ "name": "scatter", "op": "reduce_scatter", "over": "dp" },
                                { "name": "mixed", "op": "all_reduce", "over": "dp", "on": "owned" })";
  const CheckResult moved = check_on(averaged(4000, moving), 1 << 22, few);
  REQUIRE(numbers_of(moved, "cuda") != nullptr);
  CHECK(moved.disagreement.empty());
  CHECK(any_has(moved.notes, "w has all its 4000 elements in the GPU's memory at once, not 100"));
  few.cuda_elements = 4000;
  CHECK_FALSE(any_has(check_on(averaged(4000, moving), 1 << 22, few).notes, "at once"));
}
