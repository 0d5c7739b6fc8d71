# SPDX-License-Identifier: Apache-2.0
"""torch alone on gloo, two ranks: losses of logits that are sharded by classes, with and without loss_parallel. Each line has the loss over that of whole logits, and how far
the gradient of the logits is from that of whole logits (the norm of the difference over the norm)."""

import contextlib
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import loss_parallel

os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(20000 + os.getpid() % 10000), WORLD_SIZE="2", OMP_NUM_THREADS="1")
LOSSES = {"cross_entropy": lambda logits, labels, others: F.cross_entropy(logits, labels),
          "entropy": lambda logits, labels, others: (F.log_softmax(logits, 1).exp() * F.log_softmax(logits, 1)).sum(),
          "distillation": lambda logits, labels, others: -(F.log_softmax(logits, 1) * others).sum()}


def whole(one):
    return one.full_tensor() if isinstance(one, DTensor) else one


def main(rank):
    os.environ["RANK"] = str(rank)
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (2,))
    torch.manual_seed(0)
    logits, labels, others = torch.randn(4, 6), torch.tensor([0, 3, 5, 1]), torch.randn(4, 6).softmax(1)
    for context in (contextlib.nullcontext, loss_parallel):
        for name, loss in LOSSES.items():
            one = logits.clone().requires_grad_()
            right = loss(one, labels, others)
            right.backward()
            parts = distribute_tensor(logits, mesh, [Shard(1)]).requires_grad_()
            with context():
                found = loss(parts, distribute_tensor(labels, mesh, [Replicate()]), distribute_tensor(others, mesh, [Shard(1)]))
                found.backward()
            apart = (whole(parts.grad) - one.grad).norm() / one.grad.norm()
            result = (whole(found) / right).item(), apart.item()
            if rank == 0:
                print("%s, %s: %.3f %.3f" % (context.__name__, name, *result), flush=True)


if __name__ == "__main__":
    torch.multiprocessing.start_processes(main, nprocs=2, start_method="fork")
