# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed alone on gloo, two ranks, a model of a trunk and two heads, of which each call takes one: deepspeed_unused.py KIND [CONFIG], where CONFIG is JSON
that is added to the configuration. Each line has what a step subtracts from the elements of each head's weight: its gradient, by SGD with learning rate 1.
steps: all ranks take the same head, in some steps none takes the other. The gradient of a step is 1, 10, 100 where each micro-batch of it takes the head.
offload: with the optimizer offloaded. unmanaged: as well, and `managed_gradient_accumulation` false. ranks: one head on rank 0, gradient 1, the other on rank 1, 10."""

import itertools
import json
import os
import sys

os.environ.update(DS_ACCELERATOR="cpu", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(20000 + os.getpid() % 10000), WORLD_SIZE="2", OMP_NUM_THREADS="1")
import deepspeed
import torch


class Heads(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk, self.head0, self.head1 = (torch.nn.Parameter(torch.zeros(16)) for _ in range(3))

    def forward(self, picks, head):
        return ((self.trunk + (self.head1 if head else self.head0)) * picks).sum()


def weights(engine, stage):
    with deepspeed.zero.GatheredParameters(list(engine.module.parameters()), enabled=stage == 3):
        return [-head.detach().clone() for head in (engine.module.head0, engine.module.head1)]


def moved(values):
    return " then ".join("%d of %g" % (len(list(run)), value + 0.0) for value, run in itertools.groupby(values.tolist()))


def main(rank, kind, added):
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank))
    deepspeed.utils.logger.setLevel("ERROR")
    sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None  # gloo alone, without what would have to be compiled
    deepspeed.init_distributed(dist_backend="gloo", verbose=False)
    offload = {"offload_optimizer": {"device": "cpu"}} if kind in ("offload", "unmanaged") else {}
    for stage in range(bool(offload), 4):
        for steps in ([[rank]], [[1 - rank]]) if kind == "ranks" else ([[0], [1], [1]], [[0, 1], [0, 1], [0, 1]], [[0, 0], [0, 1], [1, 1]]):
            model = Heads()
            engine = deepspeed.initialize(model=model, optimizer=torch.optim.SGD(model.parameters(), lr=1.0), config={
                "train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": len(steps[0]), "gradient_clipping": 0.0, "zero_allow_untested_optimizer": True,
                "zero_force_ds_cpu_optimizer": False, "managed_gradient_accumulation": kind != "unmanaged", **added,
                "zero_optimization": {"stage": stage, **offload, **added.get("zero_optimization", {})}})[0]
            for number, taken in enumerate(steps):
                before = weights(engine, stage)
                for index, head in enumerate(taken):
                    engine.backward(engine(torch.full((16,), 10.0 ** (rank if kind == "ranks" else number)), head))
                    if kind != "unmanaged" or index + 1 == len(taken):
                        engine.step()
                told = ", ".join("head %d %s" % (one, moved(after - then)) for one, (after, then) in enumerate(zip(weights(engine, stage), before)))
                if rank == 0:
                    print("ZeRO %d, step %d takes %s: %s" % (stage, number, "%d on rank 0, %d on rank 1" % (head, 1 - head) if kind == "ranks" else taken, told), flush=True)


if __name__ == "__main__":
    torch.multiprocessing.start_processes(main, (sys.argv[1], json.loads((sys.argv + ["{}"])[2])), nprocs=2, start_method="fork")
