# SPDX-License-Identifier: Apache-2.0
"""torch alone on gloo, 2 and 4 ranks: losses with reduction="mean", the default, of DTensors. Each line has what the loss of the DTensors is over that of the whole
tensors, and what the gradient of the weight that made the outputs is over that of the whole tensors; both are 1 where DTensors compute what one tensor does."""

import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

os.environ.update(MASTER_ADDR="127.0.0.1", OMP_NUM_THREADS="1")


def ratios(loss, rows, placement, ranks):
    """Of the loss and of its gradient, for outputs of that many rows."""
    torch.manual_seed(0)
    inputs, weight, targets = torch.rand(rows, 8), torch.rand(8, 12), torch.rand(rows, 12)
    whole = weight.clone().requires_grad_()
    right = loss(torch.sigmoid(inputs @ whole), targets)
    right.backward()
    mesh = init_device_mesh("cpu", (ranks,))
    rows_over, columns_over = {"rows": (Shard(0), Replicate()), "columns": (Replicate(), Shard(1))}[placement]
    parts = distribute_tensor(weight, mesh, [columns_over]).requires_grad_()
    found = loss(torch.sigmoid(distribute_tensor(inputs, mesh, [rows_over]) @ parts), distribute_tensor(targets, mesh, [Shard(int(placement == "columns"))]))
    found.backward()
    return (found.full_tensor() / right).item(), (parts.grad.full_tensor() / whole.grad).median().item()


def main(rank, ranks):
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(ranks), MASTER_PORT=str(20000 + os.getppid() % 10000 + ranks))
    dist.init_process_group("gloo")
    losses = {name: getattr(F, name) for name in ("mse_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy", "l1_loss", "binary_cross_entropy_with_logits")}
    losses["mse_loss, sum"] = lambda outputs, targets: F.mse_loss(outputs, targets, reduction="sum")
    losses["(outputs - targets).square().mean()"] = lambda outputs, targets: (outputs - targets).square().mean()
    for rows, placement in ((8, "rows"), (8, "columns"), (5, "rows")):
        for name, loss in losses.items():
            if (placement, ranks) in (("rows", 2), ("columns", 2), ("rows", 4)) and (rows == 8 or ranks == 2):
                found = ratios(loss, rows, placement, ranks)
                if rank == 0:
                    print("%d ranks, %s of %d by 12, %s: %.3g %.3g" % (ranks, placement, rows, name, *found), flush=True)


if __name__ == "__main__":
    for ranks in (2, 4):
        torch.multiprocessing.start_processes(main, (ranks,), nprocs=ranks, start_method="fork")
