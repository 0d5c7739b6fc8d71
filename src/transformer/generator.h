// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "src/transformer/config.h"
#include "src/transformer/matrix.h"

namespace lockstep::transformer {

/// Counter-based: a value depends on the seed, the stream's name and the index alone, never on what was drawn before,
/// so that every rank can make its own piece.
class Generator {
 public:
  Generator(std::uint64_t seed, std::string_view stream);
  std::uint64_t bits(std::uint64_t index) const;
  /// In [-1, 1), a multiple of 2^-52.
  double uniform(std::uint64_t index) const;

 private:
  std::uint64_t key_ = 0;
};

/// The elements of the parameter `shape`: norms near one, biases near zero, weights of linears such that a layer keeps
/// the size of what it gets.
class InitialValues {
 public:
  InitialValues(const TensorShape& shape, std::uint64_t seed);
  double operator()(std::int64_t row, std::int64_t column) const;

 private:
  Generator generator_;
  std::int64_t columns_;
  double centre_ = 0, gain_ = 1, spread_ = 1;
};
/// All parameters of one device.
Tensors<double> initial_parameters(const Config& config, std::uint64_t seed);
/// `count` tokens of the sequence `index`.
std::vector<int> random_tokens(const Config& config, std::uint64_t seed, std::uint64_t index, int count);

}  // namespace lockstep::transformer
