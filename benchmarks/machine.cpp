// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <unistd.h>

#include <fstream>
#include <thread>

#include "benchmarks/table.h"

namespace lockstep::bench {

namespace {

std::string processor() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const auto colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown";
}

std::string compiler() {
#ifdef __clang__
  return fmt::format("Clang {}", __clang_major__);
#else
  return fmt::format("GCC {}.{}", __GNUC__, __GNUC_MINOR__);
#endif
}

}  // namespace

std::string machine() {
  const double gibibytes = static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE)) /
                           (1024.0 * 1024 * 1024);
  return fmt::format("a machine with {} cores (processor: {}), {:.0f} GiB of memory, compiled with {}",
                     std::thread::hardware_concurrency(), processor(), gibibytes, compiler());
}

}  // namespace lockstep::bench
