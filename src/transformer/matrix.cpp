// SPDX-License-Identifier: Apache-2.0
#include "src/transformer/matrix.h"

#include <Eigen/Core>
#include <algorithm>

#include "src/base/at.h"
#include "src/transformer/perturbed.h"

namespace lockstep::transformer {

namespace {

using EigenMatrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

Eigen::Map<const EigenMatrix> view(const Real& matrix) { return {matrix.data(), matrix.rows(), matrix.cols()}; }
Eigen::Map<EigenMatrix> view(Real& matrix) { return {matrix.data(), matrix.rows(), matrix.cols()}; }
Eigen::Map<const Eigen::VectorXd> view(const ConstRow<double>& row) { return {row.begin(), row.size()}; }

}  // namespace

template <class Number>
Matrix<Number>::Matrix(std::initializer_list<std::initializer_list<Number>> rows)
    : rows_(static_cast<Index>(rows.size())), cols_(rows.size() == 0 ? 0 : static_cast<Index>(rows.begin()->size())) {
  for (const auto& row : rows) elements_.insert(elements_.end(), row.begin(), row.end());
}

template <class Number>
void Matrix<Number>::set_rows(Index begin, const Matrix& part) {
  std::copy(part.begin(), part.end(), data() + begin * cols_);
}

template <class Number>
void Matrix<Number>::set_columns(Index begin, const Matrix& part) {
  for (Index i = 0; i < rows_; ++i) segment(i, begin, part.cols()) = part.row(i);
}

template <class Number>
void Matrix<Number>::add_to_columns(Index begin, const Matrix& part) {
  add_to_block(0, begin, part);
}

template <class Number>
void Matrix<Number>::add_to_block(Index row, Index column, const Matrix& part) {
  for (Index i = 0; i < part.rows(); ++i) segment(row + i, column, part.cols()) += part.row(i);
}

template <class Number>
void Matrix<Number>::set_rows(const std::vector<Index>& rows, const Matrix& part) {
  for (std::size_t i = 0; i < rows.size(); ++i) row(rows[i]) = part.row(static_cast<Index>(i));
}

template <class Number>
Matrix<Number>& Matrix<Number>::operator+=(const Matrix& other) {
  for (Index i = 0; i < size(); ++i) (*this)(i) += other(i);
  return *this;
}

template <class Number>
Matrix<Number>& Matrix<Number>::operator-=(const Matrix& other) {
  for (Index i = 0; i < size(); ++i) (*this)(i) -= other(i);
  return *this;
}

template <class Number>
Matrix<Number>& Matrix<Number>::operator*=(const Number& factor) {
  for (Number& element : *this) element *= factor;
  return *this;
}

template <class Number>
Matrix<Number> transpose(const Matrix<Number>& matrix) {
  Matrix<Number> result(matrix.cols(), matrix.rows());
  for (Index i = 0; i < matrix.rows(); ++i) {
    for (Index j = 0; j < matrix.cols(); ++j) result(j, i) = matrix(i, j);
  }
  return result;
}

// Products of any numbers are plain sums, those of float64 are Eigen's.
template <class Number>
Matrix<Number> operator*(const Matrix<Number>& a, const Matrix<Number>& b) {
  Matrix<Number> result(a.rows(), b.cols());
  for (Index i = 0; i < a.rows(); ++i) {
    for (Index k = 0; k < a.cols(); ++k) result.row(i) += a(i, k) * b.row(k);
  }
  return result;
}
template <>
Real operator*(const Real& a, const Real& b) {
  Real result(a.rows(), b.cols());
  view(result).noalias() = view(a) * view(b);
  return result;
}

template <class Number>
Matrix<Number> operator*(const Matrix<Number>& a, const Transposed<Number>& b) {
  Matrix<Number> result(a.rows(), b.matrix.rows());
  for (Index i = 0; i < a.rows(); ++i) {
    for (Index j = 0; j < b.matrix.rows(); ++j) result(i, j) = dot(a.row(i), b.matrix.row(j));
  }
  return result;
}
template <>
Real operator*(const Real& a, const Transposed<double>& b) {
  Real result(a.rows(), b.matrix.rows());
  view(result).noalias() = view(a) * view(b.matrix).transpose();
  return result;
}

template <class Number>
Matrix<Number> operator*(const Transposed<Number>& a, const Matrix<Number>& b) {
  Matrix<Number> result(a.matrix.cols(), b.cols());
  for (Index k = 0; k < b.rows(); ++k) {
    for (Index i = 0; i < a.matrix.cols(); ++i) result.row(i) += a.matrix(k, i) * b.row(k);
  }
  return result;
}
template <>
Real operator*(const Transposed<double>& a, const Real& b) {
  Real result(a.matrix.cols(), b.cols());
  view(result).noalias() = view(a.matrix).transpose() * view(b);
  return result;
}

template <class Number>
Matrix<Number> hadamard(Matrix<Number> a, const Matrix<Number>& b) {
  for (Index i = 0; i < a.size(); ++i) a(i) *= b(i);
  return a;
}

template <class Number>
Matrix<Number> maximum(Matrix<Number> a, const Matrix<Number>& b) {
  for (Index i = 0; i < a.size(); ++i) a(i) = std::max(a(i), b(i));
  return a;
}

Real exponential(Real matrix) {
  view(matrix) = view(matrix).array().exp();
  return matrix;
}

Real logarithm(Real matrix) {
  view(matrix) = view(matrix).array().log();
  return matrix;
}

template <class Number>
Number dot(const ConstRow<Number>& a, const ConstRow<Number>& b) {
  Number result(0);
  for (Index i = 0; i < a.size(); ++i) result += a(i) * b(i);
  return result;
}
template <>
double dot(const ConstRow<double>& a, const ConstRow<double>& b) {
  return view(a).dot(view(b));
}

template <class Number>
Number sum(const ConstRow<Number>& row) {
  Number result(0);
  for (const Number& element : row) result += element;
  return result;
}
template <>
double sum(const ConstRow<double>& row) {
  return view(row).sum();
}

template <class Number>
Matrix<Number> column_sums(const Matrix<Number>& matrix) {
  Matrix<Number> result(1, matrix.cols());
  for (Index i = 0; i < matrix.rows(); ++i) result.row(0) += matrix.row(i);
  return result;
}

template <>
Real column_sums(const Real& matrix) {
  Real result(1, matrix.cols());
  view(result) = view(matrix).colwise().sum();
  return result;
}

Real row_sums(const Real& matrix) {
  Real result(matrix.rows(), 1);
  for (Index i = 0; i < matrix.rows(); ++i) result(i) = sum(matrix.row(i));
  return result;
}

Real row_means(const Real& matrix) {
  Real result = row_sums(matrix);
  for (double& element : result) element /= static_cast<double>(matrix.cols());
  return result;
}

Real row_maxima(const Real& matrix) {
  Real result(matrix.rows(), 1);
  for (Index i = 0; i < matrix.rows(); ++i) result(i) = *std::max_element(matrix.row(i).begin(), matrix.row(i).end());
  return result;
}

Real row_dots(const Real& a, const Real& b) {
  Real result(a.rows(), 1);
  for (Index i = 0; i < a.rows(); ++i) result(i) = dot(a.row(i), b.row(i));
  return result;
}

template <class Number>
void add_to_rows(Matrix<Number>& matrix, const Matrix<Number>& row) {
  for (Index i = 0; i < matrix.rows(); ++i) matrix.row(i) += row.row(0);
}

void subtract_from_columns(Real& matrix, const Real& column) {
  for (Index i = 0; i < matrix.rows(); ++i) {
    for (double& element : matrix.row(i)) element -= column(i);
  }
}

Real scale_rows(Real matrix, const Real& column) {
  for (Index i = 0; i < matrix.rows(); ++i) matrix.row(i) *= column(i);
  return matrix;
}

Real scale_columns(Real matrix, const Real& row) {
  for (Index i = 0; i < matrix.rows(); ++i) {
    for (Index j = 0; j < matrix.cols(); ++j) matrix(i, j) *= row(j);
  }
  return matrix;
}

template <class Number>
Matrix<Number> rows_of(const Matrix<Number>& matrix, Index begin, Index count) {
  Matrix<Number> result(count, matrix.cols());
  std::copy_n(matrix.data() + begin * matrix.cols(), result.size(), result.data());
  return result;
}

template <class Number>
Matrix<Number> columns_of(const Matrix<Number>& matrix, Index begin, Index count) {
  Matrix<Number> result(matrix.rows(), count);
  for (Index i = 0; i < matrix.rows(); ++i) result.row(i) = matrix.segment(i, begin, count);
  return result;
}

Real block_of(const Real& matrix, Index row, Index column, Index rows, Index columns) {
  Real result(rows, columns);
  for (Index i = 0; i < rows; ++i) result.row(i) = matrix.segment(row + i, column, columns);
  return result;
}

template <class Number>
Matrix<Number> rows_at(const Matrix<Number>& matrix, const std::vector<Index>& rows) {
  Matrix<Number> result(static_cast<Index>(rows.size()), matrix.cols());
  for (Index i = 0; i < result.rows(); ++i) result.row(i) = matrix.row(rows[at(i)]);
  return result;
}

Real repeated(const Real& matrix, int times) {
  Real result(times * matrix.rows(), matrix.cols());
  for (int i = 0; i < times; ++i) result.set_rows(i * matrix.rows(), matrix);
  return result;
}

Real reshaped(const Real& matrix, Index rows, Index columns) {
  Real result(rows, columns);
  std::copy(matrix.begin(), matrix.end(), result.begin());
  return result;
}

// NOLINTBEGIN(bugprone-macro-parentheses): a type has none
#define LOCKSTEP_MATRICES_OF(Number)                                                   \
  template class Matrix<Number>;                                                       \
  template Matrix<Number> transpose(const Matrix<Number>&);                            \
  template Matrix<Number> operator*(const Matrix<Number>&, const Matrix<Number>&);     \
  template Matrix<Number> operator*(const Matrix<Number>&, const Transposed<Number>&); \
  template Matrix<Number> operator*(const Transposed<Number>&, const Matrix<Number>&); \
  template Matrix<Number> hadamard(Matrix<Number>, const Matrix<Number>&);             \
  template Matrix<Number> maximum(Matrix<Number>, const Matrix<Number>&);              \
  template Number dot(const ConstRow<Number>&, const ConstRow<Number>&);               \
  template Number sum(const ConstRow<Number>&);                                        \
  template Matrix<Number> column_sums(const Matrix<Number>&);                          \
  template void add_to_rows(Matrix<Number>&, const Matrix<Number>&);                   \
  template Matrix<Number> rows_of(const Matrix<Number>&, Index, Index);                \
  template Matrix<Number> columns_of(const Matrix<Number>&, Index, Index);             \
  template Matrix<Number> rows_at(const Matrix<Number>&, const std::vector<Index>&)
// NOLINTEND(bugprone-macro-parentheses)

LOCKSTEP_MATRICES_OF(double);
LOCKSTEP_MATRICES_OF(long double);
LOCKSTEP_MATRICES_OF(Perturbed);

#undef LOCKSTEP_MATRICES_OF

}  // namespace lockstep::transformer
