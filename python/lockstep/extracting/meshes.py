# SPDX-License-Identifier: Apache-2.0
"""The mesh of a script whose model does not say it: a DeviceMesh of all ranks that it has made, with names that are known."""

from torch.nn.parallel import DistributedDataParallel

from lockstep import adapters
from lockstep.errors import CaptureError
from lockstep.mesh import DATA_AXES, EXPERT_AXES, OTHER_AXES
from lockstep.parameters import is_dtensor

FRAMEWORKS = ("deepspeed.DeepSpeedEngine", "megatron.DistributedDataParallel")  # which know their own

_made = []  # as long as the script runs, whether it keeps them or not


def made(mesh):
    _made.append(mesh)


def axes_of(mesh):
    return {name for name, size in zip(mesh.mesh_dim_names or (), mesh.mesh.shape) if size > 1}


def are_known(names):
    return all(name in DATA_AXES or name in OTHER_AXES for name in names)


def of_tensors(model):
    """The axes of the meshes that DTensors of it are on, but for those of experts."""
    found = {id(tensor.device_mesh): axes_of(tensor.device_mesh) for tensor in model.parameters() if is_dtensor(tensor)}
    return set().union(*(axes for axes in found.values() if EXPERT_AXES.isdisjoint(axes)))


def says_it(model, world):
    """Whether a framework or a wrapper knows along which axes the ranks have which parameters."""
    if not adapters.names_of(model).isdisjoint(FRAMEWORKS):
        return True
    if not hasattr(model, "modules"):
        return False
    wrapped = [module for module in model.modules() if isinstance(module, DistributedDataParallel)]
    return any(map(is_dtensor, model.parameters())) or any(module.process_group.size() == world for module in wrapped)


def is_cut_from_a_nameless_one(model, world):
    """Whether DTensors are on a part of the ranks, by a mesh that was made of one axis that says nothing, as torchtitan cuts all of its from "world"."""
    for tensor in model.parameters() if hasattr(model, "parameters") else ():
        if is_dtensor(tensor) and tensor.device_mesh.mesh.numel() < world:
            root = adapters.root_of(tensor.device_mesh)
            if root.mesh.numel() == world and root.mesh_dim_names is not None and not are_known(axes_of(root)):
                return True
    return False


def of_script(model, world):
    """None where there is none, or the model says it."""
    cut = is_cut_from_a_nameless_one(model, world)
    if says_it(model, world) and not cut:
        return None
    found, needed = {}, of_tensors(model) if cut else set()
    for mesh in _made:
        names = mesh.mesh_dim_names
        if names is None or mesh.mesh.numel() != world or (adapters.root_of(mesh) is not mesh and not cut):
            continue
        axes = tuple((name, size) for name, size in zip(names, mesh.mesh.shape) if size > 1)
        if are_known(name for name, _ in axes) and needed <= axes_of(mesh):
            found.setdefault((axes, tuple(mesh.mesh.reshape(-1).tolist())), mesh)
    if len(found) > 1:
        raise CaptureError("the script has meshes of all ranks with different axes (%s), and the model does not say which is its own: give --mesh, such as dp=2,tp=2"
                           % " and ".join(", ".join(mesh.mesh_dim_names) for mesh in found.values()))
    return next(iter(found.values()), None)
