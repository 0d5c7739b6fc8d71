// SPDX-License-Identifier: Apache-2.0
#include "src/base/pseudo_inverse.h"

#include <Eigen/QR>

namespace lockstep {

// R⁻¹ Qᵀ of the first columns of Q, and the columns back in their order.
std::optional<Columnwise> pseudo_inverse(const Columnwise& matrix, double threshold) {
  const auto rows = static_cast<Eigen::Index>(matrix.rows), columns = static_cast<Eigen::Index>(matrix.columns);
  Eigen::ColPivHouseholderQR<Eigen::MatrixXd> qr(
      Eigen::Map<const Eigen::MatrixXd>(matrix.elements.data(), rows, columns));
  qr.setThreshold(threshold);
  if (qr.rank() < columns) return std::nullopt;
  const Eigen::MatrixXd thin = qr.householderQ() * Eigen::MatrixXd::Identity(rows, columns);
  const Eigen::MatrixXd solved =
      qr.matrixQR().topLeftCorner(columns, columns).triangularView<Eigen::Upper>().solve(thin.transpose());
  Columnwise inverse{matrix.columns, matrix.rows, std::vector<double>(matrix.elements.size())};
  Eigen::Map<Eigen::MatrixXd>(inverse.elements.data(), columns, rows) = qr.colsPermutation() * solved;
  return inverse;
}

}  // namespace lockstep
