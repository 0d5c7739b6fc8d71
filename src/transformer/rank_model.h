// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/transformer/data.h"
#include "src/transformer/sharded_depth.h"

namespace lockstep::transformer {

/// What the tokens of a rank's piece count in the loss of one use. In those of other uses they count nothing.
struct LossWeights {
  std::string use;
  Real of_tokens;  ///< a column
  Real in(std::string_view loss) const { return loss == use ? of_tokens : Real(of_tokens.rows(), 1); }
};

/// What one rank holds of the model: its chunks of the pipeline, and what their forward passes left for the backward.
class RankModel {
 public:
  RankModel(const Config& config, Communicator& comm, const Data& data, std::uint64_t seed);
  // Its layers refer to it.
  RankModel(const RankModel&) = delete;
  RankModel& operator=(const RankModel&) = delete;

  bool is_first(int chunk) const;
  bool is_last(int chunk) const;
  /// Hidden states in, unless the chunk is the first, and out, unless it is the last.
  Task<Real> forward(int chunk, int micro_batch, Real input);
  /// Gradients in, unless the chunk is the last, and out, unless it is the first.
  Task<Real> backward(int chunk, int micro_batch, Real gradient, const LossWeights& weights, LocalGradients& gradients);

 private:
  struct State {
    std::vector<ShardedLayer::State> layers;
    NormState final_norm;
    std::vector<ShardedHead::State> heads;  ///< of the next token, then of each depth of multi-token prediction
    std::vector<ShardedDepth::State> depths;
  };
  Task<> predict(int micro_batch, Real hidden, State& state);
  Task<Real> predict_backward(int micro_batch, const LossWeights& weights, const State& state,
                              LocalGradients& gradients);
  /// Those of the piece, `shift` tokens further on.
  std::vector<int> tokens(int micro_batch, int shift) const;

  RankContext context_;
  const Data& data_;
  int stages_, chunks_;
  ShardedAttention::Places places_;
  ShardedEmbedding embedding_;
  ShardedHead head_;
  std::vector<std::vector<std::unique_ptr<ShardedLayer>>> layers_;  ///< by chunk
  std::vector<std::unique_ptr<ShardedDepth>> depths_;               ///< on the last stage
  std::map<std::pair<int, int>, State> states_;                     ///< by chunk and micro-batch, between the passes
};

}  // namespace lockstep::transformer
