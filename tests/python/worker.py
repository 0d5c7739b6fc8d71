# SPDX-License-Identifier: Apache-2.0
"""One rank of the runs that the tests of the capture look at: worker.py FOLDER RANK WORLD CASE…, on a Python with torch.

Each case trains a tiny model under its own wrapper, captured into FOLDER/CASE. What goes wrong in one is written to
FOLDER/CASE.error-RANK and ends none of the others.
"""

import contextlib
import os
import sys
import traceback
import warnings

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "python"))

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel

import lockstep

CASES = {}


def case(world):
    def add(function):
        CASES[function.__name__] = (world, function)
        return function
    return add


def variant(name, world, script, reference=None, **changed):
    """script(out, **changed) as a case. `reference` names the one, of one rank, with which `lockstep verify` compares it (test_bugs.py)."""
    CASES[name] = (world, lambda out: script(out, **changed))


class Small(nn.Module):
    """What runs with real bugs train where nothing more is needed."""

    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.base = nn.Linear(8, 8)
        self.out = nn.Linear(8, 6, bias=False)

    def forward(self, inputs):
        return self.out(torch.tanh(self.base(self.norm(inputs))))


class Tied(nn.Module):
    """Tied ends, a frozen parameter, one that no pass uses, a scalar, and rows that do not divide by 2 or 4."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(7, 6)
        self.hidden = nn.Linear(6, 5)
        self.back = nn.Linear(5, 6, bias=False)
        self.head = nn.Linear(6, 7, bias=False)
        self.head.weight = self.embedding.weight
        self.scale = nn.Parameter(torch.ones(()))
        self.unused = nn.Parameter(torch.ones(3))
        self.frozen = nn.Parameter(torch.ones(2), requires_grad=False)

    def forward(self, tokens):
        hidden = torch.tanh(self.hidden(self.embedding(tokens))) * self.scale
        return self.head(self.back(hidden))


class Block(nn.Module):
    """What tensor parallelism with sequence parallelism cuts: column and row linear layers, and a norm before them."""

    def __init__(self, size=8):
        super().__init__()
        self.norm = nn.LayerNorm(size)
        self.up = nn.Linear(size, 12)
        self.down = nn.Linear(12, size)

    def forward(self, inputs):
        return inputs + self.down(torch.tanh(self.up(self.norm(inputs))))


def seeded(*numbers):
    torch.manual_seed(sum(number * 1000**place for place, number in enumerate(numbers)) + 1)


def tokens_of(rank, step, micro_batch, count=10):
    seeded(rank, step, micro_batch)
    return torch.randint(0, 7, (count,))


def lost(model, tokens):
    return nn.functional.cross_entropy(model(tokens), tokens.roll(1))


def trained(out, wrap, sync=None, steps=2, micro_batches=2, capture=True, tell=False, clip=True, optimizer=torch.optim.AdamW, **options):
    """Trains Tied under `wrap` and returns its parameters and losses after the steps."""
    seeded(0)
    model = wrap(Tied())
    chosen = optimizer(model.parameters(), lr=0.01)
    told = lockstep.capture(model, chosen, out=out, loss="local_mean", report=False, **options) if capture else contextlib.nullcontext()
    numbers = []
    with told as run:
        for step in range(steps):
            for micro_batch in range(micro_batches):
                if tell and run:
                    run.micro_batch(tokens=10)
                with sync(model, micro_batch == micro_batches - 1) if sync else contextlib.nullcontext():
                    loss = lost(model, tokens_of(dist.get_rank(), step, micro_batch)) / micro_batches
                    loss.backward()
                numbers.append(loss.detach())
            if clip:
                nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            chosen.step()
            chosen.zero_grad()
    local = [getattr(tensor.detach(), "_local_tensor", tensor.detach()) for tensor in model.parameters()]
    return torch.cat([tensor.flatten() for tensor in local] + [torch.stack(numbers)])


def unchanged(out, *arguments, **keys):
    """The same training with and without the capture: every bit must be the same."""
    plain = trained(out, *arguments, capture=False, **keys)
    captured = trained(out, *arguments, **keys)
    assert torch.equal(plain.view(torch.int32), captured.view(torch.int32)), "the capture has changed the numbers of the training"


def data_parallel(model):
    return DistributedDataParallel(model, find_unused_parameters=True)


@case(2)
def ddp_no_sync(out):
    unchanged(out, data_parallel, sync=lambda model, last: contextlib.nullcontext() if last else model.no_sync())


@case(2)
def ddp_every(out):
    trained(out, data_parallel, tell=True, clip=False, sums=192, seed=5)


@case(2)
def two_optimizers(out):
    """One for the ends, one for the rest, of which one parameter is in neither; what is clipped element by element; and a micro-batch in two
    backward passes."""
    seeded(0)
    model = data_parallel(Tied())
    named = dict(model.module.named_parameters())
    ends = torch.optim.SGD([named["embedding.weight"]], lr=0.1)
    rest = torch.optim.Adam([named["hidden.weight"], named["back.weight"]], lr=0.1)
    with lockstep.capture(model, [ends, rest], out=out, loss="local_mean", report=False) as run:
        for step in range(2):
            tokens = tokens_of(dist.get_rank(), step, 0)
            run.micro_batch(tokens=10)
            with model.no_sync():
                (0.25 * lost(model, tokens)).backward()
            (0.75 * lost(model, tokens)).backward()
            nn.utils.clip_grad_value_(model.parameters(), 1e-6)
            for optimizer in (ends, rest):
                optimizer.step()
                optimizer.zero_grad()
            model.zero_grad()


def fully_sharded(model, mesh=None, **options):
    from torch.distributed.fsdp import fully_shard

    for part in (model.hidden, model.back):
        fully_shard(part, mesh=mesh, **options)
    fully_shard(model, mesh=mesh, **options)
    return model


@contextlib.contextmanager
def last_alone(model, last):
    model.set_requires_gradient_sync(last)
    yield


# A scalar cannot be cut.
class Sharded(Tied):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))


def wrapped_sharded(mesh):
    def wrap(model):
        seeded(0)
        return fully_sharded(Sharded(), mesh)
    return wrap


@case(2)
def fsdp2(out):
    unchanged(out, wrapped_sharded(init_device_mesh("cpu", (2,), mesh_dim_names=("dp",))))


@case(4)
def fsdp2_last(out):
    trained(out, wrapped_sharded(None), sync=last_alone)


@case(4)
def hsdp(out):
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp_replicate", "dp_shard"))
    unchanged(out, wrapped_sharded(mesh))


def parallel_block(mesh, size=8):
    from torch.distributed.tensor import Shard
    from torch.distributed.tensor.parallel import ColwiseParallel, PrepareModuleInput, RowwiseParallel, SequenceParallel, parallelize_module

    seeded(0)
    model = Block(size)
    return parallelize_module(model, mesh, {
        "": PrepareModuleInput(input_layouts=Shard(1), desired_input_layouts=Shard(1)),
        "norm": SequenceParallel(),
        "up": ColwiseParallel(input_layouts=Shard(1)),
        "down": RowwiseParallel(output_layouts=Shard(1), use_local_output=False),
    })


def train_block(model, optimizer, rank_of_data, mesh_size, place, synchronize=None, micro_batches=2, steps=1):
    for step in range(steps):
        for micro_batch in range(micro_batches):
            seeded(rank_of_data, step, micro_batch)
            whole = torch.randn(2, 4, model.norm.normalized_shape[0])
            part = whole.chunk(mesh_size, 1)[place]
            output = model(part)
            output = output.to_local() if hasattr(output, "to_local") else output
            (output.square().sum() / whole.numel() / micro_batches).backward()
        if synchronize:
            synchronize()
        optimizer.step()
        optimizer.zero_grad()


@case(2)
def tensor_parallel(out):
    mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("tp",))
    model = parallel_block(mesh)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with lockstep.capture(model, optimizer, out=out, loss="local_mean", report=False):
        train_block(model, optimizer, 0, 2, dist.get_rank())


@case(4)
def fsdp2_tensor_parallel(out):
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    model = fully_shard(parallel_block(mesh["tp"]), mesh=mesh["dp"])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    whole = lockstep.capture(model, optimizer, mesh=mesh, out=out, loss="local_mean", report=False)
    assert lockstep.capture(model, optimizer).mesh == whole.mesh
    # Nothing is cut twice: each DTensor knows one axis alone.
    apart = nn.Sequential(parallel_block(mesh["tp"]), fully_shard(Block(), mesh=mesh["dp"]))
    assert lockstep.capture(apart, torch.optim.SGD(apart.parameters(), lr=0.1)).mesh == whole.mesh
    with whole:
        train_block(model, optimizer, mesh.get_local_rank("dp"), 2, mesh.get_local_rank("tp"))


class Dropping(Block):
    """Random numbers are drawn in its forward pass, between those of the data."""

    def __init__(self):
        super().__init__()
        self.dropout = nn.Dropout(0.3)

    def forward(self, inputs):
        return inputs + self.dropout(self.down(torch.tanh(self.up(self.norm(inputs)))))


def weights_after(make, out=None, mesh=None, data_rank=None, part=lambda whole: whole, sync=None):
    """The bits of weights, of the optimizer's state and of losses after three steps of two micro-batches with AdamW and clipped gradients;
    captured into `out` if it is given. Random numbers are seeded once, so whoever draws one changes all that follow."""
    seeded(0)
    model = make()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    seeded(7, dist.get_rank() if data_rank is None else data_rank)
    numbers = []
    with lockstep.capture(model, optimizer, mesh=mesh, out=out, loss="local_mean", report=False) if out else contextlib.nullcontext():
        for _ in range(3):
            for micro_batch in range(2):
                with sync(model, micro_batch == 1) if sync else contextlib.nullcontext():
                    output = model(part(torch.randn(2, 4, 8)))
                    loss = (output.to_local() if hasattr(output, "to_local") else output).square().mean() / 2
                    loss.backward()
                numbers.append(loss.detach())
            nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            optimizer.step()
            optimizer.zero_grad()
    state = [value for parameter in model.parameters() for value in optimizer.state[parameter].values()]
    local = [getattr(tensor.detach(), "_local_tensor", tensor.detach()) for tensor in [*model.parameters(), *state]]
    return torch.cat([tensor.flatten() for tensor in local + numbers]).view(torch.int32)


def same_bits(out, *arguments, **keys):
    plain = weights_after(*arguments, **keys)
    assert torch.equal(plain, weights_after(*arguments, **keys)), "the training itself is not the same twice"
    assert torch.equal(plain, weights_after(*arguments, out=out, **keys)), "the capture has changed the numbers of the training"
    assert torch.equal(plain, weights_after(*arguments, **keys)), "the capture has left something behind that changes the numbers"


@case(2)
def bits_ddp(out):
    same_bits(out, lambda: DistributedDataParallel(Dropping()),
              sync=lambda model, last: contextlib.nullcontext() if last else model.no_sync())


def dropping_shards(mesh):
    from torch.distributed.fsdp import fully_shard

    def make():
        model = Dropping()
        fully_shard(model.up, mesh=mesh)
        return fully_shard(model, mesh=mesh)
    return make


@case(2)
def bits_fsdp2(out):
    same_bits(out, dropping_shards(init_device_mesh("cpu", (2,), mesh_dim_names=("dp",))), sync=last_alone)


@case(4)
def bits_hsdp(out):
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp_replicate", "dp_shard"))
    same_bits(out, dropping_shards(mesh), mesh=mesh)


def bits_in_mesh(out, mesh, wrap=lambda model: model):
    place, rank = mesh.get_local_rank("tp"), mesh.get_local_rank("dp") if "dp" in mesh.mesh_dim_names else 0
    same_bits(out, lambda: wrap(parallel_block(mesh["tp"])), mesh=mesh, data_rank=rank, part=lambda whole: whole.chunk(2, 1)[place])


@case(2)
def bits_tensor_parallel(out):
    bits_in_mesh(out, init_device_mesh("cpu", (2,), mesh_dim_names=("tp",)))


@case(4)
def bits_fsdp2_tensor_parallel(out):
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    bits_in_mesh(out, mesh, lambda model: fully_shard(model, mesh=mesh["dp"]))


@case(2)
def by_hand(out):
    """Reduces by itself, each parameter with another mistake; tokens differ."""
    seeded(0)
    model = Tied()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    rank = dist.get_rank()
    run = lockstep.attach(model, optimizer, out=out, loss="token_mean", report=False)
    for step in range(2):
        for micro_batch in range(2):
            count = 3 + 4 * rank + micro_batch
            with run.micro_batch(tokens=count):
                lost(model, tokens_of(rank, step, micro_batch, count)).backward()
        dist.all_reduce(model.embedding.weight.grad)
        dist.all_reduce(model.hidden.weight.grad)
        model.hidden.weight.grad /= 2
        dist.all_reduce(model.back.weight.grad, op=dist.ReduceOp.AVG)
        optimizer.step()
        if step:  # forgotten once: the next step gets the first one's gradients as well
            optimizer.zero_grad()
    run.close()


@case(2)
def bad_numbers(out):
    """bfloat16, float16 and float64 parameters, with infinities and NaNs in the gradients of one rank."""
    model = nn.ParameterDict({"w_" + name: nn.Parameter(torch.ones(70, dtype=getattr(torch, name)))
                              for name in ("bfloat16", "float16", "float64")})
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with lockstep.capture(model, optimizer, out=out, report=False):
        weights = torch.arange(70, dtype=torch.float64)
        if dist.get_rank() == 1:
            weights[:3] = torch.tensor([torch.inf, -torch.inf, torch.nan])
        sum((tensor * weights.to(tensor.dtype)).sum().double() for tensor in model.values()).backward()
        optimizer.step()


@case(2)
def died(out):
    """Rank 1 raises in the second step."""
    def sync(model, last):
        if dist.get_rank() == 1 and died.passes == 2:
            raise ArithmeticError
        died.passes += 1
        return contextlib.nullcontext()
    died.passes = 0
    with contextlib.suppress(ArithmeticError):
        trained(out, lambda model: model, sync=sync)


def compiled_steps(wrap, out=None):
    """Four optimizer steps of what `wrap(model, backend)` has compiled, of which the two in the middle are captured into `out`: how many graphs
    ran in each, and the parameters at the end."""
    from torch._dynamo.backends.common import aot_autograd

    runs, counts = [], []

    def compiler(graph, inputs):
        def run(arguments):
            runs.append(graph)
            return graph.forward(*arguments)
        run._boxed_call = True
        return run

    def train(step):
        begin = len(runs)
        for micro_batch in range(2):
            seeded(dist.get_rank(), step, micro_batch)
            with last_alone(model, micro_batch) if hasattr(model, "set_requires_gradient_sync") else contextlib.nullcontext():
                (loss(model(torch.randn(6, 8))) / 2).backward()
        optimizer.step()
        optimizer.zero_grad()
        counts.append(len(runs) - begin)

    torch._dynamo.reset()
    backend = aot_autograd(fw_compiler=compiler)
    seeded(0)
    model = wrap(Small(), backend)
    loss = torch.compile(lambda output: output.square().mean(), backend=backend)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    train(0)
    with lockstep.capture(model, optimizer, out=out, loss="local_mean", report=False) if out else contextlib.nullcontext():
        train(1)
        train(2)
    train(3)
    return counts, torch.cat([getattr(tensor.detach(), "_local_tensor", tensor.detach()).flatten() for tensor in model.parameters()])


def stays_compiled(out, wrap):
    counts, plain = compiled_steps(wrap)
    assert min(counts) > 4 and len(set(counts)) == 1, counts
    captured_counts, captured = compiled_steps(wrap, out)
    assert captured_counts == counts, "%s graphs ran, without the capture %s" % (captured_counts, counts)
    assert torch.equal(plain.view(torch.int32), captured.view(torch.int32)), "the capture has changed the numbers of the training"


@case(2)
def wrapped_within(out):
    """Names are those of the model, wherever it is wrapped; a module of its own with the wrapper's word keeps it."""
    def names_of(model):
        return [one.name for one in lockstep.capture(model, torch.optim.SGD(model.parameters(), lr=0.1)).adapter.parameters.all]

    own = nn.ModuleDict({"net": nn.Linear(2, 2, bias=False), "module": nn.ModuleDict({"module": nn.Linear(2, 2, bias=False)})})
    expected = ["net.weight", "module.module.weight"]
    assert names_of(own) == expected
    assert names_of(torch.compile(DistributedDataParallel(own))) == expected
    assert names_of(DistributedDataParallel(torch.compile(own))) == expected
    within = nn.ModuleDict({"net": DistributedDataParallel(own["net"]), "module": DistributedDataParallel(own["module"])})
    assert names_of(within) == expected, names_of(within)


@case(2)
def compiled_ddp(out):
    stays_compiled(out, lambda model, backend: DistributedDataParallel(torch.compile(model, backend=backend)))


@case(2)
def compiled_fsdp2(out):
    """A block is compiled by itself, as torchtitan does."""
    from torch.distributed.fsdp import fully_shard

    def wrap(model, backend):
        mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("dp",))
        model.compile(backend=backend)
        return fully_shard(nn.Sequential(fully_shard(model, mesh=mesh)), mesh=mesh)
    stays_compiled(out, wrap)


def tell_frameworks():
    """What DeepSpeed and accelerate read of the environment, as torchrun sets it."""
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="0", RANK=sys.argv[2], LOCAL_RANK=sys.argv[2], WORLD_SIZE=sys.argv[3])


def main():
    folder, rank, world, names = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:]
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    dist.init_process_group("gloo", init_method="file://" + os.path.abspath(os.path.join(folder, "store-%d" % world)), rank=rank, world_size=world)
    for name in names:
        try:
            CASES[name][1](os.path.join(folder, name))
        except Exception:
            with open(os.path.join(folder, "%s.error-%d" % (name, rank)), "w") as file:
                traceback.print_exc(file=file)
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
