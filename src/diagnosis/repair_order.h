// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "src/diagnosis/repairs.h"

namespace lockstep::diagnosis {

/// What the edits are from what a framework has: 0 for its own steps; a step less or elsewhere is nearer than a changed
/// one, and that nearer than a new one or than one changed in two ways. A wait that is added is a step that ends
/// elsewhere, and a step made synchronous is as far as a new one.
int distance_of(const Candidate& candidate);

/// Whether it changes one step in two ways, rather than something that takes several keys to say, such as another op.
bool is_two_changes(const Candidate& candidate);

/// Not what takes a gradient out of a norm or a clip, after which it is in none wrongly, and nothing clips it: only the
/// file's own edits may be taken back so.
bool is_repair(const FoundRepair& repair);

/// Whether a repair hands elements to other owners than before, which is the framework's business, or is none
/// (is_repair()): it stands behind all others, unless it is what the framework has.
bool is_strange(const FoundRepair& repair);

/// Whether it brings back what the framework, or the file before its edits, has. Where that is wrong at other sizes, it
/// is no mistake of this file.
bool is_restored(const FoundRepair& repair);

/// The order in which repairs are printed.
bool ranks_before(const FoundRepair& a, const FoundRepair& b);

/// The best of each kind first: of repairs that do the same to the same step, and of steps inserted at several places.
/// Behind them the others of these kinds, and last what is strange, one of each kind.
std::vector<FoundRepair> distinct_repairs(const std::vector<FoundRepair>& repairs);

}  // namespace lockstep::diagnosis
