# SPDX-License-Identifier: Apache-2.0
"""One rank of trainings of which a capture must know what it cannot know, most of them right: gaps_worker.py FOLDER RANK WORLD CASE…"""

import contextlib
import sys
import threading

from worker import case, main, seeded, variant  # finds lockstep
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import gaps_of_exchanges  # noqa: F401 which has more cases
import gaps_of_losses  # noqa: F401 which has more cases
import gaps_of_parts  # noqa: F401 which has more cases
from gaps_common import average, captured, data, lost, net, sgd


@case(2)
def head_of_its_own(out, requires_grad=True):
    """The optimizer has a head that the captured model has not, and nobody reduces it."""
    model, head = DistributedDataParallel(net()), nn.Linear(4, 2).requires_grad_(requires_grad)
    optimizer = sgd([*model.parameters(), *head.parameters()])
    with captured(model, optimizer, out):
        for step in range(2):
            optimizer.zero_grad()
            head(model(data(step))).square().mean().backward()
            optimizer.step()


@case(2)
def frozen_head_of_its_own(out):
    head_of_its_own(out, requires_grad=False)


@case(2)
def unfrozen(out, reduced=True):
    """A layer that is trained from the second step on, on which nobody has told the capture."""
    model = net()
    model[2].requires_grad_(False)
    optimizer = sgd(model.parameters())
    with captured(model, optimizer, out):
        for step in range(2):
            optimizer.zero_grad()
            model[2].requires_grad_(step == 1)
            lost(model, step).backward()
            average(model if reduced and step else model[0])
            optimizer.step()


@case(2)
def unfrozen_unreduced(out):
    unfrozen(out, reduced=False)


@case(2)
def unfrozen_unseen(out):
    """Within a backward pass that the capture sees only when it has begun."""
    model = net()
    model[2].requires_grad_(False)
    optimizer = sgd(model.parameters())
    with captured(model, optimizer, out):
        model[2].requires_grad_(True)
        loss = lost(model, 0)
        torch.autograd.Variable._execution_engine.run_backward((loss,), (torch.ones(()),), False, False, (), allow_unreachable=True,
                                                               accumulate_grad=True)
        average(model)
        optimizer.step()


@case(2)
def adversaries(out, zeroed=True):
    """Two optimizers in turn; the second one's pass leaves a gradient in what the first one has."""
    seeded(0)
    maker, judge = DistributedDataParallel(nn.Linear(8, 8)), DistributedDataParallel(nn.Linear(8, 1))
    optimizers = [torch.optim.Adam(one.parameters()) for one in (maker, judge)]
    with captured(nn.ModuleDict({"maker": maker, "judge": judge}), optimizers, out):
        for step in range(2):
            optimizers[1].zero_grad()
            (judge(maker(data(step)).detach()).mean() - judge(data(step, 1)).mean()).backward()
            optimizers[1].step()
            optimizers[0].zero_grad()
            (-judge(maker(data(step, 2))).mean()).backward()
            optimizers[0].step()


@case(2)
def in_turn(out, reduced=True):
    """Of two optimizers one steps every second time, with what came since."""
    model = net()
    optimizers = [sgd(model[0].parameters()), sgd(model[2].parameters())]
    with captured(model, optimizers, out):
        for step in range(4):
            with contextlib.ExitStack() as stack:
                for one in model.parameters():  # what is added up was reduced already
                    stack.callback(one.register_hook(lambda gradient: averaged(gradient) if reduced else gradient).remove)
                lost(model, step).backward()
            for one in optimizers[:1 + step % 2]:
                one.step()
                one.zero_grad()


def averaged(gradient):
    gradient = gradient.clone()
    dist.all_reduce(gradient, op=dist.ReduceOp.AVG)
    return gradient


@case(2)
def in_turn_unreduced(out):
    in_turn(out, reduced=False)


def with_closure(out, kind, **options):
    model = DistributedDataParallel(net())
    optimizer = kind(model.parameters(), lr=0.1, **options)
    with captured(model, optimizer, out):
        for step in range(2):
            def closure():
                optimizer.zero_grad()
                loss = lost(model, step)
                loss.backward()
                return loss
            optimizer.step(closure) if step else optimizer.step(closure=closure)


