// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "lockstep/check.h"
#include "src/report/json_writer.h"

namespace lockstep::report {

/// The array "parameters" of a report: the wrong ones, or with `all` every one.
void write_json_parameters(const CheckResult& result, bool all, JsonWriter& json);

/// The keys that a report has with --timeline besides all others (docs/report-format.md): what a page needs to show the
/// scenario step by step. The object of the result must be open.
void write_json_timeline(const CheckResult& result, JsonWriter& json);

}  // namespace lockstep::report
