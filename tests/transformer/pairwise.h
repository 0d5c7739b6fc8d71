// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <bit>
#include <functional>
#include <string>
#include <vector>

#include "src/transformer/config.h"

namespace lockstep::transformer::test {

/// A choice that a model makes, and what it changes.
struct Feature {
  std::string name;
  std::function<void(Config&)> apply;
};

inline const std::vector<Feature>& features() {
  static const std::vector<Feature> list = {
      {"rotary", [](Config& c) { c.learned_positions = false; }},
      {"RMSNorm", [](Config& c) { c.layer_norm = false; }},
      {"grouped-query", [](Config& c) { c.kv_heads = 1; }},
      {"q/k norms", [](Config& c) { c.qk_norm = true; }},
      {"SwiGLU", [](Config& c) { c.swiglu = true; }},
      {"untied", [](Config& c) { c.tied = false; }},
      {"no biases", [](Config& c) { c.linear_bias = false; }},
      {"experts", [](Config& c) { c.experts = 4; }},
      // What needs experts brings them along.
      {"shared experts", [](Config& c) { c.experts = 4, c.shared_expert_ffn = 3; }},
      {"gate", [](Config& c) { c.experts = 4, c.shared_expert_ffn = 3, c.shared_expert_gate = true; }},
      {"MTP", [](Config& c) { c.mtp_layers = 2; }},
      {"auxiliary loss", [](Config& c) { c.experts = 4, c.auxiliary_loss = 0.5; }},
      {"dropped tokens", [](Config& c) { c.experts = 4, c.capacity_factor = 0.75; }},
      {"dropped by position", [](Config& c) { c.experts = 4, c.capacity_factor = 0.5, c.drop_by_position = true; }},
      {"one expert a token", [](Config& c) { c.experts = 4, c.top_k = 1, c.pre_softmax = true; }},
      {"every second layer", [](Config& c) { c.experts = 4, c.moe_layer_frequency = 2; }},
  };
  return list;
}

/// Which features each of a few models has, such that every pair of features occurs in all four ways: both, either one
/// alone, neither. Greedy: each row takes the candidate that shows the most new pairs.
inline std::vector<std::vector<bool>> find_pairwise_rows() {
  const std::size_t count = features().size();
  const unsigned all = (1u << count) - 1;
  std::vector<std::vector<bool>> rows;
  // By a feature that is there or not: the later ones that were not yet seen there beside it, and not there.
  std::vector<std::array<std::array<unsigned, 2>, 2>> unseen(count);
  for (std::size_t a = 0; a < count; ++a) {
    const unsigned later = all & ~((2u << a) - 1);
    unseen[a] = {{{later, later}, {later, later}}};
  }
  for (;;) {
    unsigned best = 0;
    int most = 0;
    for (unsigned candidate = 0; candidate <= all; ++candidate) {
      int fresh = 0;
      for (std::size_t a = 0; a < count; ++a) {
        const auto& [absent, present] = unseen[a][candidate >> a & 1u];
        fresh += std::popcount((absent & ~candidate) | (present & candidate));
      }
      if (fresh <= most) continue;
      most = fresh;
      best = candidate;
    }
    if (most == 0) return rows;
    std::vector<bool>& row = rows.emplace_back();
    for (std::size_t a = 0; a < count; ++a) {
      auto& [absent, present] = unseen[a][best >> a & 1u];
      absent &= best;
      present &= ~best;
      row.push_back((best >> a & 1u) != 0);
    }
  }
}

inline const std::vector<std::vector<bool>>& pairwise_rows() {
  static const std::vector<std::vector<bool>> rows = find_pairwise_rows();
  return rows;
}

/// A small model with these features, and its name.
inline Config small_config(const std::vector<bool>& row, std::string& name) {
  Config config;
  config.layers = 2;
  config.hidden = 4;
  config.heads = config.kv_heads = 2;
  config.head_size = 4;
  config.ffn = 3;
  config.moe_ffn = 2;
  config.vocab = 7;
  config.positions = 8;
  for (std::size_t i = 0; i < row.size(); ++i) {
    if (!row[i]) continue;
    features()[i].apply(config);
    name += (name.empty() ? "" : ", ") + features()[i].name;
  }
  return config;
}

}  // namespace lockstep::transformer::test
