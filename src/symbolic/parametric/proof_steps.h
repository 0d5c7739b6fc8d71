// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "lockstep/json.h"
#include "src/symbolic/parametric/cases.h"

namespace lockstep::parametric {

/// The proof of every case as JSON: for each class of parameters what its buffers hold after each step, relation by
/// relation of the names along the axes (docs/proof.md).
Json proof_steps(const std::vector<Case>& cases);

}  // namespace lockstep::parametric
