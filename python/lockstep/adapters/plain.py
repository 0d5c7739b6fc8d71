# SPDX-License-Identifier: Apache-2.0
"""torch's own wrappers and none: DistributedDataParallel, FSDP2, DTensor parallelism, and collectives that a script calls."""

import torch

from lockstep.collectives import run_uncompiled
from lockstep.errors import CaptureError
from lockstep.hashing import written
from lockstep.measuring import lanes_of
from lockstep.optimizers import on_clipping, on_step, parameters_of, unwrapped
from lockstep.parameters import Parameters, held_by, is_dtensor, kept_of, local_of
from lockstep.pieces import meet
from lockstep.places import Row


def kind_of(model):
    """The name of what wraps the model."""
    modules = list(model.modules())
    if any(type(module).__name__ == "FullyShardedDataParallel" for module in modules):
        raise CaptureError("FullyShardedDataParallel (FSDP1) keeps flattened parameters, which captures do not know: use fully_shard (FSDP2)")
    if any(isinstance(module, torch.nn.parallel.DistributedDataParallel) for module in modules):
        return "ddp"
    if any(hasattr(module, "_get_fsdp_state") for module in modules):
        return "fsdp2"
    return "dtensor" if any(is_dtensor(parameter) for parameter in model.parameters()) else "torch"


def is_compiled(model):
    return any(hasattr(module, "_orig_mod") or getattr(module, "_compiled_call_impl", None) for module in model.modules())


AVERAGES = {"ddp": "DistributedDataParallel", "fsdp2": "fully_shard"}  # what averages over data-parallel ranks, by the adapter's name


def is_reduced_otherwise(module):
    """Whether a script has told DistributedDataParallel or fully_shard to do something else than to average."""
    if isinstance(module, torch.nn.parallel.DistributedDataParallel):
        return bool(getattr(module, "_comm_hooks", True) or module._get_ddp_logging_data().get("comm_hook"))
    state = module._get_fsdp_state() if hasattr(module, "_get_fsdp_state") else None
    groups = getattr(state, "_fsdp_param_groups", None) or ([state._fsdp_param_group] if getattr(state, "_fsdp_param_group", None) else [])
    changed = ("gradient_divide_factor", "_all_reduce_hook", "reduce_scatter_reduce_op")
    return any(getattr(group, name, None) is not None for group in groups for name in changed)


