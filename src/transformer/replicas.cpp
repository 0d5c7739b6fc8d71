// SPDX-License-Identifier: Apache-2.0
#include "src/transformer/replicas.h"

#include <algorithm>
#include <cmath>

#include "src/base/at.h"

namespace lockstep::transformer {

void Replicas::add(const LocalBuffer& buffer, std::int64_t element, double value, double bound, bool right) {
  std::vector<Element>& elements = held_[{buffer.logical, buffer.piece}];
  elements.resize(static_cast<std::size_t>(buffer.numel));
  Element& first = elements[at(element)];
  if (!first.held) {
    first = {value, bound, right, true};
    return;
  }
  const auto logical = static_cast<std::size_t>(buffer.logical);
  if (!right || !first.right) replicated_[logical] = true;
  if (!(std::abs(value - first.value) <= std::max(bound, first.bound))) agree_[logical] = false;
}

}  // namespace lockstep::transformer
