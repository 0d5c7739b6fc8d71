// SPDX-License-Identifier: Apache-2.0
// Reading, replaying and comparing one scenario.
#include "lockstep/check.h"

#include "benchmarks/goal.h"
#include "benchmarks/measure.h"

namespace lockstep::bench {

namespace {

constexpr const char* corpus = LOCKSTEP_SOURCE_DIR "/scenarios/";

void check(benchmark::State& state, const std::string& file, Verdict expected, CheckOptions options) {
  options.blame = false;  // a search of its own
  const PeakMemory memory;
  BestTime time(state);
  for ([[maybe_unused]] const auto iteration : state) {
    const Stopwatch stopwatch;
    const CheckResult result = check_file(corpus + file, options);
    time.add(stopwatch.seconds());
    if (result.verdict != expected) state.SkipWithError("the verdict is another");
  }
  state.counters[peak_memory] = memory.megabytes();
}

void symbolic_844(benchmark::State& state) { check(state, "megatron/844.json", Verdict::mismatch, {.host = false}); }
const bool added_844 = add_benchmark("symbolic_844", symbolic_844, {{"#844, symbolic", 10, "ms"}});

void hashes_844(benchmark::State& state) {
  check(state, "megatron/844.json", Verdict::mismatch, {.host_forced = true});
}
const bool added_hashes = add_benchmark("hashes_844", hashes_844, {{"#844, with hashes of every element", 3000, "ms"}});

void symbolic_1024_ranks(benchmark::State& state) {
  check(state, "scale/llama3-70b-tp8-pp8-dp16.json", Verdict::match, {.host = false, .parametric_where_large = false});
}
const bool added_1024 = add_benchmark("symbolic_1024_ranks", symbolic_1024_ranks,
                                      {{"llama3-70b on 1,024 ranks, symbolic", 2000, "ms"},
                                       {"its peak memory", 1000, "MB", Comparison::at_most, peak_memory}});

}  // namespace

}  // namespace lockstep::bench
