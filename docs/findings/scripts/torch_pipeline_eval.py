# SPDX-License-Identifier: Apache-2.0
"""torch alone on gloo: a pipeline of two stages. What becomes of its gradient when schedule.step runs once more before the optimizer (accumulation), or
schedule.eval does. Each stage has one weight, whose gradient of the batch's mean is 1 after the first step."""

import multiprocessing
import os

import torch
import torch.distributed as dist
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe, ScheduleInterleaved1F1B

os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(20000 + os.getpid() % 10000), WORLD_SIZE="2", OMP_NUM_THREADS="1")
MICRO_BATCHES = 4


class Scaled(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(1))

    def forward(self, numbers):
        return numbers * self.weight


def gradient(rank, kind, calls):
    """Of this rank's stage after these calls of the schedule."""
    several = kind is ScheduleInterleaved1F1B
    stages = [PipelineStage(Scaled(), number, 4 if several else 2, torch.device("cpu")) for number in ((rank, rank + 2) if several else (rank,))]
    schedule = kind(stages if several else stages[0], MICRO_BATCHES, loss_fn=lambda output, target: output.mean())
    batch = torch.ones(MICRO_BATCHES, 1)
    for call in calls:
        run = getattr(schedule, call)
        with torch.set_grad_enabled(call == "step"):
            run(*([batch] if rank == 0 else []), **({"target": batch} if rank == 1 else {}))
    return stages[0].submod.weight.grad.item()


def main(rank):
    os.environ["RANK"] = str(rank)
    dist.init_process_group("gloo")
    for kind in (ScheduleGPipe, Schedule1F1B, ScheduleInterleaved1F1B):
        for calls in (["step"], ["step", "step"], ["step", "eval"]):
            found = gradient(rank, kind, calls)
            if rank == 0:
                print("%s, %s: %g" % (kind.__name__, " then ".join(calls), found), flush=True)


if __name__ == "__main__":
    ranks = [multiprocessing.get_context("fork").Process(target=main, args=(rank,)) for rank in range(2)]
    for one in ranks:
        one.start()
    for one in ranks:
        one.join()
    raise SystemExit(max(abs(one.exitcode) for one in ranks))
