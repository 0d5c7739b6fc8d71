// SPDX-License-Identifier: Apache-2.0
#include "src/transformer/shards.h"

#include <fmt/format.h>

#include <string_view>

#include "src/transformer/generator.h"

namespace lockstep::transformer {

namespace {

bool contains(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

/// How tensor parallelism cuts a tensor of one device: the dimension, or -1 for one that every rank holds whole.
int cut_dimension(std::string_view name) {
  if (contains(name, "linear_proj.weight") || contains(name, "linear_fc2.weight")) return 1;
  if (contains(name, "word_embeddings") || contains(name, "output_layer") || contains(name, "linear_qkv.weight") ||
      contains(name, "linear_fc1.weight") || contains(name, "eh_proj.weight"))
    return 0;
  // Biases of column-parallel linears; a bias is a matrix of one row.
  if (contains(name, "linear_qkv.bias") || contains(name, "linear_fc1.bias")) return 1;
  return -1;
}

void cut(Home& home, int dimension, int size, int index) {
  std::int64_t& extent = dimension == 0 ? home.rows : home.columns;
  extent /= size;
  (dimension == 0 ? home.row : home.column) += extent * index;
}

}  // namespace

StagePlace stage_of_layer(const Config& config, const Layout& layout, int layer) {
  const int blocks = layout.pp * layout.virtual_stages;
  const int block = layer * blocks / config.layers;
  return {block % layout.pp, block / layout.pp};
}

std::map<std::string, Home> local_parameters(const Config& config, const Mesh& mesh, int rank) {
  const Layout& layout = mesh.layout();
  const StagePlace last{layout.pp - 1, layout.virtual_stages - 1};
  const int local_experts = config.experts / layout.ep;
  std::map<std::string, Home> found;
  for (const TensorShape& shape : tensor_shapes(config)) {
    Home home{shape.name, 0, 0, shape.rows, shape.columns, 0, 0};
    std::string name = shape.name;
    StagePlace place{0, 0};
    if (contains(name, "decoder.layers.")) {
      place = stage_of_layer(config, layout, std::stoi(name.substr(std::string_view("decoder.layers.").size())));
    } else if (!contains(name, "embedding.")) {
      place = last;
    }
    if (contains(name, ".experts.")) {
      const std::size_t digits = name.find_last_not_of("0123456789") + 1;
      const int expert = std::stoi(name.substr(digits));
      if (expert / local_experts != mesh.coordinate(rank, Axis::ep)) continue;
      name = name.substr(0, digits) + std::to_string(expert % local_experts);
      cut(home, cut_dimension(name), layout.etp, mesh.coordinate(rank, Axis::etp));
    } else if (const int dimension = cut_dimension(name); dimension >= 0) {
      cut(home, dimension, layout.tp, mesh.coordinate(rank, Axis::tp));
    }
    const auto add = [&](const std::string& as, StagePlace at) {
      if (at.stage != mesh.coordinate(rank, Axis::pp)) return;
      home.stage = at.stage;
      home.chunk = at.chunk;
      found.emplace(as, home);
    };
    add(name, place);
    if (config.tied && contains(name, "word_embeddings")) add("output_layer.weight", last);
    if (config.mtp_layers > 0 && contains(name, "embedding.")) add("mtp." + name, last);
  }
  return found;
}

Tensors<double> local_values(const Config& config, const std::map<std::string, Home>& parameters, std::uint64_t seed) {
  std::map<std::string, TensorShape> shapes;
  for (const TensorShape& shape : tensor_shapes(config)) shapes[shape.name] = shape;
  Tensors<double> values;
  for (const auto& [name, home] : parameters) {
    const InitialValues value(shapes.at(home.tensor), seed);
    Real tensor(home.rows, home.columns);
    for (Index row = 0; row < home.rows; ++row) {
      for (Index column = 0; column < home.columns; ++column)
        tensor(row, column) = value(home.row + row, home.column + column);
    }
    values.emplace(name, std::move(tensor));
  }
  return values;
}

}  // namespace lockstep::transformer
