// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lockstep/edit.h"
#include "src/diagnosis/candidate_values.h"

namespace lockstep::diagnosis {

/// One edit of a schedule, and what it is for.
struct Candidate {
  enum class Kind {
    restore,  ///< what the framework has at this place
    drop,
    duplicate,
    move,
    group,
    factor,
    reduction,
    geometry,
    parameters,
    timing,
    ranks,
    operation,
    buffer,
    insert
  };
  Kind kind = Kind::drop;
  std::string step;  ///< that it changes, removes or adds
  Edit edit;
};
inline constexpr int candidate_kind_count = 14;
/// "drop", "other group", …: for tables.
std::string_view name_of(Candidate::Kind kind);

/// Every single edit of plain steps that the values can say: each step dropped, doubled, moved to each other place,
/// over each other group, times and divided by each size, with the other reduction, geometry, parameters, timing,
/// ranks, and what may be missing inserted at each place. Edits that repeat what is there are left out where that can
/// be seen without applying them. In the order of the steps.
std::vector<Candidate> single_edits(const std::vector<Step>& steps, const CandidateValues& values);

/// Edits that bring back, one by one, what `right` has and `steps` does not: a step that is missing or that is
/// different.
std::vector<Candidate> restoring_edits(const std::vector<Step>& steps, const std::vector<Step>& right);

}  // namespace lockstep::diagnosis
