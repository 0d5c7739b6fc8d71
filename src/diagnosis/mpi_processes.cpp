// SPDX-License-Identifier: Apache-2.0
#include "src/diagnosis/mpi_processes.h"

#include <fmt/format.h>

#include <new>

#include "lockstep/job.h"
#include "lockstep/scenario.h"
#include "lockstep/timeline.h"

namespace lockstep::diagnosis {

namespace {

/// The same number for the same scenario and the same walk through it.
std::uint64_t fingerprint(const CheckResult& result) {
  std::uint64_t number = 0;
  const auto add = [&](std::uint64_t value) { number = (number ^ value) * 0x9E3779B97F4A7C15u + (number >> 29); };
  for (const char each : write_json(result.scenario->resolved)) add(static_cast<unsigned char>(each));
  for (const Event& event : result.timeline->events) {
    add(static_cast<std::uint64_t>(event.op));
    add(static_cast<std::uint64_t>(event.time));
    add(event.by.hash());
    for (const Call& call : event.calls) add(static_cast<std::uint64_t>(call.rank));
  }
  return number;
}

}  // namespace

void begin_together(CheckResult& result, Job* job, const std::function<void()>& begin) {
  if (job == nullptr) return begin();
  try {
    begin();
  } catch (const InputError& error) {
    result.errors = error.diagnostics();
  } catch (const std::bad_alloc&) {
    result.errors = {Diagnostic{{}, "out of memory"}};
    result.machine_failed = true;
  }
  std::string own = result.machine_failed ? "machine " : result.errors.empty() ? "begins " : "refuses ";
  own += result.errors.empty() ? fmt::format("{:016x}", fingerprint(result)) : result.errors.front().message;
  const std::vector<std::string> all = job->exchange(own);
  for (std::size_t process = 0; process < all.size(); ++process) {
    const bool failed = all[process].starts_with("machine ");
    if (all[process] == all.front() && !failed) continue;
    const std::string_view message = std::string_view(all[process]).substr(all[process].find(' ') + 1);
    const bool refuses = !all[process].starts_with("begins ");
    result.timeline = nullptr;
    result.machine_failed = true;
    result.errors = {Diagnostic{
        result.scenario != nullptr ? result.scenario->document.place() : Place{},
        refuses ? fmt::format("process {} of {} cannot begin: {}", process, all.size(), message)
                : fmt::format("process {} of {} reads another scenario than process 0; every machine needs the same "
                              "files and the same version of lockstep",
                              process, all.size())}};
    return;
  }
}

}  // namespace lockstep::diagnosis
