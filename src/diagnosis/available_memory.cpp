// SPDX-License-Identifier: Apache-2.0
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>

#include "src/diagnosis/workload.h"

namespace lockstep::diagnosis {

namespace {

/// What Linux says could be had without swapping; nothing elsewhere.
std::optional<double> free_on_the_machine() {
  std::ifstream meminfo("/proc/meminfo");
  std::string key, unit;
  for (double kibibytes = 0; meminfo >> key >> kibibytes; std::getline(meminfo, unit)) {
    if (key == "MemAvailable:") return kibibytes * 1024;
  }
  return std::nullopt;
}

/// A number in a file of the control group; nothing for "max".
std::optional<double> in_control_group(const char* file) {
  std::ifstream stream(file);
  double value = 0;
  if (stream >> value) return value;
  return std::nullopt;
}

}  // namespace

double available_bytes() {
  double available = static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
  if (const auto free = free_on_the_machine()) available = std::min(available, *free);
  const auto limit = in_control_group("/sys/fs/cgroup/memory.max");
  const auto used = in_control_group("/sys/fs/cgroup/memory.current");
  if (limit) available = std::min(available, std::max(0.0, *limit - used.value_or(0)));
  rlimit own{};
  if (getrlimit(RLIMIT_AS, &own) == 0 && own.rlim_cur != RLIM_INFINITY) {
    available = std::min(available, static_cast<double>(own.rlim_cur));
  }
  return available;
}

}  // namespace lockstep::diagnosis
