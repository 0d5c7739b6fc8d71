// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "src/expression/node.h"
#include "src/scenario/template.h"
#include "src/scenario/writing.h"

namespace lockstep::scenario {

Json written(const Expression& expression) {
  // So that equal ones are written alike: 1/4, as it is read, is a division.
  const Expression plain = expression.substitute({});
  const Expression::Node& tree = plain.tree();
  // A string that is a value stands in quotes of its own.
  if (tree.kind != Expression::Node::Kind::value || std::holds_alternative<std::string>(tree.value))
    return Json::string(plain.to_string());
  return json_of(tree.value, {});
}

Json written(const std::vector<std::string>& words) {
  return list_of(words, [](const std::string& word) { return Json::string(word); });
}

Json written(const std::vector<int>& numbers) {
  return list_of(numbers, [](int number) { return written(std::int64_t{number}); });
}

Json written(const Coordinate& coordinate) {
  switch (coordinate.kind) {
    case Coordinate::Kind::first:
      return Json::string("first");
    case Coordinate::Kind::last:
      return Json::string("last");
    case Coordinate::Kind::number:
      break;
  }
  return written(std::int64_t{coordinate.number});
}

Json written(const std::vector<Coordinate>& in_file, const std::vector<int>& numbers) {
  if (in_file.empty()) return written(numbers);
  return list_of(in_file, [](const Coordinate& coordinate) { return written(coordinate); });
}

Json written(const Over& over) {
  const bool picks = std::any_of(over.picks.begin(), over.picks.end(),
                                 [](const Over::Pick& pick) { return pick.coordinates.has_value(); });
  if (!picks && over.picks.size() == 1) return Json::string(std::string(name_of(over.picks.front().axis)));
  if (!picks)
    return list_of(over.picks, [](const Over::Pick& pick) { return Json::string(std::string(name_of(pick.axis))); });
  Json object = Json::object();
  for (const Over::Pick& pick : over.picks)
    object.set(name_of(pick.axis), pick.coordinates ? written(pick.written, *pick.coordinates) : Json::string("all"));
  return object;
}

Json written(const Root& root) {
  if (root.position) return Json::number(std::to_string(*root.position));
  Json object = Json::object();
  for (const auto& [axis, coordinate] : root.written) object.set(name_of(axis), written(coordinate));
  if (!root.written.empty()) return object;
  for (const auto& [axis, coordinate] : root.coordinates) object.set(name_of(axis), written(std::int64_t{coordinate}));
  return object;
}

}  // namespace lockstep::scenario
