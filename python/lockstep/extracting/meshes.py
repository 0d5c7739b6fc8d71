# SPDX-License-Identifier: Apache-2.0
"""The mesh of a script whose model does not say it: a DeviceMesh of all ranks that it has made, with names that are known."""

from torch.nn.parallel import DistributedDataParallel

from lockstep import adapters
from lockstep.errors import CaptureError
from lockstep.mesh import DATA_AXES, OTHER_AXES
from lockstep.parameters import is_dtensor

FRAMEWORKS = ("deepspeed.DeepSpeedEngine", "megatron.DistributedDataParallel")  # which know their own

_made = []  # as long as the script runs, whether it keeps them or not


def made(mesh):
    _made.append(mesh)


def says_it(model, world):
    """Whether a framework or a wrapper knows along which axes the ranks have which parameters."""
    if not adapters.names_of(model).isdisjoint(FRAMEWORKS):
        return True
    if not hasattr(model, "modules"):
        return False
    wrapped = [module for module in model.modules() if isinstance(module, DistributedDataParallel)]
    return any(map(is_dtensor, model.parameters())) or any(module.process_group.size() == world for module in wrapped)


def of_script(model, world):
    """None where there is none, or the model says it."""
    if says_it(model, world):
        return None
    found = {}
    for mesh in _made:
        names = mesh.mesh_dim_names
        if names is None or mesh.mesh.numel() != world or adapters.root_of(mesh) is not mesh:
            continue
        axes = tuple((name, size) for name, size in zip(names, mesh.mesh.shape) if size > 1)
        if all(name in DATA_AXES or name in OTHER_AXES for name, _ in axes):
            found.setdefault((axes, tuple(mesh.mesh.reshape(-1).tolist())), mesh)
    if len(found) > 1:
        raise CaptureError("the script has meshes of all ranks with different axes (%s), and the model does not say which is its own: give --mesh, such as dp=2,tp=2"
                           % " and ".join(", ".join(mesh.mesh_dim_names) for mesh in found.values()))
    return next(iter(found.values()), None)
