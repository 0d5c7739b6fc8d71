// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <vector>

#include "benchmarks/goal.h"

namespace lockstep::bench {

/// Collects what the benchmarks measured; the best of all repetitions counts, of memory the most.
class Collector : public benchmark::ConsoleReporter {
 public:
  Collector() : ConsoleReporter(OO_None) {}
  bool ReportContext(const Context&) override { return true; }
  void ReportRuns(const std::vector<Run>& runs) override;

  /// A line for each goal of a benchmark that ran.
  struct Row {
    Goal goal;
    double measured = 0;
    double memory_mb = 0;
    std::string details;  ///< other counters
    bool failed = false;
    /// How much better than the goal: 2 is half the time, or twice the rate. Below 1 the goal is not met.
    double margin() const;
  };
  std::vector<Row> rows() const;

 private:
  struct Measured {
    std::map<std::string, double> lowest, highest;  ///< by counter
    bool failed = false;
  };
  std::map<std::string, Measured> measured_;  ///< by benchmark
};

/// For a terminal.
std::string text_table(const std::vector<Collector::Row>& rows);
/// docs/performance.md.
std::string document(const std::vector<Collector::Row>& rows);
/// Processor, cores, memory, compiler: no names of places.
std::string machine();

}  // namespace lockstep::bench
