// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "lockstep/operation.h"

namespace lockstep {

/// Applies the effect of a collective's table row to the members' values of one parameter.
///
/// `Algebra` knows how to work on a whole value at once:
///   Value reduce(const std::vector<Value>&, bool average)   sum or average of all members
///   void place(Value& target, const Intervals&, const Value& source)   target's elements there become source's
/// `values[i]` is member i's; `slices[i]` are the elements that member i answers for (read only
/// where the row speaks of slices); `root` is an index into `values`, or -1.
/// All members' elements are aligned: element e of one meets element e of every other.
template <class Algebra, class Value>
void apply_collective(const Operation& row, Algebra& algebra, std::vector<Value>& values,
                      const std::vector<Intervals>& slices, const Intervals& everything, int root, bool average) {
  using Writes = Operation::Writes;
  if (row.writes == Writes::nothing) return;
  Value result{};
  switch (row.value) {
    case Operation::Value::none:
      return;
    case Operation::Value::reduction:
      result = algebra.reduce(values, average);
      break;
    case Operation::Value::of_the_root:
      result = values[static_cast<std::size_t>(root)];
      break;
    case Operation::Value::slice_of_its_member:
      result = values.front();
      for (std::size_t i = 0; i < values.size(); ++i) algebra.place(result, slices[i], values[i]);
      break;
  }
  if (row.value == Operation::Value::slice_of_its_member) {
    Intervals gathered;
    for (const Intervals& slice : slices) gathered = unite(gathered, slice);
    for (Value& value : values) algebra.place(value, gathered, result);
    return;
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    switch (row.writes) {
      case Writes::nothing:
        break;
      case Writes::everywhere:
        algebra.place(values[i], everything, result);
        break;
      case Writes::own_slice:
        algebra.place(values[i], slices[i], result);
        break;
      case Writes::root_everywhere:
        if (static_cast<int>(i) == root) algebra.place(values[i], everything, result);
        break;
    }
  }
}

}  // namespace lockstep
