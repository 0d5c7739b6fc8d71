// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace lockstep {

/// A rank, parameter or step, which is never negative where it is asked for, as an index.
constexpr std::size_t at(int number) { return static_cast<std::size_t>(number); }

}  // namespace lockstep
