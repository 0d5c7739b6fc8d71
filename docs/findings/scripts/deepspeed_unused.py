# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed alone on gloo, two ranks, a model of a trunk and two heads, of which each call takes one.
steps: all ranks take the same head, in some step none takes the other: what every step subtracts from each head's weight (its gradient, by SGD with learning rate 1).
The gradient of a step is 1, 10, 100 where each micro-batch of it takes the head. offload: as well, with the optimizer offloaded.
ranks: rank 0 takes head 0 and rank 1 head 1, the elements that they pick differ."""

import os
import sys

os.environ.update(DS_ACCELERATOR="cpu", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(20000 + os.getpid() % 10000), WORLD_SIZE="2", OMP_NUM_THREADS="1")

import deepspeed
import torch


class Heads(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = torch.nn.Parameter(torch.zeros(16))
        self.head0, self.head1 = (torch.nn.Parameter(torch.zeros(16)) for _ in range(2))

    def forward(self, picks, head):
        return ((self.trunk + (self.head1 if head else self.head0)) * picks).sum()


def started(stage, micro_batches, kind):
    model = Heads()
    return deepspeed.initialize(model=model, optimizer=torch.optim.SGD(model.parameters(), lr=1.0), config={
        "train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": micro_batches, "gradient_clipping": 0.0, "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False, "zero_optimization": {"stage": stage, **({"offload_optimizer": {"device": "cpu"}} if kind == "offload" else {})}})[0]


def weights(engine, stage):
    with deepspeed.zero.GatheredParameters(list(engine.module.parameters()), enabled=stage == 3):
        return [-head.detach()[:2] for head in (engine.module.head0, engine.module.head1)]


def main(rank, kind):
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank))
    deepspeed.utils.logger.setLevel("ERROR")
    sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None  # gloo alone, without what would have to be compiled
    deepspeed.init_distributed(dist_backend="gloo", verbose=False)
    for stage in range(kind == "offload", 4):
        for steps in ([[rank]],) if kind == "ranks" else ([[0], [1], [1]], [[0, 1], [0, 1], [1, 1]]):
            engine, before = started(stage, len(steps[0]), kind), [torch.zeros(2)] * 2
            for number, taken in enumerate(steps):
                for head in taken:
                    picks = torch.eye(16)[rank] if kind == "ranks" else torch.full((16,), 10.0**number)
                    engine.backward(engine(picks, head))
                    engine.step()
                after = weights(engine, stage)
                told = ", ".join("head %d %s" % (one, " ".join("%g" % value for value in (after[one] - before[one])[: 2 if kind == "ranks" else 1])) for one in range(2))
                before = after
                if rank == 0:
                    print("ZeRO %d, step %d takes %s: %s" % (stage, number, "head 0 on rank 0, head 1 on rank 1" if kind == "ranks" else taken, told), flush=True)


if __name__ == "__main__":
    torch.multiprocessing.start_processes(main, (sys.argv[1],), nprocs=2, start_method="fork")
