// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>
#include <vector>

#include "lockstep/schedule.h"

namespace lockstep {

/// A collective in sends between members and local sums, on scratch copies of their buffers that
/// are cut into n slices.
struct Decomposition {
  /// Member `from` sends slice `slice` (-1: everything) to `to`, which adds it or takes it over.
  struct Transfer {
    int from = 0, to = 0, slice = -1;
    bool add = false;
  };
  std::vector<Transfer> transfers;  ///< one after the other
  /// By member: the slices that it takes over from its scratch copy at the end (for an average,
  /// divided by n first). -1: everything.
  std::vector<std::vector<int>> takes_over;
};

/// One row of the operation table: what an op is, what it accepts, and its effect, written once.
/// Engines read the effect through apply_local (local_step.h) and apply_collective and owned_after
/// (collective.h); a test holds each collective against its decomposition into sends and local sums.
struct Operation {
  Op op;
  std::string_view name;
  std::string_view help;    ///< one sentence
  std::string_view keys;    ///< keys of a step besides those of every op, separated by spaces
  bool collective = false;  ///< all members must meet

  /// A step of one rank alone: what stays of the buffer, and what is added to that.
  enum class Keeps { everything, multiple, clipped, nothing };
  enum class Adds { nothing, buffer, gradient, leftover };
  Keeps keeps = Keeps::everything;
  Adds adds = Adds::nothing;
  bool counts = false;  ///< reads elements into the gradient norm

  /// Whose slices it speaks of: those that its own geometry cuts, or those of the scatter that it undoes.
  enum class Cuts { nothing, its_own, those_of_the_scatter };
  enum class Writes { nothing, everywhere, own_slice, every_slice, root_everywhere };
  enum class Value { none, reduction, slice_of_its_member, of_the_root };
  enum class Ownership { keeps, intersects_own_slice, all_slices, root_keeps_others_lose, sets_own_slice };
  Cuts cuts = Cuts::nothing;
  Writes writes = Writes::nothing;  ///< which elements of which members change
  Value value = Value::none;        ///< what stands there afterwards
  Ownership ownership = Ownership::keeps;
  bool equal_slices = false;  ///< it has one length for all slices, and pads those that are shorter
  bool joins_family = false;  ///< members answer together for every element (scenario-format.md)

  /// What a step of it does, for sentences: "sums the gradients of ["a"] over dp (2 ranks)". In braces stand what the
  /// step says: {sums} ("averages" where it does), {of} and {of_uses} (its parameters and uses, with the word in
  /// front), {group}, {by}, {from}, {to}, {for}.
  std::string_view deed;
  /// An op that may have been meant where this one stands, and the keys of a step that it does not take. One that
  /// speaks of no group may stand for a collective over the ranks that its factor counts.
  struct Instead {
    Op op;
    std::vector<std::string_view> without = {};
  };
  std::vector<Instead> instead = {};

  /// Elements that all members together send, in multiples of (n-1) times the buffer's elements.
  int ring_sends = 0;
  /// The same collective by another road: a ring or a chain among n members. Null where no data moves.
  Decomposition (*decompose)(int n, int root) = nullptr;

  /// Changes a buffer by itself.
  bool local() const { return keeps != Keeps::everything || adds != Adds::nothing; }
  /// Multiplies by a factor that the rank's norm decides.
  bool clips() const { return keeps == Keeps::clipped; }
  bool changes() const { return local() || writes != Writes::nothing; }
  /// Reads or writes a buffer.
  bool touches() const { return changes() || counts; }
  /// Changes a buffer, or who owns what of it.
  bool acts() const { return changes() || ownership != Ownership::keeps; }
  /// Speaks of the members of a group, whether they meet or not.
  bool of_a_group() const { return collective || ownership != Ownership::keeps; }
  /// Reads the buffer that the step calls "from".
  bool reads_from() const { return adds == Adds::buffer; }
  bool reduces() const { return value == Value::reduction; }
};

const Operation& operation(Op op);
const std::vector<Operation>& operations();
std::optional<Op> op_named(std::string_view name);

}  // namespace lockstep
