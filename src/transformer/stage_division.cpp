// SPDX-License-Identifier: Apache-2.0
#include "src/transformer/stage_division.h"

#include <fmt/format.h>

#include <string_view>

namespace lockstep::transformer {

namespace {

/// How many layers of its stage or virtual stage lie before it.
int index_in_block(const Config& config, const Layout& layout, int layer) {
  const StagePlace place = stage_of_layer(config, layout, layer);
  int index = 0;
  for (int before = 0; before < layer; ++before) {
    const StagePlace other = stage_of_layer(config, layout, before);
    index += other.stage == place.stage && other.chunk == place.chunk ? 1 : 0;
  }
  return index;
}

}  // namespace

std::map<std::string, Home> built_from(const Config& config, const Layout& layout, const Communicator& comm,
                                       const std::map<std::string, Home>& homes) {
  if (!comm.is_dropped("pp.layer_offset")) return homes;
  std::map<std::string, Home> result = homes;
  for (int layer = 0; layer < config.layers; ++layer) {
    const std::string own = layer_prefix(layer, false);
    const std::string first = layer_prefix(index_in_block(config, layout, layer), false);
    if (own == first) continue;
    for (auto entry = result.lower_bound(own); entry != result.end() && entry->first.starts_with(own); ++entry) {
      entry->second.tensor.replace(0, own.size(), first);
      comm.drops("pp.layer_offset");
    }
  }
  return result;
}

bool is_left_out(const Config& config, const Layout& layout, const Communicator& comm, int layer) {
  return index_in_block(config, layout, layer) >= config.layers / (layout.pp * layout.virtual_stages) &&
         comm.drops("pp.remainder");
}

void check_stage_division(const Config& config, const Layout& layout, const SiteEdits& edits, const Place& place) {
  const auto edit = edits.find("pp.layer_offset");
  if (edit == edits.end()) return;
  for (int layer = 0; layer < config.layers; ++layer) {
    const int first = index_in_block(config, layout, layer);
    if (config.has_experts(layer) == config.has_experts(first)) continue;
    throw InputError({{place, fmt::format("without \"pp.layer_offset\" layer {} would get the weights of layer {}, and "
                                          "only one of them has experts; give all layers experts, or none",
                                          layer, first)}});
  }
}

}  // namespace lockstep::transformer
