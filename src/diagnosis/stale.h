// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "lockstep/check.h"

namespace lockstep::diagnosis {

/// Where a first divergence is a collective that takes in elements which an earlier step left stale on a member: which
/// step that was, and who owns them instead. "" where it is not.
std::string stale_slices(const CheckResult& result, const BufferDivergence& divergence);

}  // namespace lockstep::diagnosis
