// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "lockstep/json.h"
#include "lockstep/schedule.h"

namespace lockstep {

// Values of the scenario language as JSON: each reads back to an equal one, and equal ones are written alike.

Json written(const Expression& expression);
Json written(const std::vector<std::string>& words);
Json written(const std::vector<int>& numbers);
Json written(const Over& over);
Json written(const Root& root);
Json written(const Geometry& geometry);
/// Ranks by coordinates, of a step (Only) or a parameter (Parameter::Only).
template <typename Coordinates>
Json written_only(const std::vector<Coordinates>& only) {
  Json object = Json::object();
  for (const Coordinates& one : only) object.set(name_of(one.axis), written(one.coordinates));
  return object;
}

}  // namespace lockstep
