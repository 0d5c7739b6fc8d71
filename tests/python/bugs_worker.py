# SPDX-License-Identifier: Apache-2.0
"""One rank of runs with a real bug: bugs_worker.py FOLDER RANK WORLD CASE…. A case is one of the training scripts below, under torch's own
wrappers or none, and the one option or line of it that is another; those that are called right have none, or one that must not matter."""

import warnings

import torch
import torch.distributed as dist
import worker  # finds lockstep
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.fsdp._fully_shard import _fsdp_collectives
from torch.distributed.fsdp._fully_shard._fsdp_param_group import FSDPParamGroup
from torch.nn.parallel import DistributedDataParallel
from worker import Block, parallel_block, seeded, train_block
from worker import variant as case

import lockstep


class Adapted(nn.Module):
    """A norm, a linear layer, and beside it an adapter of low rank, which may be left out."""

    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.base = nn.Linear(8, 8)
        self.down = nn.Linear(8, 4, bias=False)
        self.up = nn.Linear(4, 8, bias=False)

    def forward(self, inputs, adapter=True):
        hidden = self.norm(inputs)
        return torch.tanh(self.base(hidden)) + (self.up(self.down(hidden)) if adapter else 0)


class Tied(nn.Module):
    """An embedding that is the last layer's weight as well."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(12, 8)
        self.hidden = nn.Linear(8, 8)
        self.head = nn.Linear(8, 12, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, inputs, adapter=True):
        tokens = inputs[:, 0].mul(100).long() % 12
        return self.head(torch.tanh(self.hidden(self.embedding(tokens))))


class Branches(nn.Module):
    """A trunk and two branches of the same shapes, of which a pass takes one, both or none: a router's choice."""

    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.base = nn.Linear(8, 8)
        self.left = nn.Linear(8, 8)
        self.right = nn.Linear(8, 8)

    def forward(self, inputs, taken="both"):
        hidden = self.norm(inputs)
        output = torch.tanh(self.base(hidden))
        for name in ("left", "right"):
            if taken in (name, "both"):
                output = output + getattr(self, name)(hidden)
        return output


def nothing(*_):
    pass


def zero_all(model, optimizer):
    optimizer.zero_grad()


def inputs_of(data_rank, step, micro_batch, rows=6):
    seeded(data_rank, step, micro_batch)
    return torch.randn(rows, 8)


def train(out, model, forward=None, loss="local_mean", mesh=None, data_rank=None, steps=1, micro_batches=2, divisor=2, rows=None, weigh=None,
          before_forward=nothing, before_backward=nothing, after_backward=nothing, before_step=nothing, after_step=zero_all,
          adapter=lambda step, micro: True, scaler=None):
    """A training loop. `loss` is a mean over rows, or with weigh(rows, rank) what that makes of their sum; `adapter` is what the model's
    forward pass gets beside its inputs."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    rank = dist.get_rank() if data_rank is None else data_rank
    with lockstep.capture(model, optimizer, mesh=mesh, out=out, loss=loss, report=False) as run:
        for step in range(steps):
            for micro in range(micro_batches):
                count = rows(rank, micro) if rows else 6
                run.micro_batch(tokens=count)
                last = micro == micro_batches - 1
                before_forward(model, micro, last)
                output = (forward or (lambda model: model))(model)(inputs_of(rank, step, micro, count), adapter(step, micro))
                before_backward(model, micro, last)
                value = output.square().sum() * weigh(count) if weigh else output.square().sum() / count / divisor
                (scaler.scale(value) if scaler else value).backward()
                after_backward(model, optimizer, last)
            before_step(model)
            if scaler:
                scaler.step(optimizer)
                scaler.update()
            else:
                optimizer.step()
            after_step(model, optimizer)


def at_last(model, micro, last):
    model.require_backward_grad_sync = last


def at_first(model, micro, last):
    model.require_backward_grad_sync = micro == 0


def ddp(out, make=Adapted, ignored=(), hook=None, unused=False, before_forward=at_last, **changed):
    seeded(0)
    model = make()
    if ignored:
        DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(model, ignored)
    model = DistributedDataParallel(model, find_unused_parameters=unused)
    if hook:
        model.register_comm_hook(None, hook)
    train(out, model, before_forward=before_forward, **changed)


def ddp_in_mesh(out, axis="dp"):
    """Ranks along tp do the same here: each has the whole model and the same tokens."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    seeded(0)
    model = DistributedDataParallel(Adapted(), process_group=mesh[axis].get_group())
    train(out, model, mesh=mesh, data_rank=mesh.get_local_rank("dp"), before_forward=at_last)


