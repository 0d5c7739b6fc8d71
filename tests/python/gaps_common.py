# SPDX-License-Identifier: Apache-2.0
"""What the trainings of gaps_worker.py, gaps_of_parts.py and gaps_of_exchanges.py have in common."""

from worker import seeded  # finds lockstep
import torch
import torch.distributed as dist
from torch import nn

import lockstep


def net():
    seeded(0)
    return nn.Sequential(nn.Linear(8, 6), nn.Tanh(), nn.Linear(6, 4))


def data(step, micro=0):
    seeded(dist.get_rank(), step, micro)
    return torch.randn(16, 8)


def lost(model, step, micro=0):
    return model(data(step, micro)).square().mean()


def average(module):
    for parameter in module.parameters():
        dist.all_reduce(parameter.grad, op=dist.ReduceOp.AVG)


def captured(model, optimizer, out, **options):
    return lockstep.capture(model, optimizer, out=out, report=False, **{"loss": "local_mean", **options})


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.1)
