// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "src/report/json_writer.h"

namespace lockstep::report {

/// What the transformer engine found, in the text report: how near to one device the right gradients are, and which are
/// wrong, made of what. "" where it did not run.
std::string transformer_text(const CheckResult& result, const ReportOptions& options);
/// The same as the value of "transformer" in the JSON report.
void write_json_transformer(const CheckResult& result, JsonWriter& json);

}  // namespace lockstep::report
