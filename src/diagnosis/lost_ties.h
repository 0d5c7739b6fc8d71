// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "lockstep/check.h"

namespace lockstep::diagnosis {

/// Of a mismatch in parameters that have several copies: that they have, which edits of the model tie them again, and
/// whether that makes the schedule right. "" where no wrong parameter has copies.
std::string lost_ties(const CheckResult& result);

}  // namespace lockstep::diagnosis
