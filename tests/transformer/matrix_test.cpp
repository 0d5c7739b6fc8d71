// SPDX-License-Identifier: Apache-2.0
#include "src/transformer/matrix.h"

#include <cmath>

#include "src/transformer/perturbed.h"
#include "tests/catch.h"

namespace lockstep::transformer {

namespace {

/// Small whole numbers, whose products and sums are exact.
template <class Number>
Matrix<Number> whole_numbers(Index rows, Index columns, int seed) {
  Matrix<Number> matrix(rows, columns);
  for (Index i = 0; i < matrix.size(); ++i)
    matrix(i) = Number(static_cast<double>((seed + 7 * i * i + 3 * i) % 11 - 5));
  return matrix;
}

template <class Number>
bool multiplies(Index rows, Index inner, Index columns) {
  const Matrix<Number> a = whole_numbers<Number>(rows, inner, 1), b = whole_numbers<Number>(inner, columns, 2);
  Matrix<Number> expected(rows, columns);
  for (Index i = 0; i < rows; ++i) {
    for (Index j = 0; j < columns; ++j) {
      for (Index k = 0; k < inner; ++k) expected(i, j) = expected(i, j) + a(i, k) * b(k, j);
    }
  }
  return a * b == expected && a * transposed(transpose(b)) == expected && transposed(transpose(a)) * b == expected;
}

}  // namespace

TEST_CASE("a product is the sum over the inner dimension, whichever factor is transposed") {
  for (const Index rows : {0, 1, 2, 5, 33}) {
    for (const Index inner : {0, 1, 3, 40}) {
      for (const Index columns : {0, 1, 4, 37}) {
        INFO(rows << " x " << inner << " times " << inner << " x " << columns);
        CHECK(multiplies<double>(rows, inner, columns));
        CHECK(multiplies<long double>(rows, inner, columns));
      }
    }
  }
}

TEST_CASE("a product of perturbed numbers rounds what a sum of products rounds") {
  const Matrix<Perturbed> a(2, 3, Perturbed(1)), b(3, 4, Perturbed(1));
  const std::int64_t rounded = 2 * 4 * (3 + 2);  // of each element three products and two sums
  Perturbed::seed(1);
  const Matrix<Perturbed> product = a * b;
  CHECK(Perturbed::operations() == rounded);
  CHECK(product(0).value() != 3);
  CHECK(std::abs(product(0).value() - 3) < 16 * Perturbed::step);
  Perturbed::seed(1);
  CHECK((a * transposed(transpose(b))).size() == 8);
  CHECK(Perturbed::operations() == rounded);
  Perturbed::seed(1);
  CHECK((transposed(transpose(a)) * b).size() == 8);
  CHECK(Perturbed::operations() == rounded);
}

TEST_CASE("parts of a matrix are read and written where they are") {
  const Real matrix = {{1, 2, 3, 4}, {5, 6, 7, 8}, {9, 10, 11, 12}};
  CHECK(rows_of(matrix, 1, 2) == Real{{5, 6, 7, 8}, {9, 10, 11, 12}});
  CHECK(columns_of(matrix, 1, 2) == Real{{2, 3}, {6, 7}, {10, 11}});
  CHECK(block_of(matrix, 1, 2, 2, 1) == Real{{7}, {11}});
  CHECK(rows_at(matrix, {2, 0, 2}) == Real{{9, 10, 11, 12}, {1, 2, 3, 4}, {9, 10, 11, 12}});
  CHECK(repeated(rows_of(matrix, 0, 1), 2) == Real{{1, 2, 3, 4}, {1, 2, 3, 4}});
  CHECK(reshaped(rows_of(matrix, 0, 2), 4, 2) == Real{{1, 2}, {3, 4}, {5, 6}, {7, 8}});
  CHECK(transpose(matrix) == Real{{1, 5, 9}, {2, 6, 10}, {3, 7, 11}, {4, 8, 12}});

  Real written(3, 3);
  written.set_rows(1, Real{{1, 2, 3}});
  CHECK(written == Real{{0, 0, 0}, {1, 2, 3}, {0, 0, 0}});
  written.set_columns(1, Real{{4, 5}, {6, 7}, {8, 9}});
  CHECK(written == Real{{0, 4, 5}, {1, 6, 7}, {0, 8, 9}});
  written.add_to_columns(2, Real{{1}, {1}, {1}});
  CHECK(written == Real{{0, 4, 6}, {1, 6, 8}, {0, 8, 10}});
  written.add_to_block(1, 0, Real{{10, 10}});
  CHECK(written == Real{{0, 4, 6}, {11, 16, 8}, {0, 8, 10}});
  written.set_rows({2, 0}, Real{{1, 1, 1}, {2, 2, 2}});
  CHECK(written == Real{{2, 2, 2}, {11, 16, 8}, {1, 1, 1}});
  written.row(0) += 2 * written.row(2);
  CHECK(written.row(0)(1) == 4);
}

TEST_CASE("sums and factors of rows and columns") {
  const Real matrix = {{1, -2, 3}, {4, 5, -6}};
  CHECK(column_sums(matrix) == Real{{5, 3, -3}});
  CHECK(row_sums(matrix) == Real{{2}, {3}});
  CHECK(row_means(matrix) == Real{{2.0 / 3}, {1}});
  CHECK(row_maxima(matrix) == Real{{3}, {5}});
  CHECK(row_dots(matrix, matrix) == Real{{14}, {77}});
  CHECK(scale_rows(matrix, Real{{2}, {3}}) == Real{{2, -4, 6}, {12, 15, -18}});
  CHECK(scale_columns(matrix, Real{{1, 2, 3}}) == Real{{1, -4, 9}, {4, 10, -18}});
  CHECK(hadamard(matrix, matrix) == Real{{1, 4, 9}, {16, 25, 36}});
  CHECK(maximum(matrix, Real(2, 3)) == Real{{1, 0, 3}, {4, 5, 0}});
  Real sum = matrix;
  add_to_rows(sum, Real{{1, 2, 3}});
  CHECK(sum == Real{{2, 0, 6}, {5, 7, -3}});
  subtract_from_columns(sum, Real{{1}, {2}});
  CHECK(sum == Real{{1, -1, 5}, {3, 5, -5}});
  const Real back = logarithm(exponential(matrix));
  for (Index i = 0; i < matrix.size(); ++i) CHECK(std::abs(back(i) - matrix(i)) < 1e-14);
}

}  // namespace lockstep::transformer
