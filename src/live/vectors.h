// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

namespace lockstep::live {

/// The sums of a sketch, or coefficients. Two that are added have as many elements.
using Vector = std::vector<double>;

void add(Vector& to, const Vector& what);
Vector difference(const Vector& a, const Vector& b);
Vector scaled(Vector vector, double factor);
/// The sum of the squares, which may overflow.
double energy(const Vector& vector);
/// The square root of that, which does not overflow on the way.
double length(const Vector& vector);
/// The largest absolute value; 0 where there is no element.
double largest(const Vector& vector);
bool is_zero(const Vector& vector);
/// No element is infinite or no number.
bool is_finite(const Vector& vector);

}  // namespace lockstep::live