@case(2)
def one_call(out):
    with_closure(out, torch.optim.SGD)


@case(2)
def several_calls(out):
    with_closure(out, torch.optim.LBFGS, max_iter=3)


@case(2)
def last_of_several(out):
    """All micro-batches but the last run before the step, as Lightning does it."""
    model = DistributedDataParallel(net())
    optimizer = sgd(model.parameters())
    with captured(model, optimizer, out):
        for step in range(2):
            with model.no_sync():
                (lost(model, step) / 2).backward()
            optimizer.step(lambda: (lost(model, step, 1) / 2).backward())
            optimizer.zero_grad()


class Heedless(torch.optim.SGD):
    """Takes a closure, and never calls it."""

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.sub_(parameter.grad, alpha=group["lr"])


@case(2)
def no_call(out):
    model = DistributedDataParallel(net())
    optimizer = Heedless(model.parameters(), lr=0.1)
    with captured(model, optimizer, out):
        for step in range(2):
            lost(model, step).backward()
            optimizer.step(lambda: None)
            optimizer.zero_grad()


@case(2)
def left_over(out):
    """Five micro-batches, a step after each second one."""
    model = DistributedDataParallel(net())
    optimizer = sgd(model.parameters())
    with captured(model, optimizer, out):
        for micro in range(5):
            (lost(model, micro) / 2).backward()
            if micro % 2:
                optimizer.step()
                optimizer.zero_grad()


def stepped_by_another(out, batches=2, step=lambda model: sgd(model.parameters()).step()):
    """After the first step, and nobody reduces any more."""
    model = net()
    optimizer = sgd(model.parameters())
    with captured(model, optimizer, out):
        lost(model, 0).backward()
        average(model)
        optimizer.step()
        optimizer.zero_grad()
        for batch in range(batches):
            lost(model, 1 + batch).backward()
            step(model)
            if batch == 0:
                optimizer.zero_grad()


@case(2)
def new_optimizer(out):
    stepped_by_another(out)


@case(2)
def new_optimizer_for_one_batch(out):
    stepped_by_another(out, batches=1)


@case(2)
def stepped_by_hand_past_torch(out):
    def step(model):
        for one in model.parameters():
            one.data.add_(one.grad, alpha=-0.1)
    stepped_by_another(out, batches=1, step=step)


def left_by(out, how):
    model = DistributedDataParallel(net())
    optimizer = sgd(model.parameters())
    with contextlib.suppress(SystemExit), captured(model, optimizer, out):
        lost(model, 0).backward()
        optimizer.step()
        sys.exit(*how)


@case(2)
def leaves(out):
    left_by(out, ())


@case(2)
def leaves_with_0(out):
    left_by(out, (0,))


@case(2)
def leaves_with_1(out):
    left_by(out, (1,))


@case(2)
def begins_in_the_middle(out, zeroed=False):
    model = DistributedDataParallel(net())
    optimizer = sgd(model.parameters())
    (lost(model, 9) / 2).backward()
    with captured(model, optimizer, out):
        for step in range(2):
            if step or zeroed:
                optimizer.zero_grad()
            (lost(model, step) / 2).backward()
            optimizer.step()


@case(2)
def begins_with_zeros(out):
    begins_in_the_middle(out, zeroed=True)


@case(2)
def skipped_batch(out, to_none=True, tell=False, times=1, skipped=(1,), change=lambda model: None):
    """Gradients of the second batch are thrown away."""
    model = DistributedDataParallel(net())
    optimizer = sgd(model.parameters())
    with captured(model, optimizer, out) as run:
        for step in range(4):
            optimizer.zero_grad(set_to_none=to_none)
            if tell:
                run.micro_batch(tokens=16)
            (lost(model, step) * (times if step in skipped and dist.get_rank() else 1)).backward()
            if step in skipped:
                change(model.module)
            else:
                optimizer.step()


@case(2)
def skipped_batch_without_numbers(out):
    skipped_batch(out, times=torch.nan)


