# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed alone on gloo: a pipeline of two stages, each with one weight. What SGD with learning rate 1 subtracts from each, clipped to a norm of 1, which is
the default. The gradient of the first stage has the norm 2, that of the second 200: together 200.01."""

import os
import sys

os.environ.update(DS_ACCELERATOR="cpu", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(20000 + os.getpid() % 10000), WORLD_SIZE="2", OMP_NUM_THREADS="1")

import deepspeed
import torch
from deepspeed.pipe import LayerSpec, PipelineModule


class Shifted(torch.nn.Module):
    def __init__(self, factor):
        super().__init__()
        self.weight, self.factor = torch.nn.Parameter(torch.zeros(4)), factor

    def forward(self, numbers):
        return numbers + self.factor * self.weight


def update(config):
    layers = PipelineModule([LayerSpec(Shifted, 1.0), LayerSpec(Shifted, 100.0)], num_stages=2, loss_fn=lambda output, target: output.sum(), partition_method="uniform")
    engine, *_ = deepspeed.initialize(model=layers, optimizer=torch.optim.SGD(layers.parameters(), lr=1.0), config={
        "train_micro_batch_size_per_gpu": 1, "train_batch_size": 1, "steps_per_print": 10**9, "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False, **config})
    engine.train_batch(iter([(torch.zeros(1, 4, requires_grad=True), torch.zeros(1, 4))]))
    return -next(layers.parameters()).detach()[0].item()


def main(rank):
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank))
    deepspeed.utils.logger.setLevel("ERROR")
    sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None  # gloo alone, without what would have to be compiled
    deepspeed.init_distributed(dist_backend="gloo", verbose=False)
    for name, config in (("defaults", {}), ("gradient_clipping 1", {"gradient_clipping": 1.0}), ("gradient_clipping 0", {"gradient_clipping": 0.0}),
                         ("gradient_clipping 1, ZeRO 1", {"gradient_clipping": 1.0, "zero_optimization": {"stage": 1}}),
                         ("gradient_clipping 1, bf16", {"gradient_clipping": 1.0, "bf16": {"enabled": True}})):
        found = [torch.zeros(1) for _ in range(2)]
        torch.distributed.all_gather(found, torch.tensor([update(config)]))
        if rank == 0:
            print("%s: stage 0 moves by %.3g, stage 1 by %.3g" % (name, *(one.item() for one in found)), flush=True)


if __name__ == "__main__":
    torch.multiprocessing.start_processes(main, nprocs=2, start_method="fork")
