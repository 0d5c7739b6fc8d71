// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

namespace lockstep {

/// A matrix, column after column.
struct Columnwise {
  std::size_t rows = 0, columns = 0;
  std::vector<double> elements;
};

/// The matrix that takes a vector to its least-squares coefficients. Nothing where the columns depend on each other:
/// where a pivot of the QR decomposition is no more than `threshold` of the largest. There are no more columns than
/// rows.
std::optional<Columnwise> pseudo_inverse(const Columnwise& matrix, double threshold);

}  // namespace lockstep
