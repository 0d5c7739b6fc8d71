// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "lockstep/operation.h"

namespace lockstep {

/// Applies the effect of a local step's table row to a buffer. `Buffer` knows how to change it:
///   void clear()          it becomes 0
///   void multiply()       it is multiplied by the step's `by`
///   void clip()           it is multiplied by the clipping factor of the rank's norm, an unknown of which only
///                         formulas know; engines that compute with numbers take it for 1
///   void take_over()      it becomes the buffer `from`; itself, where that is the same
///   void add_buffer()     the buffer `from`, as it was before, is added
///   void add_gradient()   the local gradient of the micro-batch is added, times `by`
///   void add_leftover()   an unknown that is no gradient is added, times `by`
template <class Buffer>
void apply_local(const Operation& row, Buffer& buffer) {
  using Keeps = Operation::Keeps;
  using Adds = Operation::Adds;
  if (row.keeps == Keeps::nothing && row.adds == Adds::buffer) return buffer.take_over();
  switch (row.keeps) {
    case Keeps::everything:
      break;
    case Keeps::multiple:
      buffer.multiply();
      break;
    case Keeps::clipped:
      buffer.clip();
      break;
    case Keeps::nothing:
      buffer.clear();
      break;
  }
  switch (row.adds) {
    case Adds::nothing:
      break;
    case Adds::buffer:
      buffer.add_buffer();
      break;
    case Adds::gradient:
      buffer.add_gradient();
      break;
    case Adds::leftover:
      buffer.add_leftover();
      break;
  }
}

}  // namespace lockstep