def divided_again(state, bucket):
    return default_hooks.allreduce_hook(None, bucket).then(lambda future: future.value() / dist.get_world_size())


def uneven(rank, micro):
    return 4 + 3 * rank + micro  # 4, 5 and 7, 8: 24 rows


def all_again(model):
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)


def zeroed(model, optimizer, last):
    if not last:
        optimizer.zero_grad()


def infinite_at_first(model):
    if not hasattr(model, "was_infinite"):
        model.was_infinite = True
        next(model.parameters()).grad.fill_(float("inf"))


def scaled(out, **changed):
    """Losses are scaled; the scaler skips the first optimizer step, and halves its scale then."""
    ddp(out, steps=3, scaler=torch.amp.GradScaler("cpu"), before_step=infinite_at_first, **changed)


case("ddp-right", 2, ddp)
case("ddp-scaler-right", 2, scaled)
case("ddp-hook-right", 2, ddp, hook=default_hooks.fp16_compress_hook)
case("ddp-boundary", 2, ddp, before_forward=at_first)
case("ddp-flag", 2, ddp, before_forward=nothing, before_backward=at_last, micro_batches=4, divisor=4)
case("ddp-unwrapped", 2, ddp, forward=lambda model: model.module)
case("ddp-hook", 2, ddp, hook=divided_again)
case("ddp-ignored", 2, ddp, make=Tied, ignored=["embedding.weight", "head.weight"])
case("ddp-group", 4, ddp_in_mesh, axis="tp")
case("ddp-group-right", 4, ddp_in_mesh)
case("ddp-not-divided", 2, ddp, loss="token_mean", divisor=1)
case("ddp-tokens", 2, ddp, loss="token_mean", rows=uneven)
case("ddp-tokens-right", 2, ddp, loss="sum", rows=uneven, weigh=lambda count: 1 / 24, before_step=all_again, before_forward=nothing,
     forward=lambda model: model.module)
case("ddp-sum", 2, ddp, loss="sum", rows=uneven, weigh=lambda count: 1 / 24)
case("ddp-last", 2, ddp, after_backward=zeroed, micro_batches=3, divisor=3)
case("ddp-not-zeroed", 2, ddp, steps=2, after_step=nothing)
case("ddp-reduced-again", 2, ddp, before_step=all_again)
case("ddp-unused-right", 2, ddp, unused=True, adapter=lambda step, micro: micro == 0)
case("ddp-unused", 2, ddp, adapter=lambda step, micro: False)
case("ddp-clipped", 2, ddp, forward=lambda model: model.module, before_step=lambda model: (
    nn.utils.clip_grad_norm_(model.parameters(), 0.1), [dist.all_reduce(one.grad, op=dist.ReduceOp.AVG) for one in model.parameters()]))


# Plain loops: the script reduces by itself.

def average(model, op=dist.ReduceOp.AVG):
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad, op=op)


def before_the_last(steps):
    """Reduces after all micro-batches but the last: what that one adds comes too late."""
    passed = []

    def after_backward(model, optimizer, last):
        passed.append(last)
        if len(passed) == steps:
            average(model)
    return after_backward


def plain(out, before_step=average, make=Adapted, **changed):
    seeded(0)
    train(out, make(), before_step=before_step, **changed)


def average_used(model):
    """As written by hand: what has no gradient here is passed over, whatever other ranks do."""
    for parameter in model.parameters():
        if parameter.grad is not None:
            dist.all_reduce(parameter.grad, op=dist.ReduceOp.AVG)


def average_with_zeros(model, over_users):
    """What another rank has used counts as zeros here. `over_users`: and divides by the ranks that have used it alone."""
    for parameter in model.parameters():
        users = torch.tensor(float(parameter.grad is not None))
        dist.all_reduce(users)
        if users:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            dist.all_reduce(parameter.grad)
            parameter.grad /= users if over_users else dist.get_world_size()


def one_branch_each(step, micro):
    return ("left", "right")[dist.get_rank()]


def zero_left(model, optimizer):
    """Gradients of what the next forward pass takes."""
    for name, parameter in model.named_parameters():
        if not name.startswith("right"):
            parameter.grad = None


