// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "lockstep/importer.h"

namespace lockstep::importers {

/// What a request says that its format has no use for, or that no configuration can have: it would be dropped in
/// silence.
void check_request(const ImportRequest& request, const ImportFormat& format, Diagnostics& diagnostics);

/// Whether the request has just one file; else a mistake. `title` is the format's.
bool has_one_file(const ImportRequest& request, const std::string& title, Diagnostics& diagnostics);

/// Whether what was read is a map with at least one key; else a mistake, unless the syntax was one already.
bool is_configuration(const Json& root, const std::shared_ptr<const Source>& source, Diagnostics& diagnostics);

}  // namespace lockstep::importers
