# SPDX-License-Identifier: Apache-2.0
"""torch alone on gloo, two ranks: seven steps of post-local SGD, with local gradients and an average of parameters every `period` steps, from the first to the seventh. The
weight "a" is used in every step, "b" in those that the name says; the gradient is 1 on the first rank and 3 on the second. Each line has both weights of both ranks behind the last
average, where they should be the same."""

import os

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.post_localSGD_hook import PostLocalSGDState, post_localSGD_hook
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.distributed.optim import PostLocalSGDOptimizer
from torch.nn.parallel import DistributedDataParallel

os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(20000 + os.getpid() % 10000), WORLD_SIZE="2", OMP_NUM_THREADS="1")
ALL, ODD, EVEN = set(range(1, 8)), {1, 3, 5, 7}, {2, 4, 6}
CASES = [("all", ALL, 2, True), ("odd", ODD, 2, True), ("even", EVEN, 2, True), ("even", EVEN, 3, True), ("even", EVEN, 2, False)]


class Branches(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = (torch.nn.Parameter(torch.zeros(2)) for _ in range(2))

    def forward(self, also_b):
        return self.a.sum() + (self.b.sum() if also_b else 0)


def main(rank):
    os.environ["RANK"] = str(rank)
    dist.init_process_group("gloo")
    alone = [dist.new_group([other]) for other in range(2)][rank]
    for name, uses, period, to_none in CASES:
        model = DistributedDataParallel(Branches(), find_unused_parameters=True)
        model.register_comm_hook(PostLocalSGDState(process_group=None, subgroup=alone, start_localSGD_iter=0), post_localSGD_hook)
        # Without a warm-up, as torch asks for with start_localSGD_iter=0. The averager counts steps from 0, and averages where the count is a multiple of the period.
        optimizer = PostLocalSGDOptimizer(torch.optim.SGD(model.parameters(), lr=1.0), PeriodicModelAverager(period=period, warmup_steps=0))
        for number in range(1, 8):
            optimizer.zero_grad(set_to_none=to_none)
            ((1 + 2 * rank) * model(number in uses)).backward()
            optimizer.step()
        found = [None, None]
        dist.all_gather_object(found, " ".join("%s %g" % (key, weight[0]) for key, weight in model.module.named_parameters()))
        if rank == 0:
            print("b in %s steps, an average every %d steps, set_to_none %s: %s; %s" % (name, period, to_none, *found), flush=True)


if __name__ == "__main__":
    torch.multiprocessing.start_processes(main, nprocs=2, start_method="fork")
