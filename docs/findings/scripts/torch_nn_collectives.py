# SPDX-License-Identifier: Apache-2.0
"""torch alone on gloo, two ranks: gradients of the collectives of torch.distributed.nn.functional, by the operation they reduce with. The loss is the sum over ranks of the
rank's weight (1 and 3) times its result (the result of rank 0 where only that one receives it). Each line has that loss and the gradients of both ranks' two inputs, and
the right ones, which are those of the same loss computed on one process."""

import os

import torch
import torch.distributed as dist
import torch.distributed.nn.functional as collectives

os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(20000 + os.getpid() % 10000), WORLD_SIZE="2", OMP_NUM_THREADS="1")
INPUTS, WEIGHTS = ([2.0, 5.0], [3.0, 4.0]), (1.0, 3.0)
WHOLE = {"SUM": lambda both: both.sum(0), "AVG": lambda both: both.mean(0), "MAX": lambda both: both.amax(0), "MIN": lambda both: both.amin(0), "PRODUCT": lambda both: both.prod(0)}
KINDS = {
    "all_reduce": (lambda one, op: collectives.all_reduce(one, op=op).sum(), lambda result: sum(WEIGHTS) * result.sum()),
    "reduce": (lambda one, op: collectives.reduce(one, 0, op=op).sum() * (dist.get_rank() == 0), lambda result: WEIGHTS[0] * result.sum()),
    "reduce_scatter": (lambda one, op: collectives.reduce_scatter(torch.empty(1), [one[:1], one[1:]], op=op).sum(), lambda result: WEIGHTS[0] * result[0] + WEIGHTS[1] * result[1]),
}


def words(found):
    return " and ".join(" ".join("%g" % one for one in rank) for rank in found)


def main(rank):
    os.environ["RANK"] = str(rank)
    dist.init_process_group("gloo")
    for kind, (distributed, single) in KINDS.items():
        for op, whole in WHOLE.items():
            one = torch.tensor(INPUTS[rank], requires_grad=True)
            loss = WEIGHTS[rank] * distributed(one, getattr(dist.ReduceOp, op))
            loss.backward()
            found = [None, None]
            dist.all_gather_object(found, (loss.item(), one.grad.tolist()))
            both = torch.tensor(INPUTS, requires_grad=True)
            right = single(whole(both))
            right.backward()
            if rank == 0:
                losses, gradients = zip(*found)
                print("%s, %s: loss %g of %g, gradients %s; right %s" % (kind, op, sum(losses), right.item(), words(gradients), words(both.grad.tolist())), flush=True)


if __name__ == "__main__":
    torch.multiprocessing.start_processes(main, nprocs=2, start_method="fork")