def scaled_by_norm(model):
    """Clips by hand, which no capture sees."""
    norm = torch.cat([parameter.grad.flatten() for parameter in model.parameters()]).norm()
    for parameter in model.parameters():
        parameter.grad.mul_(0.1 / norm)
    average(model)


case("plain-right", 2, plain)
case("plain-broadcast", 2, plain, before_step=lambda model: [dist.broadcast(one.grad, 0) for one in model.parameters()])
case("plain-late", 2, plain, before_step=nothing, after_backward=before_the_last(3), micro_batches=4, divisor=4)
case("plain-every-right", 2, plain, before_step=nothing, after_backward=lambda model, optimizer, last: average(model))
case("plain-clipped", 2, plain, before_step=scaled_by_norm)
case("plain-left-out", 2, plain, before_step=lambda model: [
    dist.all_reduce(one.grad, op=dist.ReduceOp.AVG) for name, one in model.named_parameters() if "norm" not in name])
case("plain-branches-right", 2, plain, make=Branches, adapter=one_branch_each, before_step=lambda model: average_with_zeros(model, False))
case("plain-branches", 2, plain, make=Branches, adapter=one_branch_each, before_step=average_used)
case("plain-users", 2, plain, make=Branches, adapter=one_branch_each, before_step=lambda model: average_with_zeros(model, True))
case("plain-kept", 2, plain, make=Branches, adapter=lambda step, micro: "left" if step else "both", steps=2, before_step=average_used,
     after_step=zero_left)
case("plain-divisor", 2, plain, before_step=lambda model: (
    average(model, dist.ReduceOp.SUM), [one.grad.div_(2 * dist.get_world_size()) for one in model.parameters()]))


# FSDP2 and HSDP.

def every(model, micro, last):
    model.set_requires_gradient_sync(True)


