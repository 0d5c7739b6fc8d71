// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/goal.h"

namespace lockstep::bench {

namespace {

std::vector<Benchmark>& registered() {
  static std::vector<Benchmark> list;
  return list;
}

}  // namespace

const std::vector<Benchmark>& benchmarks() { return registered(); }

bool add_benchmark(const std::string& name, void (*function)(benchmark::State&), std::vector<Goal> goals) {
  registered().push_back({name, std::move(goals)});
  // The best of several repetitions: what other programs on the machine take is not lockstep's.
  ::benchmark::RegisterBenchmark(name.c_str(), function)
      ->Unit(benchmark::kMillisecond)
      ->MinTime(0.3)
      ->Repetitions(3)
      ->UseManualTime();
  return true;
}

}  // namespace lockstep::bench
