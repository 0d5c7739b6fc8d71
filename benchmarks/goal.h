// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <benchmark/benchmark.h>

#include <string>
#include <vector>

namespace lockstep::bench {

enum class Comparison { at_most, at_least };

/// Counters that the table knows: the time of the best iteration, and the most memory.
inline constexpr const char* best_time = "best_ms";
inline constexpr const char* peak_memory = "peak_memory_mb";

/// A row of the table: what a benchmark has to reach. Stands beside the benchmark in its source.
struct Goal {
  std::string name;  ///< in the field's words, for the table
  double limit = 0;
  std::string unit;
  Comparison comparison = Comparison::at_most;
  /// The counter of the benchmark that holds the measured value.
  std::string counter = best_time;
};

struct Benchmark {
  std::string name;
  std::vector<Goal> goals;
};
const std::vector<Benchmark>& benchmarks();

/// Keeps the time of the best iteration: what other programs on the machine take is not lockstep's.
class BestTime {
 public:
  explicit BestTime(benchmark::State& state) : state_(state) {}
  BestTime(const BestTime&) = delete;
  BestTime& operator=(const BestTime&) = delete;
  ~BestTime();

  /// Once in each iteration.
  void add(double seconds);
  double seconds() const { return best_; }

 private:
  benchmark::State& state_;
  double best_ = 0;
};

/// Registers a benchmark with its goals; the result is there to be assigned at namespace scope.
bool add_benchmark(const std::string& name, void (*function)(benchmark::State&), std::vector<Goal> goals);

}  // namespace lockstep::bench
