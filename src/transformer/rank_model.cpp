// SPDX-License-Identifier: Apache-2.0
#include "src/transformer/rank_model.h"

#include <numeric>

#include "src/base/at.h"
#include "src/transformer/stage_division.h"

namespace lockstep::transformer {

namespace {

void append(std::vector<int>& list, const std::vector<int>& more) { list.insert(list.end(), more.begin(), more.end()); }

}  // namespace

RankModel::RankModel(const Config& config, Communicator& comm, const Data& data, std::uint64_t seed)
    : context_{config, comm, false, {}, {}}, data_(data), embedding_(context_), head_(context_) {
  const Mesh& mesh = comm.mesh();
  const Layout& layout = mesh.layout();
  context_.sequence_parallel = layout.sequence_parallel && layout.tp > 1;
  context_.homes = local_parameters(config, mesh, comm.rank());
  context_.parameters = local_values(config, built_from(config, layout, comm, context_.homes), seed);
  stages_ = layout.pp;
  chunks_ = layout.virtual_stages;
  const int cp = comm.coordinate(Axis::cp), sp = comm.coordinate(Axis::sp);
  places_.positions = data.positions(cp, sp);
  std::vector<int> own(places_.positions.size());
  std::iota(own.begin(), own.end(), 0);
  places_.rotary = places_.learned = places_.positions;
  const char* site = config.learned_positions ? "embedding.positions" : "attention.rotary_positions";
  if (own != places_.positions && comm.drops(site)) (config.learned_positions ? places_.learned : places_.rotary) = own;
  for (int s = 0; s < layout.sp; ++s) append(places_.query_positions, data.positions(cp, s));
  for (int c = 0; c < layout.cp; ++c) {
    for (int s = 0; s < layout.sp; ++s) append(places_.key_positions, data.positions(c, s));
  }
  layers_.resize(static_cast<std::size_t>(chunks_));
  for (int layer = 0; layer < config.layers; ++layer) {
    const StagePlace place = stage_of_layer(config, layout, layer);
    if (place.stage != comm.coordinate(Axis::pp) || is_left_out(config, layout, comm, layer)) continue;
    layers_[at(place.chunk)].push_back(
        std::make_unique<ShardedLayer>(context_, layer_prefix(layer, false), config.has_experts(layer), places_));
  }
  for (int depth = 0; depth < config.mtp_layers && is_last(chunks_ - 1); ++depth)
    depths_.push_back(std::make_unique<ShardedDepth>(context_, depth, places_));
}

bool RankModel::is_first(int chunk) const { return chunk == 0 && context_.comm.coordinate(Axis::pp) == 0; }
bool RankModel::is_last(int chunk) const {
  return chunk == chunks_ - 1 && context_.comm.coordinate(Axis::pp) == stages_ - 1;
}

std::vector<int> RankModel::tokens(int micro_batch, int shift) const {
  const std::vector<int> sequence = data_.tokens(micro_batch, context_.comm.coordinate(Axis::dp));
  std::vector<int> result;
  for (const int position : places_.positions) result.push_back(sequence[at(position + shift)]);
  return result;
}

Task<Real> RankModel::forward(int chunk, int micro_batch, Real hidden) {
  State& state = states_[{chunk, micro_batch}];
  if (is_first(chunk)) hidden = co_await embedding_.forward(tokens(micro_batch, 0), places_.learned);
  const auto& layers = layers_[at(chunk)];
  state.layers.resize(layers.size());
  for (std::size_t i = 0; i < layers.size(); ++i)
    hidden = co_await layers[i]->forward(std::move(hidden), state.layers[i]);
  if (!is_last(chunk)) co_return hidden;
  co_await predict(micro_batch, std::move(hidden), state);
  co_return Real();
}

// The next token from the hidden states, and with each depth of multi-token prediction one further on.
Task<> RankModel::predict(int micro_batch, Real hidden, State& state) {
  hidden =
      co_await norm_forward_at("head.norm", context_, "decoder.final_layernorm", std::move(hidden), state.final_norm);
  state.heads.resize(1 + depths_.size());
  state.depths.resize(depths_.size());
  co_await head_.forward(hidden, tokens(micro_batch, 1), state.heads[0]);
  for (std::size_t i = 0; i < depths_.size(); ++i) {
    const int depth = static_cast<int>(i);
    hidden = co_await depths_[i]->forward(std::move(hidden), tokens(micro_batch, depth + 1), state.depths[i]);
    co_await head_.forward(hidden, tokens(micro_batch, depth + 2), state.heads[i + 1]);
  }
}

Task<Real> RankModel::predict_backward(int micro_batch, const LossWeights& weights, const State& state,
                                       LocalGradients& gradients) {
  const Real main = weights.in("main"), further = weights.in("mtp"), auxiliary = weights.in("aux");
  Real gradient;
  for (std::size_t i = depths_.size(); i-- > 0;) {
    Real of_head = co_await head_.backward(further, state.heads[i + 1], gradients);
    if (gradient.size() > 0) of_head += gradient;
    gradient = co_await depths_[i]->backward(std::move(of_head), tokens(micro_batch, static_cast<int>(i) + 1),
                                             state.depths[i], auxiliary, gradients);
  }
  Real of_head = co_await head_.backward(main, state.heads[0], gradients);
  if (gradient.size() > 0) of_head += gradient;
  co_return co_await norm_backward_at("head.norm", context_, "decoder.final_layernorm", std::move(of_head),
                                      state.final_norm, gradients);
}

Task<Real> RankModel::backward(int chunk, int micro_batch, Real gradient, const LossWeights& weights,
                               LocalGradients& gradients) {
  const State& state = states_.at({chunk, micro_batch});
  if (is_last(chunk)) gradient = co_await predict_backward(micro_batch, weights, state, gradients);
  const auto& layers = layers_[at(chunk)];
  const Real auxiliary = weights.in("aux");
  for (std::size_t i = layers.size(); i-- > 0;)
    gradient = co_await layers[i]->backward(std::move(gradient), state.layers[i], auxiliary, gradients);
  if (is_first(chunk)) {
    co_await embedding_.backward(std::move(gradient), tokens(micro_batch, 0), places_.learned, gradients);
    gradient = Real();
  }
  states_.erase({chunk, micro_batch});
  co_return gradient;
}

}  // namespace lockstep::transformer
