// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <vector>

#include "lockstep/model.h"

namespace lockstep::model {

/// Checks a parameter by itself: shape, axes, stage, chunk. Mistakes are added at its place.
void check_placement(const Mesh& mesh, const Parameter& parameter, Diagnostics& diagnostics);

/// Checks that the sites of a tied parameter are one tensor, placed alike. Mistakes are added at
/// the later site.
void check_tie(const Parameter& first, const Parameter& later, Diagnostics& diagnostics);

/// All pieces of a parameter, by piece_index(). Only for placements without mistakes.
std::vector<Piece> cut_into_pieces(const Mesh& mesh, const Parameter& parameter);

/// The piece that `rank` holds: its coordinates on the shard axes, the first written the slowest.
int piece_index(const Mesh& mesh, const Parameter& parameter, int rank);

}  // namespace lockstep::model
