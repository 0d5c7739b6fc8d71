// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <initializer_list>
#include <map>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

/// Matrices, their products and sums. What they compute with, Eigen, only matrix.cpp sees: its templates would take
/// most of the time in which the sources here are compiled.
namespace lockstep::transformer {

using Index = std::ptrdiff_t;

/// A row of a matrix, or a part of one, to read. The matrix must outlive it.
template <class Number>
class ConstRow {
 public:
  ConstRow(const Number* first, Index size) : first_(first), size_(size) {}
  Index size() const { return size_; }
  const Number& operator()(Index i) const { return first_[i]; }
  const Number* begin() const { return first_; }
  const Number* end() const { return first_ + size_; }

 private:
  const Number* first_;
  Index size_;
};

/// A row times a number.
template <class Number>
struct ScaledRow {
  Number factor;
  ConstRow<Number> row;
};
template <class Number>
ScaledRow<Number> operator*(const std::type_identity_t<Number>& factor, const ConstRow<Number>& row) {
  return {factor, row};
}

/// A row of a matrix to write. What is assigned or added has as many elements.
template <class Number>
class Row : public ConstRow<Number> {
 public:
  Row(Number* first, Index size) : ConstRow<Number>(first, size), first_(first) {}
  Row(const Row&) = default;
  using ConstRow<Number>::operator();
  Number& operator()(Index i) { return first_[i]; }
  Number* begin() { return first_; }
  Number* end() { return first_ + this->size(); }

  Row& operator=(const ConstRow<Number>& other) {
    for (Index i = 0; i < this->size(); ++i) first_[i] = other(i);
    return *this;
  }
  Row& operator=(const Row& other) { return *this = static_cast<const ConstRow<Number>&>(other); }
  Row& operator=(const ScaledRow<Number>& other) {
    for (Index i = 0; i < this->size(); ++i) first_[i] = other.factor * other.row(i);
    return *this;
  }
  Row& operator+=(const ConstRow<Number>& other) {
    for (Index i = 0; i < this->size(); ++i) first_[i] += other(i);
    return *this;
  }
  Row& operator+=(const ScaledRow<Number>& other) {
    for (Index i = 0; i < this->size(); ++i) first_[i] += other.factor * other.row(i);
    return *this;
  }
  Row& operator*=(const Number& factor) {
    for (Index i = 0; i < this->size(); ++i) first_[i] *= factor;
    return *this;
  }
  Row& operator/=(const Number& divisor) {
    for (Index i = 0; i < this->size(); ++i) first_[i] /= divisor;
    return *this;
  }

 private:
  Number* first_;
};

/// Tokens are rows, features are columns. Row-major, as the frameworks store tensors. Number is double, long double or
/// Perturbed. Sizes that do not fit each other are undefined, as are places outside.
template <class Number>
class Matrix {
 public:
  Matrix() = default;
  /// Of zeros.
  Matrix(Index rows, Index cols) : Matrix(rows, cols, Number(0)) {}
  /// Every element is `value`.
  Matrix(Index rows, Index cols, Number value)
      : rows_(rows), cols_(cols), elements_(static_cast<std::size_t>(rows * cols), value) {}
  Matrix(std::initializer_list<std::initializer_list<Number>> rows);

  Index rows() const { return rows_; }
  Index cols() const { return cols_; }
  Index size() const { return rows_ * cols_; }
  /// Row after row.
  const Number* data() const { return elements_.data(); }
  Number* data() { return elements_.data(); }
  const Number& operator()(Index row, Index column) const { return data()[row * cols_ + column]; }
  Number& operator()(Index row, Index column) { return data()[row * cols_ + column]; }
  /// The same by place in data().
  const Number& operator()(Index i) const { return data()[i]; }
  Number& operator()(Index i) { return data()[i]; }
  const Number* begin() const { return data(); }
  const Number* end() const { return data() + size(); }
  Number* begin() { return data(); }
  Number* end() { return data() + size(); }

  ConstRow<Number> row(Index row) const { return {data() + row * cols_, cols_}; }
  Row<Number> row(Index row) { return {data() + row * cols_, cols_}; }
  /// `count` elements of a row from column `begin` on.
  ConstRow<Number> segment(Index row, Index begin, Index count) const { return {data() + row * cols_ + begin, count}; }
  Row<Number> segment(Index row, Index begin, Index count) { return {data() + row * cols_ + begin, count}; }

