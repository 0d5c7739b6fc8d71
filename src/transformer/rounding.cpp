// SPDX-License-Identifier: Apache-2.0
#include "src/transformer/rounding.h"

#include <cmath>

#include "src/transformer/perturbed.h"

namespace lockstep::transformer {

double RoundedGradient::worst(double of_deviation) const { return std::sqrt(operations) * of_deviation; }

RoundedGradient rounded_gradient(const Config& config, const Tensors<double>& parameters,
                                 const std::vector<Sequence>& sequences, int samples) {
  RoundedGradient result;
  result.gradient = zeros_like(parameters);
  result.deviation = zeros_like(parameters);
  for (const Sequence& sequence : sequences) run_reference(config, parameters, sequence, result.gradient);
  Tensors<Perturbed> exact;
  for (const auto& [name, tensor] : parameters) exact[name] = cast<Perturbed>(tensor);
  for (int sample = 0; sample < samples; ++sample) {
    Perturbed::seed(static_cast<std::uint64_t>(sample) + 1);
    Tensors<Perturbed> perturbed = zeros_like(exact);
    for (const Sequence& sequence : sequences) run_reference(config, exact, sequence, perturbed);
    result.operations = static_cast<double>(Perturbed::operations());
    for (const auto& [name, tensor] : perturbed) {
      Real& sum = result.deviation.at(name);
      const Real& centre = result.gradient.at(name);
      for (Index i = 0; i < sum.size(); ++i) {
        const double error = (tensor(i).value() - centre(i)) * (Perturbed::unit / Perturbed::step);
        sum(i) += error * error / samples;
      }
    }
  }
  for (auto& [name, tensor] : result.deviation) {
    for (double& element : tensor) element = std::sqrt(element);
  }
  return result;
}

}  // namespace lockstep::transformer
