// SPDX-License-Identifier: Apache-2.0
#include "src/transformer/generator.h"

#include <cmath>

namespace lockstep::transformer {

namespace {

/// The output function of SplitMix64 (G. Steele, D. Lea, C. Flood, 2014), a bijection of 64-bit words.
std::uint64_t mix(std::uint64_t word) {
  word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9;
  word = (word ^ (word >> 27)) * 0x94d049bb133111eb;
  return word ^ (word >> 31);
}

bool ends_with(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

}  // namespace

Generator::Generator(std::uint64_t seed, std::string_view stream) : key_(mix(seed + 0x9e3779b97f4a7c15)) {
  for (const char letter : stream) key_ = mix(key_ ^ static_cast<unsigned char>(letter)) + 0x9e3779b97f4a7c15;
}

std::uint64_t Generator::bits(std::uint64_t index) const { return mix(key_ ^ mix((index + 1) * 0x9e3779b97f4a7c15)); }

double Generator::uniform(std::uint64_t index) const { return static_cast<double>(bits(index) >> 11) * 0x1p-52 - 1; }

InitialValues::InitialValues(const TensorShape& shape, std::uint64_t seed)
    : generator_(seed, shape.name), columns_(shape.columns) {
  if (ends_with(shape.name, "norm.weight")) {
    centre_ = 1;
    gain_ = 0.25;
  } else if (ends_with(shape.name, ".bias")) {
    gain_ = 0.25;
  } else if (shape.name.find("embedding") == std::string::npos) {
    // Uniform values have variance 1/3. A router is made sharper, so that its choices are far from ties.
    gain_ = ends_with(shape.name, "router.weight") ? 3 : 1;
    spread_ = std::sqrt(3.0 / static_cast<double>(shape.columns));
  }
}

double InitialValues::operator()(std::int64_t row, std::int64_t column) const {
  return centre_ + gain_ * generator_.uniform(static_cast<std::uint64_t>(row * columns_ + column)) * spread_;
}

Tensors<double> initial_parameters(const Config& config, std::uint64_t seed) {
  Tensors<double> parameters;
  for (const TensorShape& shape : tensor_shapes(config)) {
    const InitialValues value(shape, seed);
    Real tensor(shape.rows, shape.columns);
    for (Index row = 0; row < shape.rows; ++row) {
      for (Index column = 0; column < shape.columns; ++column) tensor(row, column) = value(row, column);
    }
    parameters.emplace(shape.name, std::move(tensor));
  }
  return parameters;
}

std::vector<int> random_tokens(const Config& config, std::uint64_t seed, std::uint64_t index, int count) {
  const Generator generator(seed, "tokens");
  std::vector<int> tokens;
  for (int i = 0; i < count; ++i) {
    const std::uint64_t word = generator.bits((index << 32) + static_cast<std::uint64_t>(i));
    tokens.push_back(static_cast<int>(word % static_cast<std::uint64_t>(config.vocab)));
  }
  return tokens;
}

}  // namespace lockstep::transformer