@case(2)
def skipped_every_second_batch(out):
    skipped_batch(out, skipped=(0, 2))


@case(2)
def skipped_batches_that_were_used(out):
    """Somebody else steps with them, or moves the parameters along them, as SAM does."""
    def change(model):
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(parameter.grad, alpha=0.1)
    skipped_batch(out, skipped=(0, 2), change=change)


@case(2)
def skipped_batch_of_zeros(out):
    skipped_batch(out, to_none=False)


@case(2)
def skipped_batch_of_tokens(out):
    skipped_batch(out, tell=True)


def in_two(out, after=lambda model, optimizer, micro: None, before=lambda model, step: None):
    model = DistributedDataParallel(net())
    optimizer = sgd(model.parameters())
    with captured(model, optimizer, out):
        for step in range(2):
            before(model, step)
            for micro in range(2):
                (lost(model, step, micro) / 2).backward()
                after(model, optimizer, micro)
            optimizer.step()
            optimizer.zero_grad()


@case(2)
def norm_for_a_log(out):
    in_two(out, lambda model, optimizer, micro: nn.utils.clip_grad_norm_(model.parameters(), float("inf")))


@case(2)
def norm_below_the_limit(out):
    in_two(out, lambda model, optimizer, micro: nn.utils.clip_grad_norm_(model.parameters(), 1e6))


@case(2)
def clipped_twice(out):
    in_two(out, lambda model, optimizer, micro: nn.utils.clip_grad_norm_(model.parameters(), 0.01))


@case(2)
def clipped_before_the_reduction(out):
    """In each micro-batch of two, the first of which is not synchronized."""
    model = DistributedDataParallel(net())
    optimizer = sgd(model.parameters())
    with captured(model, optimizer, out):
        for step in range(2):
            for micro in range(2):
                with model.no_sync() if micro == 0 else contextlib.nullcontext():
                    (lost(model, step, micro) / 2).backward()
                nn.utils.clip_grad_norm_(model.parameters(), 0.01)
            optimizer.step()
            optimizer.zero_grad()


@case(2)
def same_data(out, reduced=True, of=lambda step: 7):
    """Every rank reads the same batch: a sampler that nobody has told its rank."""
    model = DistributedDataParallel(net()) if reduced else net()
    optimizer = sgd(model.parameters())
    with captured(model, optimizer, out):
        for step in range(2):
            optimizer.zero_grad()
            seeded(of(step), step, 0)
            model(torch.randn(16, 8)).square().mean().backward()
            optimizer.step()


@case(2)
def same_data_unreduced(out):
    same_data(out, reduced=False)


@case(2)
def same_data_in_one_step(out):
    same_data(out, of=lambda step: dist.get_rank() if step else 7)


@case(2)
def loss_of_all(out):
    """Each rank's loss is that of all ranks' data; DDP averages what is the same already."""
    model = DistributedDataParallel(net())
    optimizer = sgd(model.parameters())
    with captured(model, optimizer, out):
        for step in range(2):
            optimizer.zero_grad()
            batches = [torch.empty(16, 8) for _ in range(2)]
            dist.all_gather(batches, data(step))
            model(torch.cat(batches)).square().mean().backward()
            optimizer.step()


def reduced(out, change=lambda model: None, hook=None, clip=lambda model: nn.utils.clip_grad_norm_(model.parameters(), 0.01), reduce=average):
    model = net()
    optimizer = sgd(model.parameters())
    with captured(model, optimizer, out):
        if hook is not None:
            optimizer.register_step_pre_hook(lambda *_: hook(model))
        for step in range(2):
            lost(model, step).backward()
            reduce(model)
            clip(model)
            change(model)
            optimizer.step()
            optimizer.zero_grad()


@case(2)
def clipped_after_the_reduction(out):
    reduced(out)


@case(2)
def clipped_by_layers_and_values(out):
    def clip(model):
        for layer in (model[0], model[2]):
            nn.utils.clip_grad_norm_(layer.parameters(), 0.01)
        nn.utils.clip_grad_value_(model.parameters(), 1e-4)
    reduced(out, clip=clip)