  /// Writes `part`, or adds it, from row or column `begin` on.
  void set_rows(Index begin, const Matrix& part);
  void set_columns(Index begin, const Matrix& part);
  void add_to_columns(Index begin, const Matrix& part);
  void add_to_block(Index row, Index column, const Matrix& part);
  /// Writes row i of `part` to row `rows[i]`.
  void set_rows(const std::vector<Index>& rows, const Matrix& part);

  Matrix& operator+=(const Matrix& other);
  Matrix& operator-=(const Matrix& other);
  Matrix& operator*=(const Number& factor);
  bool operator==(const Matrix& other) const = default;

 private:
  Index rows_ = 0, cols_ = 0;
  std::vector<Number> elements_;
};

/// Parameters or gradients by name. A tensor of one dimension is a matrix of one row.
template <class Number>
using Tensors = std::map<std::string, Matrix<Number>>;

using Real = Matrix<double>;

/// A matrix with rows and columns exchanged, as a factor of a product. The matrix must outlive it.
template <class Number>
struct Transposed {
  const Matrix<Number>& matrix;
};
template <class Number>
Transposed<Number> transposed(const Matrix<Number>& matrix) {
  return {matrix};
}
/// The same as a matrix of its own.
template <class Number>
Matrix<Number> transpose(const Matrix<Number>& matrix);

template <class Number>
Matrix<Number> operator*(const Matrix<Number>& a, const Matrix<Number>& b);
template <class Number>
Matrix<Number> operator*(const Matrix<Number>& a, const Transposed<Number>& b);
template <class Number>
Matrix<Number> operator*(const Transposed<Number>& a, const Matrix<Number>& b);

template <class Number>
Matrix<Number> operator+(Matrix<Number> a, const Matrix<Number>& b) {
  a += b;
  return a;
}
template <class Number>
Matrix<Number> operator-(Matrix<Number> a, const Matrix<Number>& b) {
  a -= b;
  return a;
}
template <class Number>
Matrix<Number> operator*(Matrix<Number> matrix, const std::type_identity_t<Number>& factor) {
  matrix *= factor;
  return matrix;
}
/// Element by element.
template <class Number>
Matrix<Number> hadamard(Matrix<Number> a, const Matrix<Number>& b);
template <class Number>
Matrix<Number> maximum(Matrix<Number> a, const Matrix<Number>& b);
/// The function of every element.
template <class Number, class Function>
Matrix<Number> map(Matrix<Number> matrix, const Function& function) {
  for (Number& element : matrix) element = function(element);
  return matrix;
}
/// e to the power of every element. Of minus infinity it is not 0 but the smallest number.
Real exponential(Real matrix);
/// The natural logarithm of every element.
Real logarithm(Real matrix);

/// The sum of the products of the elements of two rows.
template <class Number>
Number dot(const ConstRow<Number>& a, const ConstRow<Number>& b);
template <class Number>
Number sum(const ConstRow<Number>& row);

/// A row: the sum of each column.
template <class Number>
Matrix<Number> column_sums(const Matrix<Number>& matrix);
/// Columns, with an element for each row: its sum; its mean; its largest element; its dot product with that of `b`.
Real row_sums(const Real& matrix);
Real row_means(const Real& matrix);
Real row_maxima(const Real& matrix);
Real row_dots(const Real& a, const Real& b);

/// `row` added to each row of `matrix`.
template <class Number>
void add_to_rows(Matrix<Number>& matrix, const Matrix<Number>& row);
/// `column` taken from each column of `matrix`.
void subtract_from_columns(Real& matrix, const Real& column);
/// Each row times its element of a column; each column times its element of a row.
Real scale_rows(Real matrix, const Real& column);
Real scale_columns(Real matrix, const Real& row);

/// Some rows or columns, from `begin` on.
template <class Number>
Matrix<Number> rows_of(const Matrix<Number>& matrix, Index begin, Index count);
template <class Number>
Matrix<Number> columns_of(const Matrix<Number>& matrix, Index begin, Index count);
Real block_of(const Real& matrix, Index row, Index column, Index rows, Index columns);
/// Row `rows[i]` of `matrix` is row i of the result.
template <class Number>
Matrix<Number> rows_at(const Matrix<Number>& matrix, const std::vector<Index>& rows);
/// All rows so many times, one copy below the other.
Real repeated(const Real& matrix, int times);
/// The same elements, row after row, in rows of another length.
Real reshaped(const Real& matrix, Index rows, Index columns);

/// Every element as another type of number.
template <class To, class From>
Matrix<To> cast(const Matrix<From>& matrix) {
  Matrix<To> result(matrix.rows(), matrix.cols());
  for (Index i = 0; i < matrix.size(); ++i) result(i) = static_cast<To>(matrix(i));
  return result;
}

}  // namespace lockstep::transformer
