// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "lockstep/check.h"
#include "src/report/findings.h"
#include "src/report/parameter_grid.h"

namespace lockstep::report {

/// A parameter whose story is told, and a buffer with the elements that tell it best.
struct Subject {
  int parameter = 0;
  GridRequest request;
};

/// The parameter asked for by a name or a selector, of which the first wrong one is taken; for "" the first wrong one
/// of all, else the first that someone holds. Throws InputError where there is none.
Subject subject_of(const CheckResult& result, const std::string& asked);
/// A buffer that goes by the parameter's name. Throws InputError where no rank holds one.
GridRequest request_for(const CheckResult& result, int parameter);
/// The first wrong piece of the parameter, if there is one: that is what its reader looks for.
GridRequest wrong_request(const ParameterFinding& finding, GridRequest otherwise);
/// A request per range, by a rank that holds it: the subject's own where that does.
std::vector<GridRequest> requests_for(const CheckResult& result, const Subject& subject,
                                      const std::vector<Interval>& ranges);
/// Keeps the first four ranges, and in any case the one with the element that the reader looks for.
void keep_telling(std::vector<GridRequest>& requests, std::int64_t element);
/// Of many micro-batches the first two and the last tell the story: whether this is another.
bool in_the_middle(const Snapshot& snapshot, int micro_batches);

}  // namespace lockstep::report
