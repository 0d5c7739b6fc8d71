// SPDX-License-Identifier: Apache-2.0
// Runs the benchmarks and prints one table: measured, goal, distance. `--document=FILE` writes docs/performance.md.
// Google Benchmark's own options work as well (--benchmark_filter=REGEX, …).
#include <fmt/format.h>

#include <cstdio>
#include <fstream>
#include <string>

#include "benchmarks/hash_targets.h"
#include "benchmarks/parametric.h"
#include "benchmarks/table.h"

int main(int count, char** values) {
  using namespace lockstep::bench;
  benchmark::Initialize(&count, values);
  const std::string option = "--document=";
  std::string file;
  for (int i = 1; i < count; ++i) {
    const std::string argument = values[i];
    if (!argument.starts_with(option)) {
      fmt::print(stderr, "lockstep_bench: unknown argument '{}'; known is {}FILE\n", argument, option);
      return 2;
    }
    file = argument.substr(option.size());
  }
  Collector collector;
  benchmark::RunSpecifiedBenchmarks(&collector);
  const auto rows = collector.rows();
  fmt::print("{}\n{}\n{}\n{}", machine() + "\n", text_table(rows), parametric_table(), hash_target_table());
  for (const auto& row : rows) {
    if (row.failed) return 3;
  }
  if (!file.empty() && !(std::ofstream(file) << document(rows))) {
    fmt::print(stderr, "lockstep_bench: {} cannot be written to\n", file);
    return 3;
  }
  return 0;
}
