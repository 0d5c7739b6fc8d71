# SPDX-License-Identifier: Apache-2.0
"""One rank of runs that end badly or are large: robust_worker.py FOLDER RANK WORLD CASE. A process runs one case and leaves without waiting for
others."""

import os
import resource
import shutil
import signal
import sys

import worker  # finds lockstep
import torch
import torch.distributed as dist
from torch import nn

import lockstep

RANK = 0  # of this process; main() knows it


def average(model):
    """In one all-reduce."""
    whole = torch.cat([parameter.grad.flatten() for parameter in model.parameters()])
    dist.all_reduce(whole, op=dist.ReduceOp.AVG)
    for parameter, part in zip(model.parameters(), whole.split([parameter.numel() for parameter in model.parameters()])):
        parameter.grad.copy_(part.view_as(parameter))


def trained(out, model, steps=2, reduce=average, after_backward=lambda step, micro: None, weigh=lambda loss, step: loss, captured=None):
    """`captured`: how many of the steps this rank captures."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    run = lockstep.attach(model, optimizer, out=out, loss="local_mean", report=False)
    for step in range(steps):
        if step == captured:
            run.close()
        for micro in range(2):
            worker.seeded(RANK, step, micro)
            weigh(model(torch.randn(20, 8)).square().mean() / 2, step).backward()
            after_backward(step, micro)
        reduce(model)
        optimizer.step()
        optimizer.zero_grad()
    run.close()


def model():
    worker.seeded(0)
    return nn.Sequential(nn.Linear(8, 12), nn.Tanh(), nn.Linear(12, 6))


def killed(out):
    """Rank 1 is gone from one moment to the next, in the second micro-batch of the second step."""
    def after_backward(step, micro):
        if RANK == 1 and step == 1 and micro == 1:
            os.kill(os.getpid(), signal.SIGKILL)
    trained(out, model(), reduce=lambda model: average(model) if dist.is_initialized() else None, after_backward=after_backward, steps=2)


def shorter(out):
    """Rank 1 captures one step of three."""
    trained(out, model(), steps=3, captured=1 if RANK == 1 else None)


def overflowed(out):
    """Rank 1's loss is no number in the second step."""
    trained(out, model(), weigh=lambda loss, step: loss * (torch.nan if RANK == 1 and step == 1 else 1))


def overflowed_after(out):
    """What is reduced overflows, in one element, and no backward has yielded that."""
    def reduce(model):
        average(model)
        model[0].weight.grad[0, 0] = torch.inf
    trained(out, model(), steps=1, reduce=reduce)


class Many(nn.Module):
    """Many parameters, every tenth without a gradient."""

    def __init__(self):
        super().__init__()
        self.scales = nn.ParameterList([torch.ones(8) for _ in range(100)])

    def forward(self, inputs):
        used = torch.stack([one for number, one in enumerate(self.scales) if number % 10])
        return torch.tanh(inputs[:, None, :] * used)


def without_gradient(out):
    many = Many()
    used = nn.ParameterList([one for number, one in enumerate(many.scales) if number % 10])
    trained(out, many, steps=1, reduce=lambda model: average(used))


def weights(out, captured, spoil=lambda out: None):
    """Of a training of four steps; in the middle nobody can write any more."""
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    # With so many sums that sketches are larger than all lines.
    run = lockstep.attach(net, optimizer, out=out, loss="local_mean", sums=1024) if captured else None
    for step in range(4):
        if captured and step == 2:
            spoil(out)
        for micro in range(2):
            worker.seeded(RANK, step, micro)
            (net(torch.randn(20, 8)).square().mean() / 2).backward()
        average(net)
        optimizer.step()
        optimizer.zero_grad()
    if captured:
        run.close()
    return list(net.parameters())


def unwritable(out, spoil):
    pairs = zip(weights(out, False), weights(out, True, spoil))
    if not all(torch.equal(one, other) for one, other in pairs):
        os._exit(1)


def full(out):
    """Rank 1 can write a line and a half more."""
    def spoil(out):
        if RANK == 1:
            size = os.path.getsize(os.path.join(out, "rank-00001.jsonl")) + 300
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
    unwritable(out, spoil)


def full_of_sketches(out):
    """What is larger than all lines cannot be written."""
    def spoil(out):
        size = max(os.path.getsize(os.path.join(out, name)) for name in os.listdir(out)) - 1
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
    unwritable(out, spoil)


def nobody_to_warn(out):
    """Standard error is on the same disk."""
    def spoil(out):
        os.dup2(os.open("/dev/full", os.O_WRONLY), 2)
        dist.barrier()
        shutil.rmtree(out, ignore_errors=True)
        dist.barrier()
    unwritable(out, spoil)


def gone(out):
    """Somebody removes the folder."""
    def spoil(out):
        dist.barrier()
        shutil.rmtree(out, ignore_errors=True)
        dist.barrier()
    unwritable(out, spoil)


def main():
    global RANK
    RANK = int(sys.argv[2])
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method="file://" + os.path.abspath(os.path.join(sys.argv[1], "store")), rank=RANK, world_size=int(sys.argv[3]))
    try:
        globals()[sys.argv[4]](os.path.join(sys.argv[1], "run"))
    except RuntimeError as error:  # a collective whose other rank is gone
        print("the other rank is gone: %s" % error, file=sys.stderr)
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
