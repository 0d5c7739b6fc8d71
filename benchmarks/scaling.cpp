// SPDX-License-Identifier: Apache-2.0
// Where the work once grew faster than the scenario: each is large in one way.
#include <fmt/format.h>

#include "benchmarks/goal.h"
#include "benchmarks/measure.h"
#include "lockstep/check.h"
#include "lockstep/report.h"

namespace lockstep::bench {

namespace {

/// Reads a scenario given as text, checks it and writes its report to nowhere.
void check_text(benchmark::State& state, const std::string& text, Verdict expected, CheckOptions options) {
  options.blame = false;  // a search of its own
  const auto source = std::make_shared<const Source>(Source{"benchmark.json", text});
  const PeakMemory memory;
  BestTime time(state);
  for ([[maybe_unused]] const auto iteration : state) {
    const Stopwatch stopwatch;
    const CheckResult result = check_scenario(std::make_shared<const Scenario>(read_scenario(source)), options);
    const auto reporter = make_reporter("text", {}, [](std::string_view) {});
    reporter->add(result);
    reporter->finish();
    time.add(stopwatch.seconds());
    if (result.verdict != expected) state.SkipWithError("the verdict is another");
  }
  state.counters[peak_memory] = memory.megabytes();
}

/// A scenario of these parts of JSON.
std::string scenario(const std::string& layout, const std::string& model, const std::string& batch,
                     const std::string& schedule) {
  return fmt::format(R"({{"lockstep": 1, "name": "large", "layout": {}, "model": {}, "batch": {}, "schedule": {}}})",
                     layout, model, batch, schedule);
}

std::string parameters(int count, const std::string& more) {
  std::string list;
  for (int i = 0; i < count; ++i) list += fmt::format(R"({}{{"name": "w{}"{}}})", i == 0 ? "" : ", ", i, ", " + more);
  return R"({"parameters": [)" + list + "]}";
}

constexpr const char* backward =
    R"json({"name": "backward", "op": "backward", "by": "1 / sum(tokens, dp, micro_batch)"})json";
constexpr const char* all_reduce = R"({"name": "all_reduce", "op": "all_reduce", "over": "dp"})";

/// Each rank's buffers meet no others, so that the host replays 1,024 times 8 of them by themselves.
void nothing_reduced(benchmark::State& state) {
  check_text(state,
             scenario(R"({"dp": 1024})", parameters(8, R"("shape": [64])"), "{}",
                      fmt::format(R"({{"steps": [{{"name": "m", "op": "each", "steps": [{}]}}]}})", backward)),
             Verdict::mismatch, {.symbolic = false, .host_forced = true});
}
const bool added_nothing_reduced =
    add_benchmark("nothing_reduced", nothing_reduced, {{"1,024 ranks that reduce nothing, host", 500, "ms"}});

void sampled_experts(benchmark::State& state) {
  check_text(state,
             scenario(R"({"pp": 16, "dp": 64, "ep": 64})", R"({"preset": "deepseek-v3"})", "{}",
                      R"({"framework": "megatron"})"),
             Verdict::match, {.parametric_where_large = false});
}
const bool added_sampled_experts =
    add_benchmark("sampled_experts", sampled_experts, {{"deepseek-v3 on 1,024 ranks, with a host sample", 5000, "ms"}});

/// Earlier sums are summed again in every micro-batch: formulas of thousands of terms, of which a report shows a few.
void growing_formulas(benchmark::State& state) {
  check_text(
      state,
      scenario(R"({"dp": 4})", parameters(8, R"("shape": [64])"), R"({"micro_batches": 256})",
               fmt::format(R"({{"steps": [{{"name": "m", "op": "each", "steps": [{}, {}]}}]}})", backward, all_reduce)),
      Verdict::mismatch, {.host = false});
}
const bool added_growing_formulas = add_benchmark("growing_formulas", growing_formulas,
                                                  {{"a reduction in each of 256 micro-batches, symbolic", 2000, "ms"}});

void parameter_edits(benchmark::State& state) {
  std::string edits;
  for (int i = 0; i < 1000; ++i)
    edits += fmt::format(R"({}{{"parameter": "w{}", "dtype": "float64"}})", i == 0 ? "" : ", ", i);
  check_text(state,
             scenario(R"({"dp": 2})", parameters(2000, R"("shape": [8])"), "{}",
                      fmt::format(R"({{"steps": [{{"name": "m", "op": "each", "steps": [{}]}}, {}], "edits": [{}]}})",
                                  backward, all_reduce, edits)),
             Verdict::match, {.host = false});
}
const bool added_parameter_edits =
    add_benchmark("parameter_edits", parameter_edits, {{"1,000 edits of 2,000 parameters, symbolic", 200, "ms"}});

}  // namespace

}  // namespace lockstep::bench
