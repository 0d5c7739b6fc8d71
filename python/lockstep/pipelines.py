# SPDX-License-Identifier: Apache-2.0
"""Schedules of torch.distributed.pipelining: each pass is of a micro-batch that the schedule numbers, in whatever order passes come, and the gradients are
divided by the micro-batches after all backward passes, unless the schedule is told not to."""

import sys

from lockstep.optimizers import Replaced

SCHEDULES = ("PipelineScheduleSingle", "PipelineScheduleMulti")
BACKWARD = ("backward_one_chunk", "backward_weight_one_chunk")  # the second where a schedule puts off the gradients of weights


def stages_of(schedule):
    """The stages that this rank has of it, in their order."""
    found = getattr(schedule, "_stages", None) or [getattr(schedule, "_stage", None)]
    return sorted((stage for stage in found if stage is not None), key=lambda stage: stage.stage_index)


def is_training(schedule):
    """Whether a step of it has backward passes."""
    return getattr(schedule, "_has_backward", True)


class Pipelines:
    """Of one capture, `run`: by what the gradients that backward yields now are divided later, and of which micro-batch they are."""

    def __init__(self, run):
        self.run = run
        self.divisor = self.first = None

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
            return original(stage, bwd_chunk_id, *arguments, **keys)
        return backward
