# SPDX-License-Identifier: Apache-2.0
"""Cases of gaps_worker.py in which a backward of the script's own, or an optimizer's step, exchanges gradients, or a gradient is shares of a sum."""

from worker import case, seeded, variant  # finds lockstep
import torch
import torch.distributed as dist
from torch import nn

from gaps_common import average, captured, data, lost, net, sgd


def scattered_and_gathered(gradient):
    part = torch.empty(gradient.numel() // dist.get_world_size())
    dist.reduce_scatter_tensor(part, gradient.flatten().contiguous())
    whole = torch.empty(gradient.numel())
    dist.all_gather_into_tensor(whole, part)
    return whole.view_as(gradient)


def gathered(gradient):
    everybody = [torch.empty_like(gradient) for _ in range(dist.get_world_size())]
    dist.all_gather(everybody, gradient.contiguous())
    return torch.stack(everybody)


def from_the_first(gradient):
    gradient = gradient.clone()
    dist.broadcast(gradient, 0)
    return gradient


def with_the_other(gradient):
    gradient, other = gradient.contiguous(), torch.empty_like(gradient)
    peer = 1 - dist.get_rank()
    for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, gradient, peer), dist.P2POp(dist.irecv, other, peer)]):
        work.wait()
    return gradient + other


class Brought(torch.autograd.Function):
    """A weight whose gradient is what `bring` makes of each rank's own."""

    @staticmethod
    def forward(context, weight, bring):
        context.bring = bring
        return weight.clone()

    @staticmethod
    def backward(context, gradient):
        return context.bring(gradient), None


def brought_in_backward(out, bring):
    """Nobody divides by the ranks; other parameters are averaged."""
    model = net()
    optimizer = sgd(model.parameters())
    with captured(model, optimizer, out):
        for step in range(2):
            optimizer.zero_grad()
            hidden = nn.functional.linear(data(step), Brought.apply(model[0].weight, bring), model[0].bias)
            model[1:](hidden).square().mean().backward()
            dist.all_reduce(model[0].bias.grad, op=dist.ReduceOp.AVG)
            average(model[2])
            optimizer.step()


variant("scattered_and_gathered_in_backward", 2, brought_in_backward, bring=scattered_and_gathered)
variant("gathered_in_backward", 2, brought_in_backward, bring=lambda gradient: gathered(gradient).sum(0))
variant("gathered_and_averaged_in_backward", 2, brought_in_backward, bring=lambda gradient: gathered(gradient).mean(0))
variant("broadcast_in_backward", 2, brought_in_backward, bring=from_the_first)
variant("exchanged_by_two_in_backward", 2, brought_in_backward, bring=with_the_other)


@case(2)
def gathered_by_a_hook_of_before(out):
    model = net()
    model[0].weight.register_hook(lambda gradient: gathered(gradient).sum(0))
    optimizer = sgd(model.parameters())
    with captured(model, optimizer, out):
        for step in range(2):
            optimizer.zero_grad()
            lost(model, step).backward()
            dist.all_reduce(model[0].bias.grad, op=dist.ReduceOp.AVG)
            average(model[2])
            optimizer.step()


class Exchanged(torch.autograd.Function):
    """Tokens go to other ranks, as to experts, and their gradients come back."""

    @staticmethod
    def forward(context, tokens):
        received = torch.empty_like(tokens)
        dist.all_to_all_single(received, tokens.contiguous())
        return received

    @staticmethod
    def backward(context, gradient):
        return Exchanged.forward(None, gradient)


@case(2)
def tokens_that_are_exchanged(out):
    """A bias whose gradient is the sum of what came back is this rank's own."""
    model = net()
    optimizer = sgd(model.parameters())
    with captured(model, optimizer, out):
        for step in range(2):
            optimizer.zero_grad()
            model[1:](Exchanged.apply(model[0](data(step)))).square().mean().backward()
            average(model)
            optimizer.step()


@case(2)
def gathered_in_backward_with_a_pass_within(out):
    """Between the gradient that was gathered and its parameter another backward pass runs, of activation checkpointing, and has collectives of its own."""
    from torch.utils.checkpoint import checkpoint

    model = net()
    optimizer = sgd(model.parameters())
    with captured(model, optimizer, out):
        for step in range(2):
            optimizer.zero_grad()
            weight = model[0].weight * 1
            inputs = checkpoint(Exchanged.apply, data(step).requires_grad_(), use_reentrant=True)
            weight = Brought.apply(weight, lambda gradient: gathered(gradient).sum(0))
            model[1:](nn.functional.linear(inputs, weight, model[0].bias)).square().mean().backward()
            dist.all_reduce(model[0].bias.grad, op=dist.ReduceOp.AVG)
            average(model[2])
            optimizer.step()


class Gathering(torch.optim.SGD):
    """Averages in its own step what it gathers."""

    @torch.no_grad()
    def step(self, closure=None):
        for parameter in self.param_groups[0]["params"]:
            parameter.grad = gathered(parameter.grad).mean(0)
        return super().step(closure)


@case(2)
def gathered_in_step(out):
    model = net()
    optimizer = Gathering(model.parameters(), lr=0.1)
    with captured(model, optimizer, out):
        for step in range(2):
            optimizer.zero_grad()
            lost(model, step).backward()
            optimizer.step()


class Local(torch.optim.SGD):
    """Averages shares of a gradient in its own step."""

    @torch.no_grad()
    def step(self, closure=None):
        for parameter in self.param_groups[0]["params"]:
            whole = parameter.grad.to_local().clone()
            dist.all_reduce(whole)
            parameter.to_local().sub_(whole / dist.get_world_size(), alpha=0.1)


def shares(out, kind="sum", divisor=1, optimizer=torch.optim.SGD):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import distribute_tensor, Partial, Replicate

    mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("dp",))
    seeded(0)
    model = nn.Linear(8, 4, bias=False)
    model.weight = nn.Parameter(distribute_tensor(model.weight.data, mesh, [Replicate()]))
    optimizer = optimizer(model.parameters(), lr=0.1)
    with captured(model, optimizer, out):
        for step in range(2):
            optimizer.zero_grad()
            weight = model.weight.to_local(grad_placements=[Partial(kind)])
            (nn.functional.linear(data(step), weight).square().mean() / divisor).backward()
            optimizer.step()


variant("shares_of_a_sum", 2, shares)
variant("shares_of_a_mean", 2, shares, kind="avg")
variant("shares_that_the_optimizer_averages", 2, shares, optimizer=Local)
