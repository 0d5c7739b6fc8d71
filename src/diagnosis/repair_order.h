// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "src/diagnosis/repairs.h"

namespace lockstep::diagnosis {

/// What the edits are from what a framework has: 0 for its own steps; a step less or elsewhere is nearer than a changed
/// one, and that nearer than a new one.
int distance_of(Candidate::Kind kind);
int distance_of(const std::vector<Candidate>& edits);  ///< their sum

/// Whether a repair hands elements to other owners than before, which is the framework's business: such a repair stands
/// behind all others, unless it is what the framework has.
bool is_strange(const FoundRepair& repair);

/// Whether it brings back what the framework, or the file before its edits, has. Where that is wrong at other sizes, it
/// is no mistake of this file.
bool is_restored(const FoundRepair& repair);

/// The order in which repairs are printed.
bool ranks_before(const FoundRepair& a, const FoundRepair& b);

/// One of each kind: of repairs that do the same to the same step, and of steps inserted at several places, the best.
std::vector<FoundRepair> distinct_repairs(const std::vector<FoundRepair>& repairs);

}  // namespace lockstep::diagnosis
