// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "lockstep/check.h"
#include "lockstep/mistake.h"
#include "src/diagnosis/difference.h"

namespace lockstep::diagnosis {

/// The kind that wrong contents show, by the first of these: something left over, contributions of other elements
/// (wrong cut), elements that nobody owns, contributions missing, contributions in wrong proportions (wrong weights),
/// one factor. wrong_values where there is no content to look at.
Mistake kind_of_content(const std::vector<Difference>& contents, bool unowned = false);

/// The kind of mistake of a result, with the symbolic engine, that is neither `match` nor `error`, by the first of
/// these that says something:
///
/// 1. the verdict: deadlock, invalid collective, race; wrong for the transformer engine alone: in the model;
/// 2. only the norm is wrong: norm count;
/// 3. the first edit of the file without which it matches: a reduction dropped, one duplicated or inserted, a step
///    moved, its group or its geometry set, a parameter's placement changed;
/// 4. kind_of_content().
///
/// Checks the scenario once more for each of its edits; with more than 32 of them the third is passed over.
Mistake kind_of_mistake(const CheckResult& result);

}  // namespace lockstep::diagnosis