class Plain:
    """Gradients are where torch puts them: in .grad of the parameters that the optimizer has."""

    in_grad = True
    holds_plain = True  # a framework of which nobody knows how it holds parameters, but by the tensors themselves

    def __init__(self, model, optimizer, run):
        if not isinstance(model, torch.nn.Module):
            raise CaptureError("model is a %s: expected a torch.nn.Module, or an engine of a framework that lockstep.attach knows"
                               % type(model).__name__)
        self.name, self.run, self.model = kind_of(model), run, model
        if run.with_collectives and run_uncompiled() and is_compiled(model):
            raise CaptureError("the model is compiled, and while collectives are recorded torch %s would run it uncompiled, with other numbers:"
                               " give collectives=False, a model that is not compiled, or a newer torch" % torch.__version__)
        self.parameters = Parameters(model, run.contribute)
        if optimizer is None:
            raise CaptureError("a capture of torch needs the optimizer: lockstep.capture(model, optimizer, …)")
        self.optimizers = unwrapped(optimizer)
        if not any(id(tensor) in self.parameters.by_tensor for tensor in parameters_of(self.optimizers)):
            raise CaptureError("the optimizer has none of the model's parameters: make it after the model was wrapped, and before the capture")

    @property
    def averages(self):
        """What averages over data-parallel ranks, as far as it is known at the end."""
        return AVERAGES.get(self.name) if not any(map(is_reduced_otherwise, self.model.modules())) else None

    def versions(self):
        return {}

    def told_loss(self):
        """The loss, where the framework tells it (a Told); else None."""
        return None

    def watch_calls(self, roots):
        """Lets `roots` see what the model is called with; what undoes that. A hook would have a compiled model compiled anew."""
        return [] if is_compiled(self.model) else [roots.watch(self.model)]

    def install(self):
        gaps = self.run.gaps
        hooks = [hook for one in self.optimizers for hook in on_step(one, lambda one=one: gaps.begin_step(one), gaps.after_step)]
        return hooks + on_clipping(self.before_clipping, self.after_clipping) + self.run.scaler.install() + self.run.pipelines.install()

    def before_clipping(self, tensors, value):
        """Whether it clips anything. Gradients of the others may be those of an earlier step."""
        if not self.run.active() or (value is not None and self.within(tensors, value)):
            return False
        clipped = {id(tensor) for tensor in tensors}
        self.run.take_results([one for one in self.optimizers if any(id(tensor) in clipped for tensor in parameters_of([one]))])
        self.run.clipping.before(self.known(tensors), value)
        return True

    def after_clipping(self, tensors):
        if self.run.active():
            self.run.clipping.after(self.known(tensors))

    def begin(self):
        """Hashes of what this rank holds: whether copies on several ranks are copies. What is all zeros, or ones, is marked: the same there says nothing."""
        for parameter in self.parameters.all:
            local = parameter.held.detach()
            local = local._local_tensor if is_dtensor(local) else local
            if parameter.frozen or type(local) not in (torch.Tensor, torch.nn.Parameter) or local.layout != torch.strided or local.device.type == "meta":
                continue
            flat = local.reshape(-1)
            if flat.numel():
                parameter.start = written(lanes_of(flat, Row(0, flat.numel(), flat.device)).tolist())
                parameter.constant = not bool((flat != flat[0]).any())

    def known(self, tensors):
        return [self.parameters.by_tensor[id(tensor)] for tensor in tensors if id(tensor) in self.parameters.by_tensor]

    def within(self, tensors, value):
        """Whether no element of their gradients is larger than a number."""
        with torch.no_grad(), self.run.not_followed():
            return isinstance(value, (int, float)) and not any(
                bool((local_of(tensor.grad).abs() > value).any()) for tensor in tensors if tensor.grad is not None)

    def owned_by(self, optimizer):
        """The parameters that an optimizer has."""
        found = (self.parameters.by_tensor.get(id(tensor)) for tensor in parameters_of([optimizer]))
        return [parameter for parameter in found if parameter is not None]

    def cut(self, parameter, tensor, kept=None):
        """(number, elements, places) of each piece that the tensor has something of, in the box `kept` if there is one, and the axes that are to be
        added up."""
        held, partial = (parameter.box, []) if parameter.box else held_by(tensor)
        if held is None:
            return [], []
        local = local_of(tensor)
        found = ((number, piece.part_of(local, held)) for number, piece in enumerate(parameter.pieces) if kept is None or meet(piece.box, kept))
        return [(number,) + part for number, part in found if part is not None], partial

    def contribution(self, parameter, gradient):
        return self.cut(parameter, gradient, kept_of(gradient, parameter.held))

    def results(self, optimizer):
        """(parameter, pieces or None where there is no gradient, axes that are to be added up) of what the optimizer gets."""
        for tensor in parameters_of([optimizer]):
            parameter = self.parameters.by_tensor.get(id(tensor))
            if parameter is not None and not parameter.frozen:
                yield self.result(parameter)

    def result(self, parameter):
        gradient = parameter.held.grad
        return (parameter, None, []) if gradient is None else (parameter,) + self.cut(parameter, gradient)

    def owned(self, parameter):
        """Numbers of the pieces that this rank's optimizer updates."""
        held, _ = (parameter.box, []) if parameter.box else held_by(parameter.held)
        local = local_of(parameter.held.detach())
        return [number for number, piece in enumerate(parameter.pieces) if held is not None and piece.part_of(local, held) is not None]
