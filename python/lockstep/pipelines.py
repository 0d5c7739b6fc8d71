# SPDX-License-Identifier: Apache-2.0
"""Schedules of torch.distributed.pipelining: each pass is of a micro-batch that the schedule numbers, in whatever order passes come, and the gradients are
divided by the micro-batches after all backward passes, unless the schedule is told not to."""

import sys

import torch

from lockstep.measuring import unseen
from lockstep.optimizers import Replaced
from lockstep.roots import MEAN, SUM, terms_of

SCHEDULES = ("PipelineScheduleSingle", "PipelineScheduleMulti")
BACKWARD = ("backward_one_chunk", "backward_weight_one_chunk")  # the second where a schedule puts off the gradients of weights


def stages_of(schedule):
    """The stages that this rank has of it, in their order."""
    found = getattr(schedule, "_stages", None) or [getattr(schedule, "_stage", None)]
    return sorted((stage for stage in found if stage is not None), key=lambda stage: stage.stage_index)


def is_training(schedule):
    """Whether a step of it has backward passes."""
    return getattr(schedule, "_has_backward", True)


def is_one(factor):
    return factor is not None and abs(factor - 1) < 1e-6


class Pipelines:
    """Of one capture, `run`: by what the gradients that backward yields now are divided later, and of which micro-batch they are."""

    def __init__(self, run):
        self.run = run
        self.divisor = self.first = None
        self.count = 1  # micro-batches of the schedule that runs
        self.losses = []  # of the optimizer step: micro-batches of their schedule, by what it divides, and terms_of() each

    def install(self):
        schedules = sys.modules.get("torch.distributed.pipelining.schedules")
        stages = sys.modules.get("torch.distributed.pipelining.stage")
        kinds = [getattr(schedules, name, None) for name in SCHEDULES] if schedules is not None else []
        stage = getattr(stages, "_PipelineStageBase", None)
        return ([Replaced(kind, "step", self.around_step) for kind in kinds if kind is not None and "step" in vars(kind)]
                + [Replaced(stage, name, self.around_backward) for name in BACKWARD if stage is not None and name in vars(stage)])

    def around_step(self, original):
        def step(schedule, *arguments, **keys):
            count = getattr(schedule, "_n_microbatches", 1)
            trains = self.run.active() and is_training(schedule)
            if self.run.active() and self.run.taken:
                self.run.finish_step()
            if trains:
                self.divisor = count if count > 1 and getattr(schedule, "scale_grads", False) else None
                self.count = count
            told = self.run.told if trains else True
            if not told:  # else the script itself tells the micro-batches
                self.first, self.run.told = len(self.run.tokens), True
                self.run.tokens += [None] * count
            try:
                return original(schedule, *arguments, **keys)
            finally:
                self.divisor = None
                if not told:
                    self.first, self.run.told, self.run.micro = None, False, len(self.run.tokens) - 1
        return step

    def around_backward(self, original):
        def backward(stage, bwd_chunk_id, *arguments, **keys):
            if self.first is not None and self.run.active():
                self.run.micro = self.first + bwd_chunk_id
                self.look_at(keys.get("loss", arguments[0] if arguments else None))
            return original(stage, bwd_chunk_id, *arguments, **keys)
        return backward

    def look_at(self, loss):
        """What the last stage begins its backward pass with; None on others."""
        if not isinstance(loss, torch.Tensor) or loss.numel() != 1 or self.count < 2:
            return
        with unseen(loss):
            terms = terms_of(loss)
        scale = self.run.scaler.scale or 1.0
        self.losses.append((self.count, self.divisor or 1, tuple(term and (term[0], term[1] / scale) for term in terms)))

    def not_divided(self):
        """Why the gradient is several times what the loss asks for, or a part of it, as it seems; None where nothing says so. Ends the optimizer step."""
        losses, self.losses = set(self.losses), []
        if len(losses) != 1:
            return None
        (count, divisor, terms), = losses
        means = [factor for reduction, factor in filter(None, terms) if reduction == MEAN]
        mean, added = (terms[0][1] if len(terms) == 1 and terms[0] and terms[0][0] == reduction else None for reduction in (MEAN, SUM))
        begin = "the pipeline's schedule calls backward on %d " % count
        if self.run.loss == "local_mean" and divisor == 1 and any(map(is_one, means)):
            return begin + ("means that nothing divides by %d (scale_grads=False): the gradient is %d times their mean, unless something divides it"
                            " afterwards" % (count, count))
        # Of two, a half may be that of half a square.
        if self.run.loss == "local_mean" and divisor == count > 2 and is_one((mean or 0) * count):
            return begin + ("means that are divided by %d, and divides the gradients by %d once more: the gradient is 1/%d of their mean, unless something"
                            " multiplies it afterwards" % (count, count, count))
        if self.run.loss in ("sum", "token_sum") and divisor == count and is_one(added):
            return begin + ("sums, and divides the gradients by %d: the gradient is 1/%d of what they add up to (scale_grads=False leaves it whole), unless"
                            " something multiplies it afterwards" % (count, count))
        return None
