# SPDX-License-Identifier: Apache-2.0
"""Cases of gaps_worker.py in which ranks hold parts of the model: by hand, as stages of a pipeline, or as copies that differ."""

from worker import case, seeded, variant  # finds lockstep
import torch
import torch.distributed as dist
from torch import nn

from gaps_common import average, captured, lost, sgd


class Vocabulary(nn.Module):
    """A part of the vocabulary on each rank, in a plain tensor, and a layer that all ranks have; its forward pass adds up what the ranks have."""

    def __init__(self):
        super().__init__()
        seeded(1 + dist.get_rank())
        self.embedding = nn.Embedding(10, 8)
        seeded(0)
        self.head = nn.Linear(8, 4)

    def forward(self, tokens):
        first = 10 * dist.get_rank()
        own = ((tokens >= first) & (tokens < first + 10))[:, None]
        found = self.embedding((tokens - first).clamp(0, 9)) * own
        return self.head(Summed.apply(found))


class Summed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, values):
        values = values.clone()
        dist.all_reduce(values)
        return values

    @staticmethod
    def backward(ctx, gradient):
        return gradient


@case(2)
def tensor_parallel_by_hand(out, make=Vocabulary, **options):
    model = make()
    optimizer = sgd(model.parameters())
    with captured(model, optimizer, out, mesh={"tp": 2}, **options):
        for step in range(2):
            optimizer.zero_grad()
            seeded(7, step)
            model(torch.randint(0, 20, (40,))).square().mean().backward()
            optimizer.step()


@case(2)
def tensor_parallel_by_hand_that_is_told(out):
    tensor_parallel_by_hand(out, shards={"embedding.*": {"tp": 0}})


class Alike(Vocabulary):
    """Its parts were made with one seed, and begin with the same numbers."""

    def __init__(self):
        super().__init__()
        seeded(1)
        nn.init.normal_(self.embedding.weight)


@case(2)
def tensor_parallel_by_hand_of_equal_parts(out):
    tensor_parallel_by_hand(out, Alike)


@case(2)
def tensor_parallel_by_hand_of_equal_parts_that_is_told(out):
    tensor_parallel_by_hand(out, Alike, shards={"embedding.weight": {"tp": 0}})


class OwnHead(Vocabulary):
    """Its last layer should be a copy on each rank, and was made with another seed on each."""

    def __init__(self):
        super().__init__()
        seeded(5 + dist.get_rank())
        self.head = nn.Linear(8, 4)


@case(2)
def copies_of_a_layer_that_were_initialised_apart(out):
    tensor_parallel_by_hand(out, OwnHead, shards={"embedding.*": {"tp": 0}})


@case(2)
def copies_that_were_initialised_apart(out, reduce=average):
    seeded(dist.get_rank())
    model = nn.Sequential(nn.Linear(8, 6), nn.Tanh(), nn.Linear(6, 4))
    optimizer = sgd(model.parameters())
    with captured(model, optimizer, out):
        for step in range(2):
            optimizer.zero_grad()
            lost(model, step).backward()
            reduce(model)
            optimizer.step()


@case(2)
def experts_by_hand(out):
    """Each rank has an expert of its own under the same name, and nobody reduces it."""
    copies_that_were_initialised_apart(out, reduce=lambda model: None)


def pipeline(out, seed=lambda: dist.get_rank(), more=lambda model: None, make=lambda: nn.Sequential(nn.Linear(8, 8), nn.Tanh()),
             loss=lambda found: found.square().mean(), of_capture=None, **options):
    from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

    seeded(seed())
    model = make()
    stage = PipelineStage(model, dist.get_rank(), dist.get_world_size(), torch.device("cpu"))
    schedule = ScheduleGPipe(stage, n_microbatches=4, loss_fn=lambda output, target: loss(output - target), **options)
    optimizer = sgd(model.parameters())
    with captured(model, optimizer, out, mesh={"pp": dist.get_world_size()}, **of_capture or {}):
        for step in range(2):
            optimizer.zero_grad()
            seeded(3, step)
            inputs, target = torch.randn(2, 16, 8)
            schedule.step(*[inputs] if dist.get_rank() == 0 else [], **{} if dist.get_rank() == 0 else {"target": target})
            more(model)
            optimizer.step()


