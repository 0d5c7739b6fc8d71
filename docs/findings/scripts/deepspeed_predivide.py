# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed alone on gloo: what each rank's gradient counts in the update, by ZeRO stage, gradient_predivide_factor and (ZeRO 3 has two ways)
contiguous_gradients. Averaged over 2 ranks it is 1/2.

Each rank's loss picks an element of the weight of its own, so what SGD with learning rate 1 subtracts from zeros there is the coefficient of that rank.
"""

import multiprocessing
import os
import sys

os.environ.update(DS_ACCELERATOR="cpu", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(20000 + os.getpid() % 10000), WORLD_SIZE="2", OMP_NUM_THREADS="1")

import deepspeed
import torch


class Picked(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(16))

    def forward(self, picks):
        return (self.weight * picks).sum()


def coefficients(rank, stage, factor, contiguous):
    model = Picked()
    engine, *_ = deepspeed.initialize(model=model, optimizer=torch.optim.SGD(model.parameters(), lr=1.0), config={
        "train_micro_batch_size_per_gpu": 1, "gradient_clipping": 0.0, "gradient_predivide_factor": factor, "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False, "zero_optimization": {"stage": stage, "reduce_scatter": False, "contiguous_gradients": contiguous}})
    engine.backward(engine(torch.eye(16)[rank]))
    engine.step()
    with deepspeed.zero.GatheredParameters([engine.module.weight], enabled=stage == 3):
        return (-engine.module.weight.detach()[:2]).tolist()


def main(rank):
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank))
    deepspeed.utils.logger.setLevel("ERROR")
    sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None  # gloo alone, without what would have to be compiled
    deepspeed.init_distributed(dist_backend="gloo", verbose=False)
    for stage, contiguous in ((0, True), (1, True), (2, True), (3, True), (3, False)):
        for factor in (1.0, 2.0, 4.0):
            found = " ".join("%g" % one for one in coefficients(rank, stage, factor, contiguous))
            if rank == 0:
                print("ZeRO %d%s, gradient_predivide_factor %g: %s" % (stage, "" if contiguous else ", contiguous_gradients False", factor, found), flush=True)


if __name__ == "__main__":
    ranks = [multiprocessing.get_context("fork").Process(target=main, args=(rank,)) for rank in range(2)]
    for one in ranks:
        one.start()
    for one in ranks:
        one.join()
    raise SystemExit(max(abs(one.exitcode) for one in ranks))
