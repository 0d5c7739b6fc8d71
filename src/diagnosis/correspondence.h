// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/schedule.h"
#include "src/base/at.h"

namespace lockstep::diagnosis {

/// Which buffers of a schedule stand for which of another one, and what keeps the two apart. Refers to both.
class Correspondence {
 public:
  Correspondence(const Schedule& before, const Schedule& after) : before_(before), after_(after) {}

  /// Why no gradient of the one stands for one of the other, a sentence each; empty where they can be compared. To be
  /// called first.
  std::vector<std::string> apart();

  /// The same logical parameter in the other schedule.
  int logical_after(int logical) const { return logical_after_[at(logical)]; }
  /// By buffer of a rank before: its buffer after.
  const std::vector<int>& buffers(int rank);

 private:
  void compare_batches(std::vector<std::string>& reasons) const;
  void compare_parameters(std::vector<std::string>& reasons);
  bool placed_alike(int old_logical, int new_logical) const;
  bool held_alike() const;

  const Schedule &before_, &after_;
  std::vector<int> logical_after_;
  std::map<std::pair<int, int>, std::vector<int>> buffers_;
};

}  // namespace lockstep::diagnosis