variant("stages_of_torch", 2, pipeline)


def divided(model):
    for parameter in model.parameters():
        parameter.grad /= 4


# The schedule divides by no micro-batches: its loss does, or the script afterwards, or nobody.
variant("stages_of_torch_that_are_not_divided", 2, pipeline, scale_grads=False)
variant("stages_of_torch_that_are_divided_by_hand", 2, pipeline, scale_grads=False, more=divided)
variant("stages_of_torch_that_their_loss_divides", 2, pipeline, scale_grads=False, loss=lambda found: found.square().mean() / 4)
variant("stages_of_torch_that_add_up_two_means", 2, pipeline, scale_grads=False, loss=lambda found: found.square().mean() + 0.01 * found.abs().mean())
variant("stages_of_torch_that_are_divided_twice", 2, pipeline, loss=lambda found: found.square().mean() / 4)
variant("stages_of_torch_with_sums", 2, pipeline, loss=lambda found: found.square().sum(), of_capture={"loss": "sum"}, scale_grads=False)
variant("stages_of_torch_with_sums_that_are_divided", 2, pipeline, loss=lambda found: found.square().sum(), of_capture={"loss": "sum"})


variant("stages_of_torch_that_are_mixed", 2, pipeline, more=lambda model: [dist.all_reduce(one.grad) for one in model.parameters()])


variant("stages_of_torch_that_begin_alike", 2, pipeline, seed=lambda: 0)


@case(2)
def stages_of_torch_and_a_loss_of_their_own(out):
    """What the schedule divides is what its own passes yield."""
    pipeline(out, more=lambda model: (0.01 * model(torch.ones(4, 8)).square().mean()).backward())


@case(2)
def stages_of_torch_with_norms(out):
    """Norms begin with ones, on each stage."""
    pipeline(out, make=lambda: nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.LayerNorm(8)))


@case(2)
def copies_of_which_one_is_zero(out):
    """A rank that was not initialised; nobody reduces."""
    model = nn.Linear(8, 4, bias=False)
    seeded(0)
    with torch.no_grad():
        model.weight.copy_(torch.randn(4, 8) * dist.get_rank())
    optimizer = sgd(model.parameters())
    with captured(model, optimizer, out):
        for step in range(2):
            optimizer.zero_grad()
            lost(model, step).backward()
            average(model)
            optimizer.step()


class Gathered(torch.autograd.Function):
    """A weight of which each rank keeps a part, as FSDP has it; its backward brings each rank the sum of its part."""

    @staticmethod
    def forward(ctx, part):
        whole = torch.empty(part.numel() * dist.get_world_size())
        dist.all_gather_into_tensor(whole, part.detach())
        return whole

    @staticmethod
    def backward(ctx, gradient):
        part = torch.empty(gradient.numel() // dist.get_world_size())
        dist.reduce_scatter_tensor(part, gradient.contiguous())
        return part / dist.get_world_size()


class Sharded(nn.Module):
    def __init__(self):
        super().__init__()
        seeded(1)
        self.part = nn.Parameter(torch.randn(64 // dist.get_world_size()))
        seeded(0)
        self.head = nn.Linear(8, 4)

    def forward(self, inputs):
        return self.head(inputs @ Gathered.apply(self.part).view(8, 8))


@case(2)
def reduced_in_a_backward_of_its_own(out):
    model = Sharded()
    optimizer = sgd(model.parameters())
    with captured(model, optimizer, out):
        for step in range(2):
            optimizer.zero_grad()
            lost(model, step).backward()
            average(model.head)
            optimizer.step()
