// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "lockstep/live.h"

namespace lockstep::report {

/// A captured run as an article of the page: what is wrong, what ranks got and what one device has, and a table of
/// parameters by ranks. Tables end at a few hundred rows and say how many more there are.
std::string html_run(const VerifyResult& result);

}  // namespace lockstep::report
