# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed alone on gloo, two ranks with one sequence (Ulysses, DeepSpeed's own unit): what the gradient of each rank's part counts in the update of a parameter
that fits into reduce_bucket_size, here 32, and of one that does not. Each rank's loss picks elements of its own, as in deepspeed_ulysses.py."""

import importlib
import os
import sys

os.environ.update(DS_ACCELERATOR="cpu", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(20000 + os.getpid() % 10000), WORLD_SIZE="2", OMP_NUM_THREADS="1")

import deepspeed
import torch


class Picked(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.small, self.large = torch.nn.Parameter(torch.zeros(16)), torch.nn.Parameter(torch.zeros(64))

    def forward(self, picks):
        return (self.small * picks[:16]).sum() + (self.large * picks).sum()


def coefficients(rank, unit, stage, scatters):
    model = Picked()
    engine, *_ = deepspeed.initialize(model=model, optimizer=torch.optim.SGD(model.parameters(), lr=1.0), mpu=unit, config={
        "train_micro_batch_size_per_gpu": 1, "gradient_clipping": 0.0, "zero_allow_untested_optimizer": True, "zero_force_ds_cpu_optimizer": False,
        "zero_optimization": {"stage": stage, "reduce_scatter": scatters, "reduce_bucket_size": 32}})
    engine.backward(engine(torch.eye(64)[rank]))
    engine.step()
    weights = [engine.module.small, engine.module.large]
    with deepspeed.zero.GatheredParameters(weights, enabled=stage == 3):
        return ", ".join("%s %s" % (name, " ".join("%g" % one for one in (-weight.detach()[:2]).tolist())) for name, weight in zip(("small", "large"), weights))


def main(rank):
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank))
    deepspeed.utils.logger.setLevel("ERROR")
    sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None  # gloo alone, without what would have to be compiled
    deepspeed.init_distributed(dist_backend="gloo", verbose=False)
    unit = importlib.import_module("deepspeed.runtime.sequence_parallel.parallel_state_sp")
    unit.initialize_sequence_parallel(2)
    for stage, scatters in ((1, False), (2, False), (3, False), (3, True)):
        found = coefficients(rank, unit, stage, scatters)
        if rank == 0:
            print("ZeRO %d, reduce_scatter %s: %s" % (stage, scatters, found), flush=True)


if __name__ == "__main__":
    torch.multiprocessing.start_processes(main, nprocs=2, start_method="fork")
