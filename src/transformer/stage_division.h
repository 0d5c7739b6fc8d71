// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>

#include "src/transformer/communicator.h"
#include "src/transformer/shards.h"

namespace lockstep::transformer {

/// Where the values come from with which a rank builds its parameters: from their own places in the tensors of one
/// device, but with the site "pp.layer_offset" dropped every stage and virtual stage counts its layers from 0 and so
/// builds the first ones. Their gradients stay where they are.
std::map<std::string, Home> built_from(const Config& config, const Layout& layout, const Communicator& comm,
                                       const std::map<std::string, Home>& homes);

/// Whether no stage runs the layer: with "pp.remainder" dropped each runs the first floor(layers / stages) of its own.
bool is_left_out(const Config& config, const Layout& layout, const Communicator& comm, int layer);

/// Throws InputError at `place` where a dropped "pp.layer_offset" would give a layer with experts the weights of one
/// without, or the other way round.
void check_stage_division(const Config& config, const Layout& layout, const SiteEdits& edits, const Place& place);

}  // namespace lockstep::transformer
