# SPDX-License-Identifier: Apache-2.0
"""Schedules of torch.distributed.pipelining: they divide the gradients by their micro-batches after all backward passes, unless they are told not to."""

import sys

from lockstep.optimizers import Replaced

SCHEDULES = ("PipelineScheduleSingle", "PipelineScheduleMulti")


class Pipelines:
    """Of one capture, `run`: by what the gradients that backward yields now are divided later."""

    def __init__(self, run):
        self.run = run
        self.divisor = None

    def install(self):
        schedules = sys.modules.get("torch.distributed.pipelining.schedules")
        kinds = [getattr(schedules, name, None) for name in SCHEDULES] if schedules is not None else []
        return [Replaced(kind, "step", self.around_step) for kind in kinds if kind is not None and "step" in vars(kind)]

    def around_step(self, original):
        def step(schedule, *arguments, **keys):
            if self.run.active():
                if self.run.taken:
                    self.run.finish_step()
                count = getattr(schedule, "_n_microbatches", 1)
                self.divisor = count if count > 1 and getattr(schedule, "scale_grads", False) else None
            try:
                return original(schedule, *arguments, **keys)
            finally:
                self.divisor = None
        return step
