// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "src/transformer/runtime.h"

namespace lockstep::transformer {

/// "all_reduce mlp.reduce_from_tp of 4 x 8".
std::string describe(const Request& request);
/// Whether two members of a group may meet with these.
bool agree(const Request& a, const Request& b);
/// What each member gets, in the group's order. `received` is filled for an all_to_all: the rows from each member.
std::vector<Real> perform(const std::vector<const Request*>& members, std::vector<std::vector<int>>& received);

}  // namespace lockstep::transformer
