// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "lockstep/importer.h"

namespace lockstep {

/// What a request says that its format has no use for, or that no configuration can have: it would be dropped in
/// silence.
void check_request(const ImportRequest& request, const ImportFormat& format, Diagnostics& diagnostics);

}  // namespace lockstep
