// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/measure.h"

#include <benchmark/benchmark.h>
#include <fcntl.h>
#include <malloc.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <stdexcept>

#include "benchmarks/plain_sum.h"
#include "src/numeric/parallel.h"

namespace lockstep::bench {

namespace {

constexpr double kibibyte = 1024, megabyte = 1e6;
constexpr std::size_t bytes_read = 256u << 20;  // more than any cache holds

/// A value of /proc/self/status, in bytes.
double status_value(const std::string& key) {
  std::ifstream file("/proc/self/status");
  for (std::string word; file >> word;) {
    double kibibytes = 0;
    if (word == key + ":" && file >> kibibytes) return kibibytes * kibibyte;
  }
  return 0;
}

}  // namespace

PeakMemory::PeakMemory() {
  malloc_trim(0);
  std::ofstream("/proc/self/clear_refs") << 5;  // the peak counts from here
}

double PeakMemory::megabytes() const { return status_value("VmHWM") / megabyte; }

ReadBandwidth::ReadBandwidth() : memory_(bytes_read / sizeof(std::uint64_t), 1) {}

double ReadBandwidth::measure() const {
  const int threads = numeric::thread_count(0);
  const std::size_t share = memory_.size() / static_cast<std::size_t>(threads);
  double fastest = 0;
  for (const auto sum : {plain_sum, prefetching_sum}) {
    const Stopwatch stopwatch;
    numeric::parallel_for(static_cast<std::size_t>(threads), threads, [&](std::size_t i) {
      const std::uint64_t* begin = memory_.data() + i * share;
      benchmark::DoNotOptimize(sum(begin, share));
    });
    fastest = std::max(fastest, static_cast<double>(bytes_read) / stopwatch.seconds());
  }
  return fastest;
}

double ReadBandwidth::megabytes() const { return static_cast<double>(bytes_read) / megabyte; }

Process run_process(const std::vector<std::string>& arguments) {
  // A child's peak counts from what its parent held when it was started.
  const PeakMemory reset;
  std::vector<char*> values;
  values.reserve(arguments.size() + 1);
  for (const std::string& argument : arguments) values.push_back(const_cast<char*>(argument.c_str()));
  values.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  const Stopwatch stopwatch;
  pid_t child = 0;
  const int failure = posix_spawn(&child, values.front(), &actions, nullptr, values.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (failure != 0) throw std::runtime_error("could not start " + arguments.front());
  Process process;
  rusage usage{};
  wait4(child, &process.status, 0, &usage);
  process.seconds = stopwatch.seconds();
  process.megabytes = static_cast<double>(usage.ru_maxrss) * kibibyte / megabyte;
  return process;
}

}  // namespace lockstep::bench
