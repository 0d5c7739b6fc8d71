// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>
#include <vector>

#include "src/live/recorded_schedule.h"

namespace lockstep::live {

Json json_number(std::int64_t value);

/// An array with what `make` makes of each item.
template <class Items, class Make>
Json list_of(const Items& items, const Make& make) {
  std::vector<Json> list;
  list.reserve(items.size());
  for (const auto& item : items) list.push_back(make(item));
  return Json::array(std::move(list));
}

/// The layout's names of axes of the mesh.
Json axis_list(const Recording& recording, const std::vector<int>& axes);

/// Fills in the scenario's parameters from placements.
void find_model(Recording& recording);

/// A selector for the gradients of a parameter of the run.
std::string selector_of(const Recording& recording, int parameter);

/// Whether the batch has the numbers of tokens that the run told.
bool has_tokens(const Recording& recording);

/// A scenario without its schedule: layout, parameters and batch.
Json described(const Recording& recording);

}  // namespace lockstep::live