@case(2)
def clipped_with_a_loss_scale(out, change=lambda model: None):
    """Clipped with the scale in it, which the scaler takes out as it steps; two optimizers, each clipped and stepped in its turn."""
    model = net()
    optimizers = [sgd(model[0].parameters()), sgd(model[2].parameters())]
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    with captured(model, optimizers, out):
        for step in range(2):
            scaler.scale(lost(model, step)).backward()
            average(model)
            for layer, optimizer in zip((model[0], model[2]), optimizers):
                if layer is model[2]:
                    scaler.unscale_(optimizer)
                nn.utils.clip_grad_norm_(layer.parameters(), 0.01)
                change(layer)
                scaler.step(optimizer)
                optimizer.zero_grad()
            scaler.update()


def with_a_loss_scale(out, step_with, make=sgd, change=lambda model, scale: None, init_scale=1024.0):
    model = net()
    optimizers = [make(model[0].parameters()), make(model[2].parameters())]
    scaler = torch.amp.GradScaler("cpu", init_scale=init_scale)
    with captured(model, optimizers, out):
        for step in range(2):
            model.zero_grad()
            scaler.scale(lost(model, step)).backward()
            average(model)
            change(model, init_scale)
            for number, optimizer in enumerate(optimizers):
                step_with(scaler, optimizer, number)
            scaler.update() if step_with is by_scaler else None


def by_scaler(scaler, optimizer, number):
    scaler.step(optimizer)


def past_the_scaler(scaler, optimizer, number):
    """As if there were none; the second one's gradients are clipped before."""
    if number:
        nn.utils.clip_grad_norm_([one for group in optimizer.param_groups for one in group["params"]], 0.01)
    optimizer.step()


class Wrapper:
    def __init__(self, optimizer):
        self.optimizer, self.param_groups = optimizer, optimizer.param_groups
        self.step = optimizer.step


def wrapped(scaler, optimizer, number):
    wrapper = Wrapper(optimizer)
    if number:
        nn.utils.clip_grad_norm_([one for group in optimizer.param_groups for one in group["params"]], 0.01)
    scaler.step(wrapper)
    scaler._per_optimizer_states.clear()  # what update() does, but for the scale


def fused(parameters):
    return torch.optim.SGD(parameters, lr=0.1, fused=True)


def divided_by_hand(model, scale):
    for one in model.parameters():
        one.grad /= scale


variant("stepped_past_the_loss_scaler", 2, with_a_loss_scale, step_with=past_the_scaler)
variant("stepped_past_the_loss_scaler_and_fused", 2, with_a_loss_scale, step_with=past_the_scaler, make=fused)
variant("stepped_past_the_loss_scaler_and_divided", 2, with_a_loss_scale, step_with=past_the_scaler, change=divided_by_hand)
variant("stepped_by_the_loss_scaler_and_fused", 2, with_a_loss_scale, step_with=by_scaler, make=fused)
variant("stepped_by_the_loss_scaler_and_divided", 2, with_a_loss_scale, step_with=by_scaler, change=divided_by_hand)
variant("stepped_by_the_loss_scaler_in_wrappers", 2, with_a_loss_scale, step_with=wrapped)


def times(factor):
    def change(model):
        for one in model.parameters():
            one.grad.data *= factor(dist.get_rank())
    return change


@case(2)
def scaled_after_clipping_with_a_loss_scale(out):
    clipped_with_a_loss_scale(out, times(lambda rank: 1 + rank))


@case(2)
def scaled_after_clipping(out):
    reduced(out, times(lambda rank: 1 + 4 * rank))


@case(2)
def reduced_again_after_clipping(out):
    reduced(out, lambda model: [dist.all_reduce(one.grad) for one in model.parameters()])


@case(2)
def replaced_after_clipping(out):
    def change(model):
        for one in model.parameters():
            one.grad = torch.randn_like(one)
    reduced(out, change)


@case(2)
def dropped_after_clipping(out):
    def change(model):
        if dist.get_rank():
            model[0].weight.grad = None
    reduced(out, change)


