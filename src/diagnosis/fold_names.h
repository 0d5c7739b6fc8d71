// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace lockstep::diagnosis {

/// "decoder.layers.3.mlp.weight" as "decoder.layers.*.mlp.weight": parts between dots that are
/// numbers become stars, so that the same parameter of all layers folds into one line.
std::string folded_name(std::string_view name);

}  // namespace lockstep::diagnosis
