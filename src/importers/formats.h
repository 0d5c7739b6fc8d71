// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "lockstep/importer.h"

namespace lockstep::importers {

// One per format. Mistakes go to `diagnostics`; what comes back then is of no use.
Imported import_megatron(const ImportRequest& request, Diagnostics& diagnostics);
Imported import_deepspeed(const ImportRequest& request, Diagnostics& diagnostics);
Imported import_gpt_neox(const ImportRequest& request, Diagnostics& diagnostics);
Imported import_torchtitan(const ImportRequest& request, Diagnostics& diagnostics);
Imported import_nanotron(const ImportRequest& request, Diagnostics& diagnostics);
Imported import_accelerate(const ImportRequest& request, Diagnostics& diagnostics);

}  // namespace lockstep::importers