@case(2)
def clipped_to_another_norm_on_each_rank(out):
    reduced(out, clip=lambda model: nn.utils.clip_grad_norm_(model.parameters(), 0.01 * (1 + dist.get_rank())))


@case(2)
def clipped_on_one_rank(out):
    reduced(out, clip=lambda model: dist.get_rank() and nn.utils.clip_grad_value_(model.parameters(), 1e-4))


@case(2)
def hook_after_the_capture_began(out):
    reduced(out, clip=lambda model: None, hook=times(lambda rank: 3))


@case(2)
def hook_after_the_capture_began_that_reduces(out):
    reduced(out, clip=lambda model: None, hook=average, reduce=lambda model: None)


@case(2)
def hook_after_the_capture_began_and_clipping(out):
    reduced(out, hook=times(lambda rank: 3))


@case(2)
def values_below_the_limit(out):
    """Clipping that changes nothing, before the reduction."""
    reduced(out, clip=average, reduce=lambda model: nn.utils.clip_grad_value_(model.parameters(), 1e9))


@case(2)
def gradients_of_torch_func(out):
    model = net()
    optimizer = sgd(model.parameters())

    def loss(parameters, batch):
        return torch.func.functional_call(model, parameters, (batch,)).square().mean()
    with captured(model, optimizer, out):
        for step in range(2):
            found = torch.func.grad(loss)({name: one.detach() for name, one in model.named_parameters()}, data(step))
            for name, one in model.named_parameters():
                one.grad = averaged(found[name])
            optimizer.step()


def wide(out, reduce=average, **options):
    """A weight of 131,072 elements, of which one of 16 is looked at, and others that are looked at whole."""
    seeded(0)
    model = nn.Sequential(nn.Linear(8, 16384), nn.Tanh(), nn.Linear(16384, 4))
    optimizer = sgd(model.parameters())
    with captured(model, optimizer, out, sample="1/16", **options):
        for step in range(2):
            optimizer.zero_grad()
            lost(model, step).backward()
            reduce(model)
            optimizer.step()


variant("sampled", 2, wide)


@case(2)
def sampled_and_not_divided(out):
    wide(out, reduce=lambda model: [dist.all_reduce(parameter.grad) for parameter in model.parameters()])


@case(2)
def constant_gradients_that_nobody_zeroed(out):
    """A sum's gradient of the last bias is the same in every step, so that twice of it may be a factor."""
    model = DistributedDataParallel(net())
    optimizer = sgd(model.parameters())
    with captured(model, optimizer, out):
        for step in range(2):
            model(data(step)).sum().backward()
            optimizer.step()


@case(2)
def means_that_nothing_divides(out, together=False, divisor=1, count=2):
    """Some means in a step: parts of one batch, or losses that are to be added up, which `together` says."""
    model = DistributedDataParallel(net())
    optimizer = sgd(model.parameters())
    with captured(model, optimizer, out) as run:
        for step in range(2):
            optimizer.zero_grad()
            if together:
                run.micro_batch()
            for micro in range(count):
                (lost(model, step, micro) / divisor).backward()
            optimizer.step()


@case(2)
def optimizer_that_one_rank_leaves_out(out):
    """Of two, in the first of two rounds."""
    model = DistributedDataParallel(net())
    first, last = sgd(model.module[0].parameters()), sgd(model.module[2].parameters())
    with captured(model, [first, last], out):
        for step in range(3):
            model.zero_grad()
            lost(model, step).backward()
            first.step()
            if step != 1 or dist.get_rank() == 0:
                last.step()


@case(2)
def means_that_are_divided_within(out):
    """Each element by the micro-batches, before the mean is taken."""
    model = DistributedDataParallel(net())
    optimizer = sgd(model.parameters())
    with captured(model, optimizer, out):
        for step in range(2):
            optimizer.zero_grad()
            for micro in range(2):
                (model(data(step, micro)).square() / 2).mean().backward()
            optimizer.step()


