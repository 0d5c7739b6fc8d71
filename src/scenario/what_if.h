// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "lockstep/scenario.h"

namespace lockstep::scenario {

/// Parts of a scenario as written, null where it has none, with what takes their place.
Json layout_with(const Json* layout, const Sizes& sizes);
Json batch_with(const Json* batch, const Sizes& sizes);
Json schedule_with(const Json& schedule, const WhatIf& what_if);
/// The document that reads as `document` does with all of it. What it expects is of the file as it is, so that goes.
Json document_with(const Json& document, const WhatIf& what_if);

}  // namespace lockstep::scenario
