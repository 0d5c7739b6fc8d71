// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <type_traits>
#include <vector>

#include "kernels/numbers.h"
#include "lockstep/numeric.h"

namespace lockstep::test {

/// How the host engine stores what a kernel stores as Stored.
template <class Stored>
using HostValue = std::conditional_t<std::is_same_v<Stored, kernels::Residue>, std::uint64_t,
                                     std::conditional_t<std::is_same_v<Stored, double>, double, float>>;

template <class Stored>
constexpr Arithmetic arithmetic_of() {
  switch (kernels::Number<Stored>::domain) {
    case kernels::Domain::float32:
      return Arithmetic::float32;
    case kernels::Domain::float64:
      return Arithmetic::float64;
    case kernels::Domain::bfloat16:
      return Arithmetic::bfloat16;
    case kernels::Domain::float16:
      return Arithmetic::float16;
    default:
      return Arithmetic::prime61;
  }
}

/// Whole numbers that every arithmetic holds, and whose sums it holds.
template <class Stored>
std::vector<HostValue<Stored>> small_numbers(std::size_t count, unsigned seed) {
  std::vector<HostValue<Stored>> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    const auto drawn = static_cast<int>(kernels::splitmix(seed, i) % 15);
    values[i] = std::is_same_v<Stored, kernels::Residue> ? static_cast<HostValue<Stored>>(drawn)
                                                         : static_cast<HostValue<Stored>>(drawn - 7);
  }
  return values;
}

template <class Stored>
std::vector<Stored> stored(const std::vector<HostValue<Stored>>& values) {
  std::vector<Stored> result;
  bool lost = false;
  for (const auto value : values) result.push_back(kernels::Number<Stored>::store(value, lost));
  return result;
}

}  // namespace lockstep::test
