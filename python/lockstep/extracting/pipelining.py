# SPDX-License-Identifier: Apache-2.0
"""torch.distributed.pipelining: a rank has one stage or several, and the capture begins with the schedule that runs them, not with the first of them.

Each stage's parameters are named by the stage, as two stages may use one name for different parameters (stages.py).
"""

import functools
import weakref

import torch
import torch.distributed as dist

from lockstep.errors import CaptureError
from lockstep.extracting import shims
from lockstep.extracting.merging import Mesh
from lockstep.extracting.stages import AXES
from lockstep.pipelines import SCHEDULES, stages_of


class Stages(torch.nn.ModuleDict):
    """The stages that a rank has of a schedule, as one model."""

    def __init__(self, stages):
        super().__init__({"stage%d" % stage.stage_index: stage.submod for stage in stages})
        self.group = stages[0].group

    def mesh(self):
        """As far as the stages' process group says it: ranks beside it are data parallel."""
        world, ranks = dist.get_world_size(), dist.get_process_group_ranks(self.group) if self.group is not None else range(dist.get_world_size())
        strides = {after - before for before, after in zip(ranks, ranks[1:])} or {1}
        stride, others = min(strides), world // len(ranks)
        if len(strides) == 1 and (stride == 1 or stride == others):
            axes = {"dp": others, "pp": len(ranks)} if stride == 1 else {"pp": len(ranks), "dp": others}
            return {axis: size for axis, size in axes.items() if size > 1} or {"pp": 1}
        raise CaptureError("the ranks %s of a pipeline's stages are no axis of a grid of two: give --mesh, such as pp=2,dp=2, the last axis varies fastest"
                           % list(ranks))


def name_by_stage(run, model):
    """Each parameter says of which stage it is, and has its stage's own name as another one. Where a script runs the stages of a pipeline itself, a rank has one,
    that of its coordinate. Whether there are stages."""
    parameters = run.adapter.parameters.all
    if isinstance(model, Stages):
        for parameter in parameters:
            stage = parameter.name.split(".")[0]
            parameter.stage = int(stage[len("stage"):])
            parameter.aliases.append(parameter.name[len(stage) + 1:])
        return True
    mesh = Mesh(run.mesh)
    chosen = [place for place, (axis, size) in enumerate(zip(mesh.axes, mesh.sizes)) if axis in AXES and size > 1 and axis not in run.data_axes]
    if not run.adapter.holds_plain or not chosen:
        return False
    for parameter in parameters:
        parameter.stage = mesh.number(run.rank, chosen)
        parameter.aliases.append(parameter.name)
        parameter.name = "stage%d.%s" % (parameter.stage, parameter.name)
    return True


_on_schedule = None
_of_stages = weakref.WeakSet()  # modules


def on_schedule(found):
    """`found(schedule)` is called before a schedule of passes begins, with backward passes or without, and says whether the capture has begun with it."""
    global _on_schedule
    _on_schedule = found


def is_of_a_stage(module):
    """Whether a stage was made of it, or of what has it in it."""
    return module in _of_stages


@shims.of("torch.distributed.pipelining.stage")
def know_stages(module):
    make = module._PipelineStageBase.__init__

    @functools.wraps(make)
    def init(stage, submodule, *arguments, **keys):
        make(stage, submodule, *arguments, **keys)
        _of_stages.update(submodule.modules())
    module._PipelineStageBase.__init__ = init


@shims.of("torch.distributed.pipelining.schedules")
def begin_with_the_schedule(module):
    for kind in filter(None, (getattr(module, name, None) for name in SCHEDULES)):
        if "step" in vars(kind):
            kind.step = around(kind.step)


def around(original):
    @functools.wraps(original)
    def step(schedule, *arguments, **keys):
        if _on_schedule is not None and _on_schedule(schedule):
            return schedule.step(*arguments, **keys)  # the capture has put its own before it
        return original(schedule, *arguments, **keys)
    return step


def of_schedule(schedule):
    return Stages(stages_of(schedule))
