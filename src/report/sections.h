// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "lockstep/check.h"
#include "src/diagnosis/formulas.h"
#include "src/report/findings.h"

namespace lockstep::report {

/// Parameters that are wrong in the same way (or right in the same way); the first stands for them.
struct Section {
  const ParameterFinding* finding = nullptr;
  std::vector<std::string> names;  ///< "decoder.layers.*.mlp.weight (12)", in model order
  std::size_t parameters = 0;
  const BufferDivergence* divergence = nullptr;  ///< of `finding`; null where it has none
};

/// Folds findings into sections: parameters that differ in layer numbers alone, on whatever stage,
/// and parameters for which the same ranks hold the same formulas. `formulas` may be null.
std::vector<Section> fold_findings(const CheckResult& result, const std::vector<ParameterFinding>& findings,
                                   diagnosis::Formulas* formulas);

/// The first wrong piece of what the ranks hold; null where they are right or no forms are known.
const PieceResult* first_wrong_piece(const RankGroup& group);
/// describe_difference of a piece against its reference.
std::string difference_text(const CheckResult& result, const RankGroup& group, const PieceResult& piece);

}  // namespace lockstep::report
