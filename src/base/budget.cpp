// SPDX-License-Identifier: Apache-2.0
#include "src/base/budget.h"

#include <algorithm>
#include <limits>

namespace lockstep {

namespace {

thread_local Budget* innermost = nullptr;
thread_local const Budget::Place* innermost_place = nullptr;

}  // namespace

OverBudget::OverBudget(std::int64_t most, const std::string& place)
    : std::runtime_error("it would take more than " + units_text(most) + " units of work" +
                         (place.empty() ? "" : " in " + place)) {}

Budget::Budget(std::int64_t most) : most_(most), outer_(innermost) { innermost = this; }

Budget::~Budget() { innermost = outer_; }

void Budget::spend(std::int64_t units) {
  for (Budget* budget = innermost; budget != nullptr; budget = budget->outer_) {
    const std::int64_t room = std::numeric_limits<std::int64_t>::max() - budget->spent_;
    budget->spent_ += units < room ? units : room;
  }
  for (const Budget* budget = innermost; budget != nullptr; budget = budget->outer_) {
    if (budget->spent_ <= budget->most_) continue;
    const Place* place = innermost_place;
    std::string where;
    if (place != nullptr) where = std::string(place->kind_) + " \"" + *place->name_ + "\"";
    throw OverBudget(budget->most_, where);
  }
}

Budget::Place::Place(const char* kind, const std::string& name) : kind_(kind), name_(&name), outer_(innermost_place) {
  innermost_place = this;
}

Budget::Place::~Place() { innermost_place = outer_; }

void spend_on(const Rational& number) {
  if (number.to_int64()) return;
  const std::int64_t bits = std::max(number.numerator().bits(), number.denominator().bits());
  constexpr std::int64_t few = 64, bits_squared_of_a_unit = 800;
  if (bits > few) Budget::spend(bits * bits / bits_squared_of_a_unit);
}

std::string units_text(std::int64_t units) {
  constexpr std::int64_t million = 1'000'000;
  return units >= million && units % million == 0 ? std::to_string(units / million) + " million"
                                                  : std::to_string(units);
}

}  // namespace lockstep
