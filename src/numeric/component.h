// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/timeline.h"

namespace lockstep::numeric {

/// One buffer of one rank under one of its names ("grad", …).
struct BufferNode {
  int rank = 0;
  int buffer = 0;
  int name = 0;  ///< index into Components::names; 0 is the result
};

/// Position `position` of event `event`: a parameter that a call acts on.
struct EventUse {
  std::size_t event = 0;
  std::size_t position = 0;
};

/// Buffers that events link, directly or through others, and buffers of one piece whose elements stay in their places,
/// so that their reference is computed once; nothing outside touches them.
struct Component {
  std::vector<BufferNode> nodes;  ///< by rank, buffer, name
  std::vector<EventUse> uses;     ///< in order of time
  std::int64_t numel = 0;         ///< elements of the largest buffer
  /// Whether element e of one node only ever meets element e of the others, so that blocks of
  /// elements can be replayed apart.
  bool aligned = true;
  /// Components with the same number share a logical parameter, directly or through others.
  int family = 0;
};

/// The components that hold something which an optimizer reads.
struct Components {
  std::vector<std::string> names;
  std::vector<Component> list;
};

/// Complexity: near linear in the timeline's calls × selected buffers.
Components find_components(const Schedule& schedule, const Timeline& timeline);

}  // namespace lockstep::numeric
