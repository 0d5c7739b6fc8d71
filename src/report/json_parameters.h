// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "lockstep/check.h"
#include "src/report/json_writer.h"

namespace lockstep {

/// The array "parameters" of a report: the wrong ones, or with `all` every one.
void write_json_parameters(const CheckResult& result, bool all, JsonWriter& json);

}  // namespace lockstep
