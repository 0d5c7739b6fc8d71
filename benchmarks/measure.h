// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::bench {

class Stopwatch {
 public:
  double seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

/// The most memory that this process held since construction, what it held before included.
class PeakMemory {
 public:
  PeakMemory();
  /// In MB (10⁶ bytes); 0 where the system does not tell.
  double megabytes() const;
};

/// The rate at which all cores together read memory that is in no cache.
class ReadBandwidth {
 public:
  ReadBandwidth();
  /// Bytes per second, measured now with prefetching and without: the higher. Takes some 40 ms.
  double measure() const;
  /// What it needs for that.
  double megabytes() const;

 private:
  std::vector<std::uint64_t> memory_;
};

struct Process {
  int status = 0;
  double seconds = 0;
  double megabytes = 0;  ///< most memory that it held
};
/// Runs a program to its end; its output goes nowhere. Throws std::runtime_error where it cannot be started.
Process run_process(const std::vector<std::string>& arguments);

}  // namespace lockstep::bench
