// SPDX-License-Identifier: Apache-2.0
#include "src/transformer/sharded_model.h"

namespace lockstep::transformer {

std::vector<std::vector<LocalGradients>> run_sharded(const Config& config, const Schedule& schedule, const Data& data,
                                                     int optimizer_step, const std::string& use,
                                                     const std::function<double(int rank, int m)>& weight,
                                                     const ShardedRun& options) {
  const Mesh& mesh = schedule.mesh;
  const Layout& layout = mesh.layout();
  const int world = mesh.world();
  const int first = schedule.batch.first_micro_batch(optimizer_step);
  const int micro_batches = schedule.batch.micro_batches(optimizer_step);
  const PipelineOrder order = layout.virtual_stages > 1 && options.order == PipelineOrder::one_forward_one_backward
                                  ? PipelineOrder::interleaved
                                  : options.order;
  const AxisGroups groups(mesh);
  Runtime runtime(world, options.scheduler_seed);
  std::vector<std::unique_ptr<Communicator>> comms;
  std::vector<std::unique_ptr<RankModel>> models;
  for (int rank = 0; rank < world; ++rank) {
    comms.push_back(std::make_unique<Communicator>(runtime, groups, options.edits, rank, options.reached));
    models.push_back(std::make_unique<RankModel>(config, *comms.back(), data, options.seed));
  }
  std::vector<std::vector<LocalGradients>> gradients(static_cast<std::size_t>(world));
  for (auto& of_rank : gradients) of_rank.resize(static_cast<std::size_t>(micro_batches));
  runtime.run([&](int rank) {
    const int dp = mesh.coordinate(rank, Axis::dp), cp = mesh.coordinate(rank, Axis::cp);
    const int sp = mesh.coordinate(rank, Axis::sp);
    const auto weights = [&, rank, dp, cp, sp](int m) {
      Real of_tokens(data.piece_length(), 1);
      const std::int64_t count = data.counted(use, first + m, dp, cp, sp);
      for (int i = 0; i < data.piece_length() && count > 0; ++i) {
        if (data.enters_loss(i, count)) of_tokens(i) = weight(rank, m);
      }
      return LossWeights{use, of_tokens};
    };
    const auto place = static_cast<std::size_t>(rank);
    return run_passes(
        *models[place], *comms[place],
        pipeline_passes(order, layout.pp, mesh.coordinate(rank, Axis::pp), layout.virtual_stages, micro_batches), first,
        weights, gradients[place]);
  });
  return gradients;
}

}  // namespace lockstep::transformer
