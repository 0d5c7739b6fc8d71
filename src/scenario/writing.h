// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/json.h"
#include "lockstep/schedule.h"

namespace lockstep::scenario {

// Values of the scenario language as JSON: each reads back to an equal one, and equal ones are
// written alike, except that coordinates are written as the file has them.

inline Json written(std::int64_t number) { return Json::number(std::to_string(number)); }
/// An array of what `write` makes of each.
template <typename Item, typename Write>
Json list_of(const std::vector<Item>& items, const Write& write) {
  std::vector<Json> list;
  list.reserve(items.size());
  for (const Item& item : items) list.push_back(write(item));
  return Json::array(std::move(list));
}
Json written(const Expression& expression);
Json written(const std::vector<std::string>& words);
Json written(const std::vector<int>& numbers);
Json written(const Coordinate& coordinate);
/// As a file has them, or where none has by their numbers.
Json written(const std::vector<Coordinate>& in_file, const std::vector<int>& numbers);
Json written(const Over& over);
Json written(const Root& root);

}  // namespace lockstep::scenario
