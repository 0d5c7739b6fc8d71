// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "src/transformer/communicator.h"
#include "src/transformer/config.h"
#include "src/transformer/shards.h"

namespace lockstep::transformer {

/// The gradients of one micro-batch on one rank, by parameter and by the rank whose tokens they stem from: the rank
/// itself, but for experts.
using LocalGradients = std::map<std::pair<std::string, int>, Real>;

/// What the layers of a rank work with.
struct RankContext {
  const Config& config;
  Communicator& comm;
  bool sequence_parallel = false;
  std::map<std::string, Home> homes;
  Tensors<double> parameters;

  const Real& parameter(const std::string& name) const { return parameters.at(name); }
  bool has(const std::string& name) const { return parameters.count(name) > 0; }
};

/// Adds to the gradient of a parameter.
inline void add_gradient(LocalGradients& gradients, const std::string& name, int source, const Real& gradient) {
  const auto [found, is_new] = gradients.try_emplace({name, source}, gradient);
  if (!is_new) found->second += gradient;
}

/// The edges of a tensor parallel region, in which every rank has all tokens of the piece and a part of the features.
/// Without sequence parallelism its input is copied (backward: all-reduced) and its output all-reduced; with it the
/// input is gathered along the sequence (backward: reduce-scattered) and the output reduce-scattered.
class TensorParallelRegion {
 public:
  struct Sites {
    const char* copy_to_tp;  ///< backward
    const char* reduce_from_tp;
    const char* gather;
    const char* gather_backward;
    const char* scatter;
    const char* scatter_backward;
  };
  TensorParallelRegion(RankContext& context, const Sites& sites) : context_(context), sites_(sites) {}

  Task<Real> enter(Real input) {
    if (!context_.sequence_parallel) co_return input;
    co_return co_await context_.comm.all_gather(sites_.gather, Axis::tp, std::move(input));
  }
  Task<Real> enter_backward(Real gradient) {
    if (!context_.sequence_parallel)
      co_return co_await context_.comm.all_reduce(sites_.copy_to_tp, Axis::tp, std::move(gradient));
    co_return co_await context_.comm.reduce_scatter(sites_.gather_backward, Axis::tp, std::move(gradient));
  }
  Task<Real> leave(Real output) {
    if (!context_.sequence_parallel)
      co_return co_await context_.comm.all_reduce(sites_.reduce_from_tp, Axis::tp, std::move(output));
    co_return co_await context_.comm.reduce_scatter(sites_.scatter, Axis::tp, std::move(output));
  }
  Task<Real> leave_backward(Real gradient) {
    if (!context_.sequence_parallel) co_return gradient;
    co_return co_await context_.comm.all_gather(sites_.scatter_backward, Axis::tp, std::move(gradient));
  }

 private:
  RankContext& context_;
  const Sites& sites_;
};

}  // namespace lockstep::transformer