def fsdp(out, axes=("dp_shard",), before_forward=every, ignored=(), model_of=Adapted, after_wrap=nothing, **changed):
    world = dist.get_world_size()
    both = init_device_mesh("cpu", (2, world // 2), mesh_dim_names=("dp_replicate", "dp_shard")) if world == 4 else \
        init_device_mesh("cpu", (world,), mesh_dim_names=("dp_shard",))
    seeded(0)
    model = model_of()
    left = {parameter for name, parameter in model.named_parameters() if name.startswith(tuple(ignored))} if ignored else None
    part = both[axes] if len(axes) < both.ndim else both
    fully_shard(model, mesh=part, ignored_params=left)
    after_wrap(model)
    train(out, model, mesh=both, before_forward=before_forward, **changed)


def hsdp(out, factors=None, group=None, **changed):
    """Two replicas of two shards. `factors`: what torch divides by before and after its collectives, and their ops; `group`: the axis
    whose group it takes for that of the replicas."""
    kept_factors, kept_group = _fsdp_collectives._get_gradient_divide_factors, FSDPParamGroup._all_reduce_process_group
    if factors:
        _fsdp_collectives._get_gradient_divide_factors = lambda *_: factors
    if group:
        FSDPParamGroup._all_reduce_process_group = property(lambda self: self.mesh_info.mesh[group].get_group())
    try:
        fsdp(out, axes=("dp_replicate", "dp_shard"), **changed)
    finally:
        _fsdp_collectives._get_gradient_divide_factors, FSDPParamGroup._all_reduce_process_group = kept_factors, kept_group


case("fsdp-right", 2, fsdp)
case("fsdp-last-right", 2, fsdp, before_forward=lambda model, micro, last: model.set_requires_gradient_sync(last))
case("fsdp-boundary", 2, fsdp, before_forward=lambda model, micro, last: model.set_requires_gradient_sync(micro == 0))
case("fsdp-not-divided", 2, fsdp, loss="token_mean", divisor=1)
case("fsdp-tokens", 2, fsdp, loss="token_mean", rows=uneven)
case("fsdp-adapter", 2, fsdp, ignored=("down", "up"))
case("fsdp-unused-right", 2, fsdp, model_of=Branches, adapter=one_branch_each,
     after_wrap=lambda model: model.set_reduce_scatter_unused_params(True))
case("hsdp-right", 4, hsdp)
case("hsdp-last-right", 4, hsdp, before_forward=lambda model, micro, last: model.set_requires_all_reduce(last))
case("hsdp-boundary", 4, hsdp, before_forward=lambda model, micro, last: model.set_requires_all_reduce(micro == 0))
case("hsdp-shard-divisor", 4, hsdp, factors=(None, None, dist.ReduceOp.AVG, dist.ReduceOp.SUM))
case("hsdp-divided-twice", 4, hsdp, factors=(4.0, None, dist.ReduceOp.SUM, dist.ReduceOp.AVG))
case("hsdp-replicas-alone", 4, fsdp, axes=("dp_replicate",))
case("hsdp-no-replicas", 4, fsdp)


# DTensor: tensor parallelism with sequence parallelism.

def tensor_parallel(out, sequence=True, norm=None, axis="tp", sharded=False):
    """Without `sequence`, the norm is no DTensor: each rank has all of its weight and the gradient of its part of the sequence. `norm`: how
    the script reduces it, along `axis`. Four ranks are two of data, averaged by the script, or `sharded` by FSDP2. A norm's piece has more
    elements than there are contributions."""
    from torch.distributed.tensor import Shard
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    data = dist.get_world_size() // 2
    mesh = init_device_mesh("cpu", (data, 2)[data == 1:], mesh_dim_names=("dp", "tp")[data == 1:])
    inner = mesh["tp"]
    if sequence:
        model = parallel_block(inner, 32)
    else:
        seeded(0)
        model = parallelize_module(Block(32), inner, {"up": ColwiseParallel(input_layouts=Shard(1)),
                                                      "down": RowwiseParallel(output_layouts=Shard(1))})
    if sharded:
        model = fully_shard(model, mesh=mesh["dp"])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def reduced(parameters, over, op):
        for parameter in parameters:
            dist.all_reduce(getattr(parameter.grad, "_local_tensor", parameter.grad), op=op, group=mesh[over].get_group())

    def synchronize():
        if data > 1 and not sharded:
            reduced(model.parameters(), "dp", dist.ReduceOp.AVG)
        if norm is not None:
            reduced(model.norm.parameters(), axis, norm)

    with lockstep.capture(model, optimizer, mesh=mesh, out=out, loss="local_mean", report=False):
        train_block(model, optimizer, dist.get_rank() // 2, 2, mesh.get_local_rank("tp"), synchronize=synchronize)


class Words(nn.Module):
    """An embedding, a block and a last layer, as language models have them."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(16, 8)
        self.norm = nn.LayerNorm(8)
        self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 8)
        self.output = nn.Linear(8, 16, bias=False)

    def forward(self, tokens):
        hidden = self.embedding(tokens)
        return self.output(hidden + self.down(self.up(self.norm(hidden)).tanh()))


def words(out, zeroed=True, factor=None):
    """torch's own recipe of FSDP2 over tensor and sequence parallelism, with a vocabulary that is cut: backward yields all of the embedding's gradient
    on each rank, which keeps its part."""
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, SequenceParallel, parallelize_module

    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    seeded(0)
    model = parallelize_module(Words(), mesh["tp"], {
        "embedding": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)), "norm": SequenceParallel(),
        "up": ColwiseParallel(input_layouts=Shard(1)), "down": RowwiseParallel(output_layouts=Shard(1)),
        "output": ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate())})
    fully_shard(model, mesh=mesh["dp"])
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    with lockstep.capture(model, optimizer, out=out, loss="local_mean", report=False):
        for step in range(2):
            seeded(mesh.get_local_rank("dp"), step)
            tokens = torch.randint(0, 16, (4, 6))
            nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.roll(-1, 1).flatten()).backward()
            for parameter in model.parameters() if factor else ():
                parameter.grad.mul_(factor)
            optimizer.step()
            if zeroed:
                optimizer.zero_grad()


case("tp-right", 2, tensor_parallel)
case("fsdp-tp-right", 4, worker.fsdp2_tensor_parallel)
case("tp-own-norm-right", 2, tensor_parallel, sequence=False, norm=dist.ReduceOp.SUM)
case("tp-dp-right", 4, tensor_parallel, sequence=False, norm=dist.ReduceOp.SUM)
case("tp-norm", 2, tensor_parallel, sequence=False)
case("tp-norm-average", 2, tensor_parallel, sequence=False, norm=dist.ReduceOp.AVG)
case("tp-norm-again", 2, tensor_parallel, norm=dist.ReduceOp.SUM)
case("tp-group", 4, tensor_parallel, sequence=False, norm=dist.ReduceOp.SUM, axis="dp")
case("fsdp-tp-norm", 4, tensor_parallel, sequence=False, sharded=True)
case("fsdp-tp-words-right", 4, words)
case("fsdp-tp-words-kept", 4, words, zeroed=False)
case("fsdp-tp-words-halved", 4, words, factor=0.5)


# Backwards that are wrong before anything is synchronized: a run of the same model on the same data on one rank tells.

class Halved(torch.autograd.Function):
    """A function of one's own whose backward divides by the number of ranks, as if nobody else averaged."""

    @staticmethod
    def forward(ctx, inputs):
        return inputs.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient / 2


class Scaled(Adapted):
    def forward(self, inputs, adapter=True):
        hidden = Halved.apply(self.norm(inputs))
        return torch.tanh(self.base(hidden)) + self.up(self.down(hidden))


def single(out, world=2, micro_batches=2, loss="local_mean"):
    """All ranks' micro-batches on one rank, one after the other."""
    seeded(0)
    model = Adapted()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with lockstep.capture(model, optimizer, out=out, loss=loss, report=False) as run:
        for rank in range(world):
            for micro in range(micro_batches):
                run.micro_batch(tokens=6)
                (model(inputs_of(rank, 0, micro)).square().sum() / 6 / micro_batches / world).backward()
        optimizer.step()


case("single", 1, single)
case("ddp-reference-right", 2, ddp, reference="single")
case("fsdp-reference-right", 2, fsdp, reference="single")
case("ddp-backward", 2, ddp, make=Scaled, reference="single")
case("ddp-backward-and-boundary", 2, ddp, make=Scaled, before_forward=at_first, reference="single")


class Copied(torch.autograd.Function):
    """What every rank has goes to the ranks' parts of a matrix: backward adds up what they send back, or forgets it."""

    @staticmethod
    def forward(ctx, inputs, summed):
        ctx.summed = summed
        return inputs.view_as(inputs)

    @staticmethod
    def backward(ctx, gradient):
        if ctx.summed:
            gradient = gradient.clone()
            dist.all_reduce(gradient)
        return gradient, None


class AddedUp(torch.autograd.Function):
    @staticmethod
    def forward(ctx, inputs):
        inputs = inputs.clone()
        dist.all_reduce(inputs)
        return inputs

    @staticmethod
    def backward(ctx, gradient):
        return gradient


def column_and_row(hidden, block, summed, bias_divided):
    """Tensor parallelism by hand, as Megatron has it; with `bias_divided`, the bias is among what is added up."""
    local = [one.to_local() for one in (block.up.weight, block.up.bias, block.down.weight)]
    hidden = torch.tanh(nn.functional.linear(Copied.apply(hidden, summed), *local[:2]))
    if bias_divided:
        return AddedUp.apply(nn.functional.linear(hidden, local[2], block.down.bias / dist.get_world_size()))
    return AddedUp.apply(nn.functional.linear(hidden, local[2])) + block.down.bias


def blocks_by_hand(out, summed=True, bias_divided=False):
    """Two blocks, one above the other, on one rank whole, on two cut by hand. `summed`: whether backward has the all-reduce that belongs to the
    copying of inputs."""
    from torch.distributed.tensor import Shard, distribute_tensor

    world = dist.get_world_size()
    seeded(0)
    model = nn.Sequential(Block(), Block())
    mesh = init_device_mesh("cpu", (world,), mesh_dim_names=("tp",))
    if world > 1:
        for block in model:
            for layer, name, dimension in [(block.up, "weight", 0), (block.up, "bias", 0), (block.down, "weight", 1)]:
                cut = distribute_tensor(getattr(layer, name).detach(), mesh, [Shard(dimension)])
                setattr(layer, name, nn.Parameter(cut))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with lockstep.capture(model, optimizer, mesh=mesh, out=out, loss="local_mean", report=False):
        for micro in range(2):
            hidden = inputs_of(0, 0, micro)
            for block in model:
                hidden = hidden + column_and_row(block.norm(hidden), block, summed, bias_divided) if world > 1 else block(hidden)
            (hidden.square().mean() / 2).backward()
        optimizer.step()


case("tp-single", 1, blocks_by_hand)
case("tp-by-hand-right", 2, blocks_by_hand, reference="tp-single")
case("tp-not-summed", 2, blocks_by_hand, summed=False, reference="tp-single")
case("tp-bias", 2, blocks_by_hand, bias_divided=True, reference="tp-single")


def main():
    warnings.simplefilter("ignore")
    worker.main()


if __name__ == "__main__":
    main()
