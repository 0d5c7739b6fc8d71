// SPDX-License-Identifier: Apache-2.0
#include "src/live/explain.h"

#include "lockstep/sketch.h"
#include "tests/catch.h"
#include "tests/live/run_writer.h"

using namespace lockstep;
using live::Column;
using live::Explanation;
using live::Problem;

namespace {

constexpr int ranks = 4, micro_batches = 4, sums = 128;
constexpr std::size_t elements = 4096;

/// As a capture keeps it: of float64 with all digits.
live::Vector sketch_of(const std::vector<double>& values, Dtype dtype) {
  Sketch sketch(sums);
  sketch.add(values.data(), values.size(), 0);
  live::Vector row = sketch.values();
  if (dtype == Dtype::float64) return row;
  const auto [numbers, exponent] = test::shortened(row);
  for (std::size_t i = 0; i < row.size(); ++i) row[i] = std::ldexp(numbers[i], exponent);
  return row;
}

/// Gradients of ranks and micro-batches, and their sum as a reduction of one type rounds it.
struct Measured {
  Dtype dtype;
  std::vector<std::vector<double>> gradients;
  std::vector<Column> columns;

  Measured(Dtype type, std::uint64_t seed) : dtype(type) {
    for (int rank = 0; rank < ranks; ++rank) {
      for (int m = 0; m < micro_batches; ++m) {
        gradients.push_back(test::drawn(elements, 1000 * seed + gradients.size(), dtype));
        columns.push_back({rank, 0, m, {{rank, m}}, sketch_of(gradients.back(), dtype), dtype, Rational(1, ranks)});
      }
    }
  }

  Explanation explained(const std::vector<double>& coefficients) const {
    std::vector<double> sum(elements);
    for (std::size_t j = 0; j < gradients.size(); ++j) {
      for (std::size_t i = 0; i < elements; ++i)
        sum[i] = test::rounded(sum[i] + test::rounded(coefficients[j] * gradients[j][i], dtype), dtype);
    }
    Problem problem;
    for (const Column& column : columns) problem.columns.push_back(&column);
    problem.result = sketch_of(sum, dtype);
    problem.result_dtype = problem.coarsest = dtype;
    problem.elements = elements;
    live::DesignCache cache;
    return live::explain(
        problem, [](int) { return std::nullopt; }, cache);
  }

  /// Whether a factor on all contributions, or on those of the last rank, is noticed.
  bool notices(double factor, bool of_one_rank) const {
    std::vector<double> coefficients;
    coefficients.reserve(columns.size());
    for (const Column& column : columns)
      coefficients.push_back((of_one_rank && column.rank != ranks - 1 ? 1 : factor) / ranks);
    const Explanation found = explained(coefficients);
    CHECK(found.explained);
    return !found.right;
  }
};

/// The smallest power of two d for which a factor 1 + d is noticed with every seed, and every larger one too.
double smallest(Dtype dtype, bool of_one_rank, int seeds) {
  double found = 1;
  std::vector<Measured> measured;
  measured.reserve(static_cast<std::size_t>(seeds));
  for (int seed = 0; seed < seeds; ++seed) measured.emplace_back(dtype, static_cast<std::uint64_t>(seed));
  for (double d = 0.5; d > 0x1p-40; d /= 2) {
    for (const Measured& one : measured) {
      if (!one.notices(1 + d, of_one_rank)) return found;
    }
    found = d;
  }
  return found;
}

}  // namespace

TEST_CASE("the smallest wrong factors that are found are those of docs/verify.md, and right sums are right") {
  // Of 4 ranks with 4 micro-batches, 4096 elements and 128 sums, kept as captures do; every product and every addition
  // rounded.
  CHECK(smallest(Dtype::bfloat16, false, 8) == 0x1p-8);
  CHECK(smallest(Dtype::bfloat16, true, 8) == 0x1p-6);
  CHECK(smallest(Dtype::float32, false, 8) == 0x1p-24);
  CHECK(smallest(Dtype::float32, true, 8) == 0x1p-22);
  for (std::uint64_t seed = 100; seed < 140; ++seed) {
    for (const Dtype dtype : {Dtype::bfloat16, Dtype::float32, Dtype::float64})
      CHECK_FALSE(Measured(dtype, seed).notices(1, false));
  }
}

TEST_CASE("a factor that the noise of the whole would hide is told from those of other ranks") {
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    std::vector<double> coefficients(16, 0.25);
    for (std::size_t j = 12; j < 16; ++j) coefficients[j] = 0.25 * (1 + 1.0 / 32);
    const Explanation found = Measured(Dtype::bfloat16, seed).explained(coefficients);
    CHECK(found.explained);
    CHECK_FALSE(found.uniform);
    CHECK(found.entered[0].exact == Rational(1, 4));
    CHECK(found.entered[0].value < found.entered[15].value);
  }
}

TEST_CASE("one element that is larger than all others together is no reason to see a wrong factor") {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    Measured measured(Dtype::bfloat16, seed);
    for (std::size_t j = 0; j < measured.gradients.size(); ++j) {
      for (const std::size_t i : {std::size_t{17}, std::size_t{900}})
        measured.gradients[j][i] = test::rounded(measured.gradients[j][i] * 4000, Dtype::bfloat16);
      measured.columns[j].values = sketch_of(measured.gradients[j], measured.dtype);
    }
    CHECK_FALSE(measured.notices(1, false));
    CHECK(measured.notices(1.5, true));
  }
}

TEST_CASE("sizes at the ends of float64 are no obstacle") {
  for (const double scale : {1e-290, 1e-150, 1e150, 1e290}) {
    Measured measured(Dtype::float64, 1);
    for (std::size_t j = 0; j < measured.gradients.size(); ++j) {
      for (double& value : measured.gradients[j]) value *= scale;
      measured.columns[j].values = sketch_of(measured.gradients[j], measured.dtype);
    }
    CHECK_FALSE(measured.notices(1, false));
    CHECK(measured.notices(2, false));
  }
}

TEST_CASE("with all columns one and the same but for rounding, only their common factor is said") {
  Measured measured(Dtype::float32, 1);
  for (std::size_t j = 1; j < measured.gradients.size(); ++j) {
    measured.gradients[j] = measured.gradients[0];
    for (double& value : measured.gradients[j]) value *= 2;
    measured.columns[j].values = sketch_of(measured.gradients[j], measured.dtype);
  }
  CHECK_FALSE(measured.notices(1, false));
  const Explanation found = measured.explained(std::vector<double>(16, 0.5));
  CHECK(found.explained);
  CHECK_FALSE(found.right);
  CHECK_FALSE(found.told_apart);
}
