# SPDX-License-Identifier: Apache-2.0
"""The mesh of a script whose model does not say it: a DeviceMesh of all ranks that it has made, with names that are known."""

import weakref

from lockstep import adapters
from lockstep.errors import CaptureError
from lockstep.mesh import DATA_AXES, OTHER_AXES
from lockstep.parameters import is_dtensor

FRAMEWORKS = ("deepspeed.DeepSpeedEngine", "megatron.DistributedDataParallel")  # which know their own

_made = []


def made(mesh):
    _made.append(weakref.ref(mesh))


def of_script(model, world):
    """None where there is none, or the model says it."""
    if not adapters.names_of(model).isdisjoint(FRAMEWORKS) or any(map(is_dtensor, model.parameters() if hasattr(model, "parameters") else ())):
        return None
    found = {}
    for mesh in filter(None, (reference() for reference in _made)):
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
