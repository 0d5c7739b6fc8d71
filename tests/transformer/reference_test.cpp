// SPDX-License-Identifier: Apache-2.0
#include "src/transformer/reference.h"

#include <algorithm>
#include <cmath>

#include "src/transformer/generator.h"
#include "src/transformer/rounding.h"
#include "tests/cases.h"
#include "tests/catch.h"
#include "tests/transformer/pairwise.h"

using namespace lockstep::transformer;

namespace {

constexpr std::uint64_t seed = 20;

template <class Number>
Number largest(const Matrix<Number>& matrix) {
  Number found = 0;
  for (const Number element : matrix) found = std::max(found, std::abs(element));
  return found;
}

/// The square root of the sum of the squares.
double length(const Real& matrix) { return std::sqrt(sum<double>(column_sums(hadamard(matrix, matrix)).row(0))); }

template <class Number>
Tensors<Number> parameters_of(const Config& config) {
  Tensors<Number> parameters;
  for (const auto& [name, tensor] : initial_parameters(config, seed)) parameters[name] = cast<Number>(tensor);
  return parameters;
}

Sequence small_sequence(const Config& config) {
  Sequence sequence;
  sequence.tokens = random_tokens(config, seed, 0, 6 + config.mtp_layers);
  sequence.weights = {0.25, 1, 0, 0.5, 1};  // one is masked
  if (config.mtp_layers > 0) sequence.mtp_weights = {0.125, 0, 0.25, 1, 0.5};
  if (config.auxiliary_loss > 0) sequence.auxiliary_weights = {0.5, 1, 0.25, 0, 1};
  sequence.routing_groups = {0, 1, 1, 0, 1};
  return sequence;
}

template <class Number>
Number loss_of(const Config& config, const Tensors<Number>& parameters, const Sequence& sequence) {
  Tensors<Number> ignored = zeros_like(parameters);
  return run_reference(config, parameters, sequence, ignored);
}

/// The largest difference between the gradient and central differences, over every element of every parameter (of a
/// part under sanitizers), relative to the largest element of the tensor's gradient.
double worst_difference(const Config& config) {
  using Wide = long double;
  Tensors<Wide> parameters = parameters_of<Wide>(config);
  const Sequence sequence = small_sequence(config);
  Tensors<Wide> gradients = zeros_like(parameters);
  run_reference(config, parameters, sequence, gradients);
  constexpr Wide step = 1e-6L;
  double worst = 0;
  Index number = 0;
  for (auto& [name, tensor] : parameters) {
    const Matrix<Wide>& gradient = gradients.at(name);
    const Wide scale = std::max<Wide>(largest(gradient), 1e-3L);
    for (Index i = 0; i < tensor.size(); ++i) {
      if (number++ % lockstep::test::one_in != 0) continue;
      const Wide before = tensor(i);
      tensor(i) = before + step;
      const Wide above = loss_of(config, parameters, sequence);
      tensor(i) = before - step;
      const Wide below = loss_of(config, parameters, sequence);
      tensor(i) = before;
      const Wide difference = std::abs((above - below) / (2 * step) - gradient(i)) / scale;
      if (difference > 1e-7L) UNSCOPED_INFO(name << "[" << i << "]: " << static_cast<double>(difference));
      worst = std::max(worst, static_cast<double>(difference));
    }
  }
  return worst;
}

}  // namespace

TEST_CASE("the gradient of the reference is that of central differences, for every pair of features") {
  for (const std::vector<bool>& row : lockstep::transformer::test::pairwise_rows()) {
    std::string name;
    const Config config = lockstep::transformer::test::small_config(row, name);
    INFO("seed " << seed << ", " << (name.empty() ? "plain" : name));
    CHECK(worst_difference(config) < 1e-8);
  }
}

TEST_CASE("every parameter has a gradient") {
  for (const std::vector<bool>& row : lockstep::transformer::test::pairwise_rows()) {
    std::string name;
    Config config = lockstep::transformer::test::small_config(row, name);
    config.positions = 110;
    Sequence sequence;
    sequence.tokens = random_tokens(config, seed, 1, 101 + config.mtp_layers);
    sequence.weights.assign(100, 1);
    if (config.mtp_layers > 0) sequence.mtp_weights.assign(100, 1);
    Tensors<double> gradients = zeros_like(parameters_of<double>(config));
    run_reference(config, parameters_of<double>(config), sequence, gradients);
    for (const auto& [tensor, gradient] : gradients) {
      if (tensor.find(".experts.") != std::string::npos) continue;  // no token need choose it
      INFO("seed " << seed << ", " << name << ": " << tensor);
      CHECK(largest(gradient) > 0);
    }
  }
}

TEST_CASE("the rounding error is within its bound, and the bound is small beside the gradient") {
  for (const std::vector<bool>& row : lockstep::transformer::test::pairwise_rows()) {
    std::string name;
    const Config config = lockstep::transformer::test::small_config(row, name);
    const Sequence sequence = small_sequence(config);
    const RoundedGradient rounded = rounded_gradient(config, parameters_of<double>(config), {sequence});
    Tensors<long double> precise = zeros_like(parameters_of<long double>(config));
    run_reference(config, parameters_of<long double>(config), sequence, precise);
    for (const auto& [tensor, gradient] : rounded.gradient) {
      INFO("seed " << seed << ", " << name << ": " << tensor);
      const Real error = cast<double>(cast<long double>(gradient) - precise.at(tensor));
      const Real& deviation = rounded.deviation.at(tensor);
      bool within = true;
      for (Index i = 0; i < error.size(); ++i) within = within && std::abs(error(i)) <= rounded.worst(deviation(i));
      CHECK(within);
      // An expert that no token chose; or a bias of all keys, which shifts all scores of a query alike.
      if (largest(gradient) <= 1e-12) continue;
      // The deviation is about what really happens, and the bound far from what a mistake would do.
      CHECK(length(error) < 8 * length(deviation));
      CHECK(length(error) > 0.01 * length(deviation));
      CHECK(rounded.worst(largest(deviation)) < 1e-10 * largest(gradient));
    }
  }
}
