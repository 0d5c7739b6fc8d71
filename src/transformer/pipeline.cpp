// SPDX-License-Identifier: Apache-2.0
#include "src/transformer/pipeline.h"

#include <fmt/format.h>

#include <algorithm>

#include "src/base/at.h"

namespace lockstep::transformer {

namespace {

/// The chunk and micro-batch of the k-th pass of interleaved 1F1B: the chunks take turns after as many micro-batches as
/// there are stages.
Pass interleaved_pass(bool forward, int k, int stages, int chunks) {
  const int turn = k / stages % chunks;
  return {forward, forward ? turn : chunks - 1 - turn, k / (stages * chunks) * stages + k % stages};
}

constexpr int forward_channel = 0, backward_channel = 1;

}  // namespace

std::vector<Pass> pipeline_passes(PipelineOrder order, int stages, int stage, int chunks, int micro_batches) {
  const int total = chunks * micro_batches;
  const bool interleaved = order == PipelineOrder::interleaved && micro_batches % stages == 0;
  const auto pass = [&](bool forward, int k) -> Pass {
    if (interleaved) return interleaved_pass(forward, k, stages, chunks);
    const int turn = k / micro_batches;
    return {forward, forward ? turn : chunks - 1 - turn, k % micro_batches};
  };
  int ahead = total;  // forward passes before the first backward
  if (interleaved) ahead = std::min(total, 2 * (stages - stage - 1) + (chunks - 1) * stages);
  if (order == PipelineOrder::one_forward_one_backward && chunks == 1) ahead = std::min(total, stages - stage - 1);
  std::vector<Pass> passes;
  for (int k = 0; k < ahead; ++k) passes.push_back(pass(true, k));
  for (int k = 0; k < total - ahead; ++k) {
    passes.push_back(pass(true, ahead + k));
    passes.push_back(pass(false, k));
  }
  for (int k = total - ahead; k < total; ++k) passes.push_back(pass(false, k));
  return passes;
}

Task<> run_passes(RankModel& model, Communicator& comm, std::vector<Pass> passes, int first_micro_batch,
                  std::function<LossWeights(int)> weights, std::vector<LocalGradients>& gradients) {
  const std::vector<int>& stages = comm.group(Axis::pp);
  const int count = static_cast<int>(stages.size());
  const int stage = comm.coordinate(Axis::pp);
  const int next = stages[at((stage + 1) % count)];
  const int previous = stages[at((stage + count - 1) % count)];
  for (const Pass pass : passes) {
    const int counted = first_micro_batch + pass.micro_batch;
    // Each block of layers has a number, which its input carries in the name of the message.
    const int block = pass.chunk * count + stage;
    Real tensor;
    if (pass.forward) {
      if (!model.is_first(pass.chunk)) {
        std::string site = fmt::format("pp.forward of micro-batch {} to block {}", counted, block);
        tensor = co_await comm.receive(std::move(site), previous, forward_channel);
      }
      tensor = co_await model.forward(pass.chunk, counted, std::move(tensor));
      if (!model.is_last(pass.chunk)) {
        if (comm.drops("pp.forward")) tensor = Real(tensor.rows(), tensor.cols());
        std::string site = fmt::format("pp.forward of micro-batch {} to block {}", counted, block + 1);
        co_await comm.send(std::move(site), next, forward_channel, std::move(tensor));
      }
      continue;
    }
    if (!model.is_last(pass.chunk)) {
      std::string site = fmt::format("pp.backward of micro-batch {} to block {}", counted, block);
      tensor = co_await comm.receive(std::move(site), next, backward_channel);
    }
    const LossWeights of_losses = weights(pass.micro_batch);
    tensor =
        co_await model.backward(pass.chunk, counted, std::move(tensor), of_losses, gradients[at(pass.micro_batch)]);
    if (!model.is_first(pass.chunk)) {
      if (comm.drops("pp.backward")) tensor = Real(tensor.rows(), tensor.cols());
      std::string site = fmt::format("pp.backward of micro-batch {} to block {}", counted, block - 1);
      co_await comm.send(std::move(site), previous, backward_channel, std::move(tensor));
    }
  }
}

}  // namespace lockstep::transformer
