// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>
#include <vector>

#include "lockstep/schedule.h"

namespace lockstep {

/// One row of the operation table: what an op is, what it accepts, and, for collectives, its
/// effect, written once. Engines read the effect through apply_collective (collective.h); a test
/// holds each row against its decomposition into sends and local sums.
struct Operation {
  Op op;
  std::string_view name;
  std::string_view help;       ///< one sentence
  std::string_view keys;       ///< keys of a step besides those of every op, separated by spaces
  bool collective = false;     ///< all members must meet

  enum class Writes { nothing, everywhere, own_slice, root_everywhere };
  enum class Value { none, reduction, slice_of_its_member, of_the_root };
  enum class Ownership { keeps, intersects_own_slice, all_slices, root_keeps_others_lose, sets_own_slice };
  Writes writes = Writes::nothing;      ///< which elements of which members change
  Value value = Value::none;            ///< what stands there afterwards
  Ownership ownership = Ownership::keeps;
  bool joins_family = false;            ///< members answer together for every element (scenario-format.md)

  /// Bytes that a member sends in a ring, as a fraction of the buffer's bytes times (n-1)/n.
  int ring_sends = 0;
};

const Operation& operation(Op op);
const std::vector<Operation>& operations();
std::optional<Op> op_named(std::string_view name);

}  // namespace lockstep
