# SPDX-License-Identifier: Apache-2.0
"""A training script of torch.distributed.pipelining as people write it, for `lockstep extract`: pipelined_extracted.py CASE, with two or four stages on
pp 2, and data parallel beside it. With CAPTURE=FOLDER in the environment it is captured as well, for ranks that really run; nothing else differs.
"""

import contextlib
import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import pipelining
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

MICRO_BATCHES = 4


class Stage(nn.Module):
    """Layers of the whole model, by their numbers in it."""

    def __init__(self, layers):
        super().__init__()
        self.layers = nn.ModuleDict({str(number): nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8)) for number in layers})

    def forward(self, inputs):
        for layer in self.layers.values():
            inputs = torch.tanh(layer(inputs))
        return inputs


class Words(nn.Module):
    """The first stage, or the last, which has the same embedding."""

    def __init__(self, is_last):
        super().__init__()
        self.wte = nn.Embedding(16, 8)
        self.is_last = is_last

    def forward(self, inputs):
        return inputs @ self.wte.weight.t() if self.is_last else torch.tanh(self.wte(inputs))


def capture(model, optimizer):
    if "CAPTURE" not in os.environ:
        return contextlib.nullcontext()
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "python"))
    import lockstep

    return lockstep.capture(model, optimizer, mesh={"pp": 2, "dp": dist.get_world_size() // 2}, out=os.environ["CAPTURE"], loss="local_mean", report=False)


def main(case):
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (2, dist.get_world_size() // 2), mesh_dim_names=("pp", "dp"))
    pp, dp, group = mesh.get_local_rank("pp"), mesh.get_local_rank("dp"), mesh.get_group("dp")
    chunks = 2 if case in ("interleaved", "zero-bubble", "dual-pipe-v", "interleaved-not-reduced") else 1
    own, last = ([pp, 3 - pp], 0) if case == "dual-pipe-v" else ([pp + 2 * chunk for chunk in range(chunks)], 1)
    tied = case.startswith("tied")

    def module(number):
        torch.manual_seed(3 if case == "begin-alike" or tied else 3 + number)
        if tied:
            return Words(number == 1)
        one = Stage([0, 1] if case in ("own-names", "own-names-mixed", "begin-alike") else [2 * number, 2 * number + 1])
        if case == "fsdp2":
            fully_shard(one, mesh=mesh["dp"])
        return DistributedDataParallel(one, process_group=group) if case == "ddp" else one

    modules = [module(number) for number in own]
    stages = [pipelining.PipelineStage(one, number, 2 * chunks, torch.device("cpu"), group=mesh.get_group("pp")) for number, one in zip(own, modules)]

    def loss(outputs, target):
        return nn.functional.cross_entropy(outputs.flatten(0, 1), target.flatten()) if tied else (outputs - target).square().mean()

    if chunks > 1:
        kinds = {"zero-bubble": pipelining.ScheduleInterleavedZeroBubble, "dual-pipe-v": getattr(pipelining, "ScheduleDualPipeV", None)}
        schedule = kinds.get(case, pipelining.ScheduleInterleaved1F1B)(stages, MICRO_BATCHES, loss_fn=loss)
    else:
        schedule = (pipelining.ScheduleGPipe if case == "gpipe" else pipelining.Schedule1F1B)(stages[0], MICRO_BATCHES, loss_fn=loss)
    model = nn.ModuleList(modules) if chunks > 1 else modules[0]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with capture(model, optimizer):
        for step in range(2):
            optimizer.zero_grad()
            for number in range(2 if case == "two-schedules" else 1):
                torch.manual_seed(100 * dp + 10 * step + number)
                inputs = torch.randint(0, 16, (8, 4)) if tied else torch.randn(8, 8)
                target = inputs if tied else torch.randn(8, 8)
                schedule.step(*[inputs] if pp == 0 else [], **{"target": target, "losses": []} if pp == last else {})
            if case == "evaluated-before-the-step":
                schedule.eval(*[inputs] if pp == 0 else [], **{"target": target, "losses": []} if pp == last else {})
            if case == "tied":
                dist.all_reduce(model.wte.weight.grad, group=mesh.get_group("pp"))
            if case not in ("fsdp2", "ddp", "not-reduced", "interleaved-not-reduced"):
                for parameter in model.parameters():
                    dist.all_reduce(parameter.grad, group=None if case == "own-names-mixed" else group)
                    parameter.grad /= 1 if case == "summed" else dist.get_world_size(group)
            optimizer.step()
            if case == "evaluated":
                schedule.eval(*[inputs] if pp == 0 else [], **{"target": target, "losses": []} if pp == last else {})
    dist.destroy_process_group()


main(*sys.argv[1:])
