// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "lockstep/check.h"

namespace lockstep {

/// The kinds of mistakes, a short fixed vocabulary.
enum class Mistake {
  missing_reduction,
  extra_reduction,
  wrong_place,
  wrong_group,
  wrong_cut,
  wrong_placement,
  wrong_factor,
  wrong_weights,
  leftover,
  no_owner,
  norm_count,
  deadlock,
  invalid_collective,
  race,
  in_the_model
};
/// "missing reduction", "wrong factor", …
std::string_view name_of(Mistake mistake);

/// The kind of mistake of a result, with the symbolic engine, that is neither `match` nor `error`, by the first of
/// these that says something:
///
/// 1. the verdict: deadlock, invalid collective, race; wrong for the transformer engine alone: in the model;
/// 2. only the norm is wrong: norm count;
/// 3. the first edit of the file without which it matches: a reduction dropped, one duplicated or inserted, a step
/// moved,
///    its group or its geometry set, a parameter's placement changed;
/// 4. the content of what is wrong: something left over, contributions of other elements (wrong cut), elements that
///    nobody owns, contributions missing, contributions in wrong proportions (wrong weights), one factor.
///
/// Checks the scenario once more for each of its edits; with more than 32 of them the third is passed over.
Mistake kind_of_mistake(const CheckResult& result);

}  // namespace lockstep
