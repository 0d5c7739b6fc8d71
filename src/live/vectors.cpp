// SPDX-License-Identifier: Apache-2.0
#include "src/live/vectors.h"

#include <algorithm>
#include <cmath>

namespace lockstep::live {

void add(Vector& to, const Vector& what) {
  for (std::size_t i = 0; i < to.size(); ++i) to[i] += what[i];
}

Vector difference(const Vector& a, const Vector& b) {
  Vector result = a;
  for (std::size_t i = 0; i < result.size(); ++i) result[i] -= b[i];
  return result;
}

Vector scaled(Vector vector, double factor) {
  for (double& element : vector) element *= factor;
  return vector;
}

double energy(const Vector& vector) {
  double sum = 0;
  for (const double element : vector) sum += element * element;
  return sum;
}

double length(const Vector& vector) {
  const double scale = largest(vector);
  if (!(scale > 0) || !std::isfinite(scale)) return scale;
  double sum = 0;
  for (const double element : vector) sum += (element / scale) * (element / scale);
  return scale * std::sqrt(sum);
}

double largest(const Vector& vector) {
  double found = 0;
  for (const double element : vector) {
    // What is no number is passed on.
    if (!(std::abs(element) <= found)) found = std::abs(element);
    if (std::isnan(found)) break;
  }
  return found;
}

bool is_zero(const Vector& vector) {
  return std::all_of(vector.begin(), vector.end(), [](double element) { return element == 0; });
}

bool is_finite(const Vector& vector) {
  return std::all_of(vector.begin(), vector.end(), [](double element) { return std::isfinite(element); });
}

}  // namespace lockstep::live
