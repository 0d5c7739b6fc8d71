// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>
#include <vector>

#include "lockstep/edit.h"
#include "lockstep/model.h"

namespace lockstep::diagnosis {

/// What edits of parameters are called in tables, as name_of(Candidate::Kind) names those of steps.
inline constexpr std::string_view flag_edits = "flag, placement";

/// Edits that give a parameter a wrong flag or placement: a tag less or more of those that the plain steps speak of,
/// its share of a sum (`partial`) forgotten, or claimed where every rank computes the same.
std::vector<Edit> parameter_edits(const std::vector<Step>& steps, const Mesh& mesh,
                                  const std::vector<Parameter>& parameters);

}  // namespace lockstep::diagnosis
