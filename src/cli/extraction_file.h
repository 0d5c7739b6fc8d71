// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "lockstep/json.h"

namespace lockstep::cli {

/// What an extraction holds; null where the file is something else.
std::shared_ptr<const Source> extraction_at(const std::string& file);

}  // namespace lockstep::cli
