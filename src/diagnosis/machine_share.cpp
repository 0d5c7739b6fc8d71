// SPDX-License-Identifier: Apache-2.0
#include "src/diagnosis/machine_share.h"

#include <fmt/format.h>

#include <algorithm>

#include "lockstep/job.h"
#include "src/base/bytes_text.h"
#include "src/diagnosis/at_the_layout.h"
#include "src/diagnosis/engines.h"

namespace lockstep::diagnosis {

namespace {

/// Calls of steps on buffers up to which the host engine takes minutes.
constexpr double most_host_calls = 1e8;

std::string more_than_by_default(double bytes, const Workload& workload) {
  constexpr double most = 2e9;
  if (bytes <= most) return "";
  return fmt::format(
      "to replay every rank needs about {} of memory, more than the {} that a check takes by itself: {}{}",
      bytes_text(bytes), bytes_text(most), workload.describe(), replays_all_the_same);
}

}  // namespace

bool is_by_default(const CheckOptions& options) {
  const std::vector<EngineRow>& table = engine_table();
  return options.parametric_where_large && options.symbolic && !options.host_forced &&
         std::none_of(table.begin(), table.end(), [&](const EngineRow& row) {
           return row.stage != EngineRow::Stage::by_classes && !row.by_default && row.is_asked(options);
         });
}

bool fits(CheckResult& result, const Workload& workload, CheckOptions& options) {
  std::string why = too_large(workload), without_host;
  if (why.empty() && is_by_default(options)) {
    why = more_than_by_default(workload.bytes, workload);
    if (why.empty() && options.host)
      without_host = more_than_by_default(workload.bytes + workload.host_bytes, workload);
    if (!without_host.empty()) without_host = "the host engine was left out: " + without_host;
  }
  if (why.empty() && without_host.empty() && options.host && options.symbolic && !options.host_forced) {
    const std::string both = too_large_here(workload, workload.bytes + workload.host_bytes);
    if (!both.empty()) {
      without_host = "the host engine was left out: with it, " + both;
    } else if (workload.calls > most_host_calls) {
      without_host = fmt::format(
          "the host engine was left out: {}, which would take it more than ten minutes; "
          "--engine symbolic,host runs it all the same",
          workload.describe());
    }
  }
  if (!without_host.empty()) {
    options.host = false;
    leave_out(result, "host", without_host);
  }
  if (why.empty()) {
    double bytes = workload.bytes + (options.host ? workload.host_bytes : 0);
    if (Job* job = job_of(options); job != nullptr)
      bytes = std::max(bytes, (workload.bytes + workload.host_bytes) * job->processes_here());
    why = too_large_here(workload, bytes);
    result.machine_failed = !why.empty();
  }
  if (!why.empty()) result.errors = {at_the_layout(*result.scenario, why)};
  return why.empty();
}

}  // namespace lockstep::diagnosis
