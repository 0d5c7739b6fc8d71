// SPDX-License-Identifier: Apache-2.0
#include "src/base/budget.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "src/base/allocations.h"

namespace lockstep {

namespace {

thread_local Budget* innermost = nullptr;
thread_local const Budget::Place* innermost_place = nullptr;

}  // namespace

OverBudget::OverBudget(const std::string& most, const std::string& place)
    : std::runtime_error("it would take more than " + most + (place.empty() ? "" : " in " + place)) {}

Budget::Budget(std::int64_t most, std::int64_t memory)
    : most_(most), memory_(memory), live_at_begin_(allocations_of_thread.live), outer_(innermost) {
  settle(0);
  innermost = this;
}

Budget::~Budget() {
  settle(0);
  innermost = outer_;
}

void Budget::settle(std::int64_t units) {
  units += std::exchange(allocations_of_thread.units, 0);
  for (Budget* budget = innermost; budget != nullptr; budget = budget->outer_) {
    const std::int64_t room = std::numeric_limits<std::int64_t>::max() - budget->spent_;
    budget->spent_ += units < room ? units : room;
  }
}

void Budget::spend(std::int64_t units) {
  settle(units);
  const auto place = [] {
    const Place* named = innermost_place;
    return named == nullptr ? "" : std::string(named->kind_) + " \"" + *named->name_ + "\"";
  };
  std::int64_t memory = std::numeric_limits<std::int64_t>::max();
  for (const Budget* budget = innermost; budget != nullptr; budget = budget->outer_) {
    if (budget->spent_ > budget->most_) throw OverBudget(units_text(budget->most_) + " units of work", place());
    memory = std::min(memory, budget->memory_);
    if (budget->outer_ == nullptr && allocations_of_thread.live - budget->live_at_begin_ > memory)
      throw OverBudget(std::to_string(memory / 1'000'000'000) + " GB of memory", place());
  }
}

Budget::Uncounted::Uncounted() {
  settle(0);
  suspended_ = std::exchange(innermost, nullptr);
  live_ = allocations_of_thread.live;
}

Budget::Uncounted::~Uncounted() {
  settle(0);
  innermost = suspended_;
  for (Budget* budget = innermost; budget != nullptr; budget = budget->outer_)
    budget->live_at_begin_ += allocations_of_thread.live - live_;
}

Budget::Place::Place(const char* kind, const std::string& name) : kind_(kind), name_(&name), outer_(innermost_place) {
  innermost_place = this;
}

Budget::Place::~Place() { innermost_place = outer_; }

void spend_on(const Rational& number) {
  if (number.to_int64()) return;
  const std::int64_t bits = std::max(number.numerator().bits(), number.denominator().bits());
  constexpr std::int64_t few = 64, bits_squared_of_a_unit = 10'000;
  if (bits > few) Budget::spend(bits * bits / bits_squared_of_a_unit);
}

std::string units_text(std::int64_t units) {
  constexpr std::int64_t million = 1'000'000;
  return units >= million && units % million == 0 ? std::to_string(units / million) + " million"
                                                  : std::to_string(units);
}

}  // namespace lockstep
