// SPDX-License-Identifier: Apache-2.0
// The parametric engine from 8 ranks to a million, and with more and more classes of parameters: what it does and what
// it allocates are counted, so that the goals hold on any machine. Its times stand beside.
#include "benchmarks/parametric.h"

#include <fmt/format.h>

#include <algorithm>

#include "benchmarks/allocations.h"
#include "benchmarks/goal.h"
#include "benchmarks/measure.h"
#include "lockstep/parametric.h"
#include "lockstep/scenario.h"

namespace lockstep::bench {

namespace {

Scenario read_text(const std::string& text) {
  return read_scenario(std::make_shared<const Source>(Source{"benchmark.json", text}));
}

/// Four layers of GPT-2 with a tied embedding, on two pipeline stages. In #844 their buffers cut its copies
/// differently, so that one rank owns an element on the first stage, and often another one on the last.
Scenario of_ranks(int ranks, bool is_844) {
  return read_text(fmt::format(
      R"({{"lockstep": 1, "layout": {{"tp": 2, "pp": 2, "dp": {}}}, )"
      R"("model": {{"preset": "gpt2", "layers": 4, "vocab": 50304, "tied_embeddings": true}}, )"
      R"("batch": {{"micro_batches": 4}}, )"
      R"("schedule": {{"framework": "megatron", "options": {{"use_distributed_optimizer": true}}{}}}}})",
      ranks / 4, is_844 ? R"(, "edits": [{"set": "dp_reduce_scatter", "geometry": {"separate": []}}])" : ""));
}

/// This many parameters, each of which goes through another choice of ten steps.
Scenario of_classes(int classes) {
  std::string parameters, steps;
  for (int i = 0; i < classes; ++i) {
    std::string tags;
    const int choice = i * 61 % 1024;  // of the first 16 as well, some go through every step
    for (int bit = 0; bit < 10; ++bit) {
      if ((choice >> bit & 1) != 0) tags += fmt::format(R"({}"t{}")", tags.empty() ? "" : ", ", bit);
    }
    parameters += fmt::format(R"({}{{"name": "w{}", "shape": [64], "tags": [{}]}})", i == 0 ? "" : ", ", i, tags);
  }
  for (int bit = 0; bit < 10; ++bit)
    steps += fmt::format(R"(, {{"name": "s{0}", "op": "scale", "by": "1", "params": ["tag:t{0}"]}})", bit);
  return read_text(fmt::format(
      R"({{"lockstep": 1, "layout": {{"dp": 1024}}, "model": {{"parameters": [{}]}}, "batch": {{"micro_batches": 1}}, )"
      R"("schedule": {{"steps": [{{"name": "m", "op": "each", "steps": [)"
      R"json({{"name": "backward", "op": "backward", "by": "1 / sum(tokens, dp, micro_batch)"}}]}}, )json"
      R"({{"name": "sum", "op": "all_reduce", "over": "dp"}}{}]}}}})",
      parameters, steps));
}

struct Cost {
  double operations = 0, bytes = 0, seconds = 0;
  int classes = 0;
  ParametricResult::Verdict verdict = ParametricResult::Verdict::undecided;
};

Cost cost_of(const Scenario& scenario) {
  const std::int64_t before = allocated_bytes();
  const Stopwatch stopwatch;
  const ParametricResult result = run_parametric(*scenario.schedule);
  Cost cost;
  cost.seconds = stopwatch.seconds();
  cost.bytes = static_cast<double>(allocated_bytes() - before);
  cost.operations = static_cast<double>(result.operations);
  cost.classes = result.classes;
  cost.verdict = result.verdict;
  return cost;
}

struct Row {
  std::string what;
  Cost cost;
};
std::vector<Row> measured;

/// The cost of `scenario` beside that of `other`, for each of their classes.
void compare(benchmark::State& state, const std::string& what, const Scenario& scenario, const Scenario& other,
             ParametricResult::Verdict expected) {
  const PeakMemory memory;
  const Cost base = cost_of(other);
  BestTime time(state);
  Cost cost;
  for ([[maybe_unused]] const auto iteration : state) {
    cost = cost_of(scenario);
    time.add(cost.seconds);
    if (cost.verdict != expected) state.SkipWithError("the verdict is another");
  }
  cost.seconds = time.seconds();
  const auto known = std::find_if(measured.begin(), measured.end(), [&](const Row& row) { return row.what == what; });
  if (known == measured.end()) {
    measured.push_back({what, cost});
  } else {
    known->cost.seconds = std::min(known->cost.seconds, cost.seconds);
  }
  const double classes = static_cast<double>(cost.classes) / base.classes;
  state.counters["operations_ratio"] = cost.operations / base.operations / classes;
  state.counters["bytes_ratio"] = cost.bytes / base.bytes / classes;
  state.counters[peak_memory] = memory.megabytes();
}

using Verdict = ParametricResult::Verdict;
constexpr int usual_ranks = 16, least_classes = 16;

std::string with_commas(int number) {
  std::string text = std::to_string(number);
  for (std::size_t end = text.size(); end > 3; end -= 3) text.insert(end - 3, ",");
  return text;
}

template <int ranks>
void right(benchmark::State& state) {
  compare(state, fmt::format("{} ranks, right", with_commas(ranks)), of_ranks(ranks, false),
          of_ranks(usual_ranks, false), Verdict::match);
}
template <int ranks>
void wrong(benchmark::State& state) {
  compare(state, fmt::format("{} ranks, #844", with_commas(ranks)), of_ranks(ranks, true), of_ranks(usual_ranks, true),
          Verdict::mismatch);
}
template <int count>
void classes(benchmark::State& state) {
  compare(state, fmt::format("1,024 ranks, {} classes of parameters", with_commas(count)), of_classes(count),
          of_classes(least_classes), Verdict::match);
}

template <int ranks>
bool add_ranks() {
  const auto goals = [](const char* what) {
    return std::vector<Goal>{
        {fmt::format("{} on {} ranks, parametric: operations, of those on 16", what, with_commas(ranks)), 1, "×",
         Comparison::at_most, "operations_ratio"},
        {"its allocated bytes, of those on 16 ranks", 1.01, "×", Comparison::at_most, "bytes_ratio"},
        {"its time", 20, "ms"}};
  };
  return add_benchmark(fmt::format("parametric_right_{}_ranks", ranks), right<ranks>, goals("tied GPT-2")) &&
         add_benchmark(fmt::format("parametric_844_{}_ranks", ranks), wrong<ranks>, goals("#844"));
}
template <int count>
bool add_classes() {
  return add_benchmark(
      fmt::format("parametric_{}_classes", count), classes<count>,
      {{fmt::format("{} classes of parameters: operations for each, of those with 16", with_commas(count)), 1.05, "×",
        Comparison::at_most, "operations_ratio"},
       {"its allocated bytes for each class, of those with 16", 1.05, "×", Comparison::at_most, "bytes_ratio"},
       {"its time", 500, "ms"}});
}
const bool added[] = {add_ranks<8>(),      add_ranks<128>(),     add_ranks<2048>(), add_ranks<16384>(),
                      add_ranks<131072>(), add_ranks<1048576>(), add_classes<16>(), add_classes<64>(),
                      add_classes<256>(),  add_classes<1024>()};

}  // namespace

std::string parametric_table() {
  if (measured.empty()) return "";
  std::string text = "| schedule | classes | operations | allocated, kB | time, ms |\n|---|--:|--:|--:|--:|\n";
  for (const Row& row : measured) {
    text += fmt::format("| {} | {} | {:.0f} | {:.1f} | {:.2f} |\n", row.what, row.cost.classes, row.cost.operations,
                        row.cost.bytes / 1000, 1000 * row.cost.seconds);
  }
  return text;
}

}  // namespace lockstep::bench
