// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/symbolic/programs.h"

namespace lockstep::symbolic {

/// A row for each call that a training script can make, as torch.distributed has them: more than a schedule has ops,
/// and without gradients' geometries and owners.
struct ProgramOperation {
  ProgramOp op;
  std::string_view name;
  bool rooted = false;    ///< has a root
  bool in_pairs = false;  ///< two ranks meet, each with a call of its own kind
  bool even = false;      ///< each member puts in as many elements
  bool reduces = false;
  bool for_all = false;        ///< what comes out is the same on all members
  bool waits_for_all = false;  ///< a rank comes out of it only after all have called it
  bool own_splits = false;     ///< each member's splits are its own
  enum class Sender { all, root, first };
  Sender sender = Sender::all;  ///< whose input counts
  enum class Parts { none, of_each, of_the_root };
  Parts parts = Parts::none;  ///< whose input falls into a part for each member
  enum class Brings { what_goes_in, own_part, all_inputs, part_of_the_root, part_of_each };
  Brings brings = Brings::what_goes_in;  ///< how many elements come out
};

const ProgramOperation& program_operation(ProgramOp op);
/// Null where there is none of that name.
const ProgramOperation* program_operation_named(std::string_view name);
/// For messages.
std::vector<std::string> program_operation_names();

}  // namespace lockstep::symbolic
