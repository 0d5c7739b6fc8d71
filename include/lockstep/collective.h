// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "lockstep/operation.h"

namespace lockstep {

/// Applies the effect of a collective's table row to one parameter. `Members` are all members of the group, or
/// whatever stands for them, and know how to work on all of them at once:
///   auto reduce()        sum, or average, of the members' values
///   auto root()          the value of the root
///   auto slices()        each slice as its member has it
///   void write_everywhere(v), write_own_slices(v), write_every_slice(v), write_root(v)
/// the last four: v becomes the value of every member; of each on its own slice; of every member on all slices; of
/// the root. The first three give values of one type.
template <class Members>
void apply_collective(const Operation& row, Members& members) {
  using Writes = Operation::Writes;
  using Value = Operation::Value;
  const auto write = [&](const auto& value) {
    switch (row.writes) {
      case Writes::nothing:
        return;
      case Writes::everywhere:
        return members.write_everywhere(value);
      case Writes::own_slice:
        return members.write_own_slices(value);
      case Writes::every_slice:
        return members.write_every_slice(value);
      case Writes::root_everywhere:
        return members.write_root(value);
    }
  };
  if (row.writes == Writes::nothing) return;
  switch (row.value) {
    case Value::none:
      return;
    case Value::reduction:
      return write(members.reduce());
    case Value::of_the_root:
      return write(members.root());
    case Value::slice_of_its_member:
      return write(members.slices());
  }
}

/// What a member, or whatever stands for all of them, owns after a step. `Member` knows sets of elements:
///   Set owned()        what it owned
///   Set in_slice()     of that, what lies in its slice
///   Set and_view()     that, and all that the step acted on
///   Set if_root()      that where it is the root, else nothing
///   Set slice()        its slice
template <class Member>
auto owned_after(const Operation& row, Member& member) {
  using Ownership = Operation::Ownership;
  switch (row.ownership) {
    case Ownership::keeps:
      break;
    case Ownership::intersects_own_slice:
      return member.in_slice();
    case Ownership::all_slices:
      return member.and_view();
    case Ownership::root_keeps_others_lose:
      return member.if_root();
    case Ownership::sets_own_slice:
      return member.slice();
  }
  return member.owned();
}

/// Members whose values stand side by side. `Algebra` knows how to work on a whole value at once:
///   Value reduce(const std::vector<Value>&, bool average)   sum or average of all members
///   void place(Value& target, const Intervals&, const Value& source)   target's elements there become source's
/// `values[i]` is member i's; `parts[i]` are the elements that member i answers for (read only
/// where the row speaks of slices); `root_index` is an index into `values`, or -1.
/// All members' elements are aligned: element e of one meets element e of every other.
template <class Algebra, class Value>
struct MembersSideBySide {
  Algebra& algebra;
  std::vector<Value>& values;
  const std::vector<Intervals>& parts;
  const Intervals& everything;
  int root_index = -1;
  bool average = false;

  Value reduce() { return algebra.reduce(values, average); }
  Value root() { return values[static_cast<std::size_t>(root_index)]; }
  Value slices() {
    Value result = values.front();
    for (std::size_t i = 0; i < values.size(); ++i) algebra.place(result, parts[i], values[i]);
    return result;
  }
  void write_everywhere(const Value& value) {
    for (Value& each : values) algebra.place(each, everything, value);
  }
  void write_own_slices(const Value& value) {
    for (std::size_t i = 0; i < values.size(); ++i) algebra.place(values[i], parts[i], value);
  }
  void write_every_slice(const Value& value) {
    Intervals all;
    for (const Intervals& part : parts) all = unite(all, part);
    for (Value& each : values) algebra.place(each, all, value);
  }
  void write_root(const Value& value) {
    algebra.place(values[static_cast<std::size_t>(root_index)], everything, value);
  }
};

template <class Algebra, class Value>
void apply_collective(const Operation& row, Algebra& algebra, std::vector<Value>& values,
                      const std::vector<Intervals>& slices, const Intervals& everything, int root, bool average) {
  MembersSideBySide<Algebra, Value> members{algebra, values, slices, everything, root, average};
  apply_collective(row, members);
}

}  // namespace lockstep
