// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

#include "lockstep/scenario.h"
#include "src/diagnosis/repairs.h"

namespace lockstep::diagnosis {

/// Applies a repair to the file as it is, replays it there with the symbolic engine and, where it is not too much, the
/// host, and proves it with the parametric engine. Fills in what Repair says of that and `added_bytes`; false where it
/// does not match at the file's own sizes.
bool verify_repair(const CheckResult& result, Repair& repair);

/// The same of a change that is none of a repair's edits, such as an option of its framework.
bool verify_change(const CheckResult& result, const WhatIf& change, Repair& repair);

/// The best `most` of what was found that stand at the file's own sizes: of each kind one, those that are proved for
/// more sizes first, else in the order in which they were found. A few more than `most` are verified where not all of
/// the first ones are right for other sizes.
/// `without_norm`, where it is given, becomes how many were left out as ranks count or clip less with them than before.
std::vector<Repair> best_repairs(const CheckResult& result, const RepairSearch& search, std::size_t most,
                                 std::size_t* without_norm = nullptr);

}  // namespace lockstep::diagnosis
