// SPDX-License-Identifier: Apache-2.0
#include "src/device/joined_tasks.h"

#include <map>

namespace lockstep::device {

std::vector<numeric::Task> joined(std::vector<numeric::Task> tasks) {
  std::vector<numeric::Task> result;
  std::map<std::pair<std::size_t, bool>, std::size_t> places;
  for (numeric::Task& task : tasks) {
    const auto [found, is_new] = places.try_emplace({task.component, task.in_field}, result.size());
    if (is_new) {
      result.push_back(std::move(task));
    } else {
      numeric::Task& whole = result[found->second];
      whole.elements = unite(whole.elements, task.elements);
    }
  }
  return result;
}

}  // namespace lockstep::device
