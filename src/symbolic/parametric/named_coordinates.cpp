// SPDX-License-Identifier: Apache-2.0
#include "src/symbolic/parametric/named_coordinates.h"

#include "src/expression/node.h"

namespace lockstep::parametric {

namespace {

/// Whole numbers that the rank's coordinates are compared with.
void visit_compared(const Expression::Node& node, const std::function<void(const NamedCoordinates&)>& visit) {
  using Kind = Expression::Node::Kind;
  for (std::size_t i = 0; i < node.children.size(); ++i) {
    const Expression::Node& child = *node.children[i];
    if (child.kind == Kind::rank_axis && node.kind == Kind::binary) {
      const Expression::Node& other = *node.children[1 - i];
      const auto* number = other.kind == Kind::value ? std::get_if<Rational>(&other.value) : nullptr;
      if (const auto whole = number != nullptr ? number->floor().to_int64() : std::nullopt)
        visit({child.axis, {static_cast<int>(*whole)}, true});
    }
    visit_compared(child, visit);
  }
}

}  // namespace

void visit_named(const Step& step, const std::function<void(const NamedCoordinates&)>& visit) {
  for (const Only& only : step.only) visit({only.axis, only.coordinates, false});
  if (step.over) {
    for (const Over::Pick& pick : step.over->picks) {
      if (pick.coordinates) visit({pick.axis, *pick.coordinates, false});
    }
  }
  if (step.root) {
    for (const auto& [axis, coordinate] : step.root->coordinates) visit({axis, {coordinate}, false});
    if (step.root->position) visit({std::nullopt, {*step.root->position}, false});
  }
  for (const auto* expression : {&step.by, &step.when, &step.count}) {
    if (*expression) visit_compared((*expression)->tree(), visit);
  }
  for (const Step& inner : step.steps) visit_named(inner, visit);
}

}  // namespace lockstep::parametric
