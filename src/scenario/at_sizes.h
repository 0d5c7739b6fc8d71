// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "lockstep/json.h"
#include "lockstep/sizes.h"

namespace lockstep::scenario {

/// A layout and a batch as written, null where a scenario has none, with other sizes at the places of its own.
Json layout_at(const Json* layout, const Sizes& sizes);
Json batch_at(const Json* batch, const Sizes& sizes);
/// The document that reads as `document` does at these sizes. What it expects is for its own, so that goes.
Json document_at(const Json& document, const Sizes& sizes);

}  // namespace lockstep::scenario
