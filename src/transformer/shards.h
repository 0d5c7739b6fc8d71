// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>

#include "lockstep/mesh.h"
#include "src/transformer/config.h"
#include "src/transformer/matrix.h"

namespace lockstep::transformer {

/// Where a rank's piece of a parameter lies in the tensor of one device.
struct Home {
  std::string tensor;  ///< its name in tensor_shapes()
  std::int64_t row = 0, column = 0;
  std::int64_t rows = 1, columns = 1;
  int stage = 0;  ///< pipeline stage that holds it
  int chunk = 0;  ///< virtual stage on that rank
};

/// The place of a layer in the pipeline, as models/gpt.jsonc deals them out.
struct StagePlace {
  int stage = 0, chunk = 0;
};
StagePlace stage_of_layer(const Config& config, const Layout& layout, int layer);

/// The parameters of `rank` in the scenario's names, as this engine shards them: tensor parallel as Megatron cuts them,
/// whole experts over ep, pieces of them over etp, layers over the pipeline. Both ends of the pipeline hold a tied
/// weight, under two names. Knows nothing of what a scenario claims.
std::map<std::string, Home> local_parameters(const Config& config, const Mesh& mesh, int rank);

/// Their values.
Tensors<double> local_values(const Config& config, const std::map<std::string, Home>& parameters, std::uint64_t seed);

}  // namespace lockstep::transformer
