// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

#include "lockstep/check.h"
#include "lockstep/job.h"

namespace lockstep::diagnosis {

/// Calls begin(), which fills `result.errors` or `result.timeline`, or throws InputError or std::bad_alloc; both end up
/// in `result.errors`. With a job, all processes of it do so together, and go on together or not at all: where one
/// reads another scenario than process 0 or cannot begin, that is an error in every one of them. Without a job
/// exceptions are thrown on.
void begin_together(CheckResult& result, Job* job, const std::function<void()>& begin);

}  // namespace lockstep::diagnosis
