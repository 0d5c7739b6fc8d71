// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <benchmark/benchmark.h>

#include <string>
#include <vector>

namespace lockstep::bench {

enum class Comparison { at_most, at_least };

/// A row of the table: what a benchmark has to reach. Stands beside the benchmark in its source.
struct Goal {
  std::string name;  ///< in the field's words, for the table
  double limit = 0;
  std::string unit;
  Comparison comparison = Comparison::at_most;
  /// The counter of the benchmark that holds the measured value; "time" for the time of an iteration.
  std::string counter = "time";
};

/// Counters of these names are understood by the table.
inline constexpr const char* peak_memory = "peak_memory_mb";

struct Benchmark {
  std::string name;
  std::vector<Goal> goals;
};
const std::vector<Benchmark>& benchmarks();

/// Registers a benchmark with its goals; the result is there to be assigned at namespace scope.
bool add_benchmark(const std::string& name, void (*function)(benchmark::State&), std::vector<Goal> goals);

}  // namespace lockstep::bench
