# SPDX-License-Identifier: Apache-2.0
"""The logical parameters of a model: names, shapes, ties and pieces, and hooks on what stands for them in a forward pass.

FSDP2 puts other tensors in the place of its shards while a module computes; they are found when it does.
"""

import sys
import weakref

import torch
from torch.nn.parallel import DistributedDataParallel

from lockstep.errors import CaptureError
from lockstep.floats import FORMATS
from lockstep.optimizers import Replaced
from lockstep.pieces import box_of, boxes_of, Piece, whole

# Words that wrappers put in front of names or between them.
WRAPPERS = ("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")

# Where torch, by its release, has the FSDPParam of FSDP2.
FSDP2 = ("torch.distributed.fsdp._fully_shard._fsdp_param", "torch.distributed._composable.fsdp._fsdp_param")


class Parameter:
    """`held` is the tensor that the model and the optimizer have, `pieces` how its logical tensor of `shape` is cut."""

    def __init__(self, number, name, held, shape, pieces):
        self.number, self.name, self.held, self.shape, self.pieces = number, name, held, list(shape), pieces
        self.aliases = []
        self.frozen = not held.requires_grad
        self.chunk = 0  # of a pipeline stage that has several
        self.stage = None  # of a pipeline whose stages may use one name for different parameters
        self.group = 0  # which of the flat tensors that the optimizer cuts it is part of
        self.placed = placed_along(held)
        self.sampled = False  # whether a part of its elements alone is measured
        self.box = None  # what this rank holds of it, where the script has cut a plain tensor and says how
        self.constant = False  # whether it begins with one number everywhere
        self.start = None  # the hash of what this rank holds as the capture begins, where copies are to be compared

    def described(self):
        result = {"id": self.number, "name": self.name, "shape": self.shape, "dtype": str(self.held.dtype).replace("torch.", ""),
                  "frozen": self.frozen}
        if self.aliases:
            result["aliases"] = self.aliases
        if self.chunk:
            result["chunk"] = self.chunk
        if self.stage is not None:
            result["stage"] = self.stage
        if self.group:
            result["group"] = self.group
        if self.placed:
            result["placed"] = self.placed
        if self.sampled:
            result["sampled"] = True
        if self.start:
            result["start"] = self.start
        if self.constant:
            result["constant"] = True
        return dict(result, pieces=[piece.described() for piece in self.pieces])


def clean(name, wrapped):
    """The name without the wrappers' words; `wrapped` are paths of what a wrapper has under a word that may be anybody's."""
    parts = name.split(".")
    return ".".join(part for place, part in enumerate(parts) if part not in WRAPPERS and ".".join(parts[:place + 1]) not in wrapped)


def is_dtensor(tensor):
    return type(tensor).__name__ == "DTensor" or (hasattr(tensor, "_local_tensor") and hasattr(tensor, "placements"))


def local_of(tensor):
    """The tensor that this rank holds of a DTensor, or the tensor itself; dense, and there."""
    if is_dtensor(tensor):
        tensor = tensor._local_tensor
    if hasattr(tensor, "wait") and type(tensor).__name__ == "AsyncCollectiveTensor":
        tensor = tensor.wait()
    return tensor.to_dense() if tensor.layout != torch.strided else tensor


def held_by(tensor):
    """The box of the logical tensor that this rank has, and the axes over which its values are still to be added up."""
    if not is_dtensor(tensor):
        return [(0, size) for size in tensor.shape], []
    mesh = tensor.device_mesh
    at = mesh.get_coordinate()
    if at is None:
        return None, []
    names = mesh.mesh_dim_names or [str(axis) for axis in range(mesh.ndim)]
    partial = [name for name, placement in zip(names, tensor.placements) if "Partial" in type(placement).__name__]
    return box_of(tensor.shape, tensor.placements, list(mesh.shape), at), partial


def kept_of(gradient, held):
    """The box of a gradient of which a rank keeps a part alone: along axes where the gradient is whole on every rank, and `held`, the parameter, is cut,
    it takes its own part, without a collective. None where it keeps all that it has."""
    if not is_dtensor(gradient) or not is_dtensor(held) or not gradient.device_mesh.mesh_dim_names or not held.device_mesh.mesh_dim_names:
        return None
    mesh, at = gradient.device_mesh, gradient.device_mesh.get_coordinate()
    own = dict(zip(held.device_mesh.mesh_dim_names, held.placements))
    placements = [own.get(name, placement) if type(placement).__name__ == "Replicate" else placement
                  for name, placement in zip(mesh.mesh_dim_names, gradient.placements)]
    if at is None or placements == list(gradient.placements):
        return None
    return box_of(gradient.shape, placements, list(mesh.shape), at)


