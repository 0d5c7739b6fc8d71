// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "lockstep/schedule.h"

namespace lockstep::parametric {

/// The parameters that the layouts of a case have, where their number depends on a size: a rank of few ranks holds many
/// experts, one of many holds few. A step that chooses some of them by name may choose none at another size.
class NamesSeen {
 public:
  /// The schedule of a layout of the case.
  void add(std::shared_ptr<const Schedule> schedule);
  /// Throws OutOfReach where a step chooses some, and not all, of the parameters of one kind, and not every layout has
  /// the same ones of these.
  void require_all() const;

 private:
  std::vector<std::shared_ptr<const Schedule>> schedules_;
};

}  // namespace lockstep::parametric
