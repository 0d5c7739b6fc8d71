# SPDX-License-Identifier: Apache-2.0
"""torch alone on gloo: a pipeline of four stages on two ranks, in the shape of a V, so that rank 0 has the first stage and the last one. These share a weight, as
tied embeddings do. Each use of a weight has the gradient 1 of the batch's mean, so that a weight with two uses has 2."""

import os

import torch
import torch.distributed as dist
from torch.distributed.pipelining import PipelineStage, ScheduleInterleaved1F1B
from torch.distributed.pipelining.schedules import ScheduleDualPipeV, ScheduleZBVZeroBubble

os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(20000 + os.getpid() % 10000), WORLD_SIZE="2", OMP_NUM_THREADS="1")


class Scaled(torch.nn.Module):
    def __init__(self, weight):
        super().__init__()
        self.weight = weight

    def forward(self, numbers):
        return numbers * self.weight


def gradients(rank, kind, micro_batches, tied, divides):
    """Of the weights of this rank's two stages, where the schedule divides by the micro-batches, or the loss."""
    weights = [torch.nn.Parameter(torch.ones(1)) for _ in range(2)]
    if tied and rank == 0:
        weights[1] = weights[0]
    numbers = (rank, rank + 2) if kind is ScheduleInterleaved1F1B else (rank, 3 - rank)
    stages = [PipelineStage(Scaled(weight), number, 4, torch.device("cpu")) for weight, number in zip(weights, numbers)]
    schedule = kind(stages, micro_batches, loss_fn=lambda output, target: output.mean() / (1 if divides else micro_batches), scale_grads=divides)
    batch = torch.ones(micro_batches, 1)
    schedule.step(*([batch] if 0 in numbers else []), **({"target": batch} if 3 in numbers else {}))
    return " ".join("%g" % weight.grad.item() for weight in weights)


def main(rank):
    os.environ["RANK"] = str(rank)
    dist.init_process_group("gloo")
    for kind in (ScheduleZBVZeroBubble, ScheduleDualPipeV, ScheduleInterleaved1F1B):
        for micro_batches in (4, 8):
            for tied, divides in ((False, True), (True, True), (True, False)):
                found = gradients(rank, kind, micro_batches, tied, divides)
                if rank == 0:
                    print("%s, %d micro-batches, %s, divided by the %s: %s" % (kind.__name__, micro_batches, "tied" if tied else "two weights",
                                                                              "schedule" if divides else "loss", found), flush=True)


if __name__ == "__main__":
    torch.multiprocessing.start_processes(main, nprocs=2, start_method="fork")