@case(2)
def losses_that_come_from_a_generator(out):
    """torch.autograd.backward takes any sequence, and an iterator can be read once."""
    model = net()
    optimizer = sgd(model.parameters())
    with captured(model, optimizer, out):
        for step in range(2):
            optimizer.zero_grad()
            torch.autograd.backward(lost(model, step, micro) / 2 for micro in range(2))
            average(model)
            optimizer.step()


variant("means_that_are_divided", 2, means_that_nothing_divides, divisor=2)
variant("means_of_half_a_square", 2, means_that_nothing_divides, divisor=4)
variant("means_that_are_divided_twice", 2, means_that_nothing_divides, divisor=9, count=3)
variant("means_that_are_to_be_added_up", 2, means_that_nothing_divides, together=True)


@case(2)
def gradient_for_a_log(out):
    in_two(out, before=lambda model, step: torch.autograd.grad(lost(model.module, step), list(model.module[2].parameters())))


class Recomputed(torch.autograd.Function):
    """Computes forward again in its backward, as activation checkpointing by hand does, and hands the parameters' gradients on or keeps them."""

    @staticmethod
    def forward(context, inputs, layer, hands_on, *parameters):
        context.inputs, context.layer, context.hands_on, context.parameters = inputs, layer, hands_on, parameters
        return layer(inputs)

    @staticmethod
    def backward(context, gradient):
        inputs = context.inputs.detach().requires_grad_(True)
        with torch.enable_grad():
            again = context.layer(inputs)
        found = torch.autograd.grad(again, [inputs, *context.parameters], gradient)
        if context.hands_on:
            return (found[0], None, None, *found[1:])
        for parameter, one in zip(context.parameters, found[1:]):
            parameter.grad = one if parameter.grad is None else parameter.grad + one
        return (found[0], None, None, *(None for _ in context.parameters))


def recomputed(out, hands_on):
    model = net()
    optimizer = sgd(model.parameters())
    with captured(model, optimizer, out):
        for step in range(2):
            optimizer.zero_grad()
            hidden = Recomputed.apply(data(step), model[0], hands_on, *model[0].parameters())
            model[1:](hidden).square().mean().backward()
            average(model)
            optimizer.step()


variant("recomputed_in_backward", 2, recomputed, hands_on=True)
variant("recomputed_and_added_by_hand", 2, recomputed, hands_on=False)


@case(2)
def forgotten_layer(out):
    """One layer's gradient is set to zero between two micro-batches."""
    in_two(out, lambda model, optimizer, micro: model.module[0].zero_grad() if micro == 0 else None)


class Reducing(torch.optim.SGD):
    """Averages within its own step, in one all-reduce."""

    def step(self, closure=None):
        parameters = [one for group in self.param_groups for one in group["params"]]
        whole = torch.cat([one.grad.flatten() for one in parameters]) / dist.get_world_size()
        dist.all_reduce(whole)
        for one, part in zip(parameters, whole.split([one.numel() for one in parameters])):
            one.grad.copy_(part.view_as(one))
        return super().step(closure)


@case(2)
def reduced_in_step(out):
    model = net()
    optimizer = Reducing(model.parameters(), lr=0.1)
    with captured(model, optimizer, out):
        for step in range(2):
            optimizer.zero_grad()
            lost(model, step).backward()
            optimizer.step()


@case(2)
def sharded_optimizer(out):
    """Broadcasts what it has stepped to; gradients are reduced before."""
    from torch.distributed.optim import ZeroRedundancyOptimizer

    model = DistributedDataParallel(net())
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.SGD, lr=0.1)
    with captured(model, optimizer, out):
        for step in range(2):
            optimizer.zero_grad()
            lost(model, step).backward()
            optimizer.step()


@case(2)
def in_a_thread(out, **options):
    model = DistributedDataParallel(net())
    optimizer = sgd(model.parameters())

    def train():
        for step in range(2):
            optimizer.zero_grad()
            lost(model, step).backward()
            optimizer.step()
    with captured(model, optimizer, out, **options):
        thread = threading.Thread(target=train)
        thread.start()
        thread.join()


@case(2)
def in_a_thread_without_collectives(out):
    in_a_thread(out, collectives=False)


if __name__ == "__main__":
    main()
