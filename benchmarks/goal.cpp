// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/goal.h"

#include <algorithm>

namespace lockstep::bench {

namespace {

std::vector<Benchmark>& registered() {
  static std::vector<Benchmark> list;
  return list;
}

}  // namespace

BestTime::~BestTime() { state_.counters[best_time] = 1000 * best_; }

void BestTime::add(double seconds) {
  state_.SetIterationTime(seconds);
  best_ = best_ == 0 ? seconds : std::min(best_, seconds);
}

const std::vector<Benchmark>& benchmarks() { return registered(); }

bool add_benchmark(const std::string& name, void (*function)(benchmark::State&), std::vector<Goal> goals) {
  registered().push_back({name, std::move(goals)});
  ::benchmark::RegisterBenchmark(name.c_str(), function)
      ->Unit(benchmark::kMillisecond)
      ->MinTime(0.3)
      ->Repetitions(3)
      ->UseManualTime();
  return true;
}

}  // namespace lockstep::bench