def placed_along(tensor):
    """Axes of the mesh along which it is said how ranks hold a tensor: in parts, whole, or to be added up."""
    return list(tensor.device_mesh.mesh_dim_names or ["dp"]) if is_dtensor(tensor) else []


def pieces_of(tensor):
    if not is_dtensor(tensor):
        return whole(tensor.shape)
    boxes = boxes_of(tensor.shape, tensor.placements, list(tensor.device_mesh.shape))
    return [Piece(tensor.shape, box=box) for box in boxes] or whole(tensor.shape)


def named(module):
    """(name, module that has it, its name there, tensor) of each parameter, ties as often as they are used."""
    for prefix, owner in module.named_modules(remove_duplicate=False):
        for name, tensor in owner._parameters.items():
            if tensor is not None:
                yield (prefix + "." if prefix else "") + name, owner, name, tensor


class Parameters:
    """All of `module`, and on each use a call of contribute(parameter, gradient) when its gradient is there."""

    def __init__(self, module, contribute, pieces_of=pieces_of, shape_of=lambda tensor: tensor.shape,
                 renamed=lambda name: name):
        self.module, self.contribute = module, contribute
        self.all, self.by_tensor, self.by_place, self.handles = [], {}, {}, []
        self.unsharded = lambda parameter, shards, before, tensor: None  # is told of FSDP2's, with the state in which its shards were
        self.first = False  # whether gradients are looked at before other hooks of the tensor have changed them
        self.hooked = {}  # weak references by id: tensors are compared by their elements
        wrapped = {(path + "." if path else "") + "module" for path, owner in module.named_modules(remove_duplicate=False)
                   if isinstance(owner, (DistributedDataParallel, torch.nn.DataParallel))}
        for name, owner, attribute, tensor in named(module):
            name = renamed(clean(name, wrapped))
            if isinstance(tensor, torch.nn.parameter.UninitializedTensorMixin):
                raise CaptureError('parameter "%s" has no shape yet: run the model once before the capture begins' % name)
            parameter = self.by_tensor.get(id(tensor))
            if parameter is None:
                if tensor.requires_grad and tensor.dtype not in FORMATS:
                    raise CaptureError('parameter "%s" is %s: captures know float32, float64, bfloat16 and float16'
                                       % (name, str(tensor.dtype).replace("torch.", "")))
                if tensor.dtype not in FORMATS:
                    continue  # quantized and frozen
                parameter = Parameter(len(self.all), name, tensor, shape_of(tensor), pieces_of(tensor))
                self.all.append(parameter)
                self.by_tensor[id(tensor)] = parameter
            elif name != parameter.name and name not in parameter.aliases:
                parameter.aliases.append(name)
            self.by_place[(id(owner), attribute)] = parameter
        if not self.all:
            raise CaptureError("the model has no parameters to capture: %s" % type(module).__name__)
        self.frozen = [parameter for parameter in self.all if parameter.frozen]

    def hook(self):
        """Begins to look at gradients."""
        for _, owner, attribute, tensor in named(self.module):
            parameter = self.by_place.get((id(owner), attribute))
            if parameter is not None:
                self.look_at(tensor, parameter)
        # Not by hooks on modules: torch.compile breaks a graph at them, and passes over those that came after it.
        for module in filter(None, map(sys.modules.get, FSDP2)):
            self.handles.append(Replaced(module.FSDPParam, "to_unsharded", self.around_swap))

    def around_swap(self, original):
        def to_unsharded(shards, *arguments, **keys):
            before = getattr(shards, "sharded_state", None)
            result = original(shards, *arguments, **keys)
            place = shards._module_info
            parameter = self.by_place.get((id(place.module), place.param_name))
            if parameter is not None:
                tensor = getattr(place.module, place.param_name)
                self.unsharded(parameter, shards, before, tensor)
                self.look_at(tensor, parameter)
            return result
        return to_unsharded

    def look_at(self, tensor, parameter):
        known = self.hooked.get(id(tensor))
        if not tensor.requires_grad or (known is not None and known() is tensor):
            return
        self.hooked[id(tensor)] = weakref.ref(tensor)
        handle = tensor.register_hook(lambda gradient: self.contribute(parameter, gradient))
        if self.first:
            hooks = tensor._backward_hooks  # autograd goes through them in the order of their insertion, whatever move_to_end says
            others = [(number, hook) for number, hook in hooks.items() if number != handle.id]
            own = hooks[handle.id]
            hooks.clear()
            hooks.update([(handle.id, own)] + others)
        self.handles.append(handle)

    def unfreeze(self):
        """Looks at those that are not frozen any more from now on."""
        for parameter in self.frozen:
            if parameter.held.requires_grad:
                parameter.frozen = False
                self.look_at(parameter.held, parameter)
        self.frozen = [parameter for parameter in self.frozen if parameter.frozen]

    def unhook(self):
        for handle in reversed(self.handles):
            handle.remove()
        self.handles = []
