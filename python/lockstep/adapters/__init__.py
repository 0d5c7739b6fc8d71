# SPDX-License-Identifier: Apache-2.0
"""What is different in each framework: which tensors are parameters, what the optimizer gets, and when."""


import sys

from lockstep.errors import CaptureError
from lockstep.mesh import EXPERT_AXES


def names_of(model):
    """Package and name of the class of a model, or of each in a list, and of those that it inherits. No framework is imported to find out."""
    models = model if isinstance(model, (list, tuple)) else [model]
    return {(kind.__module__ or "").split(".")[0] + "." + kind.__name__ for one in models for kind in type(one).__mro__}


def mesh_of(model):
    """The mesh that the framework knows, or None."""
    if "megatron.DistributedDataParallel" in names_of(model):
        from lockstep.adapters.megatron import mesh

        return mesh()
    from lockstep.parameters import is_dtensor

    tensors = model.parameters() if hasattr(model, "parameters") else []
    own = list({id(tensor.device_mesh): tensor.device_mesh for tensor in tensors if is_dtensor(tensor)}.values())
    return mesh_of_all(own, any(hasattr(module, "_get_fsdp_state") for module in model.modules())) if own else None


def root_of(mesh):
    """The mesh that it was sliced from, or itself."""
    if hasattr(mesh, "_get_root_mesh"):
        return mesh._get_root_mesh()
    resources = getattr(sys.modules[type(mesh).__module__], "_mesh_resources", None)  # before torch 2.10
    return resources.get_root_mesh(mesh) if hasattr(resources, "get_root_mesh") else mesh


def mesh_of_all(meshes, sharded):
    """The mesh with names on all ranks that the meshes of DTensors are, or were sliced from; None for data parallel alone. `sharded`: whether FSDP2
    made DTensors, each of which has a mesh of its own, without a name, where fully_shard was given none."""
    import torch.distributed as dist

    world = dist.get_world_size()
    found = {}
    for mesh in meshes:
        whole = mesh if mesh.mesh.numel() == world else root_of(mesh)
        if whole.mesh.numel() != world or (whole.mesh_dim_names is None and not (sharded and whole.mesh.dim() == 1)):
            raise CaptureError("the model has DTensors on the ranks %s, of a mesh whose axes on all %d ranks are not known: give mesh=, the whole"
                               " mesh with its names" % (mesh.mesh.reshape(-1).tolist(), world))
        axes = [(name, size) for name, size in zip(whole.mesh_dim_names or ["dp"], whole.mesh.shape) if size > 1]
        found.setdefault((tuple(axes), tuple(whole.mesh.reshape(-1).tolist())), whole)
    # Experts have a mesh of their own of the same ranks; which of these see different tokens is what the others' says.
    dense = {key: whole for key, whole in found.items() if EXPERT_AXES.isdisjoint(whole.mesh_dim_names or ())}
    found = dense if len(dense) == 1 else found
    if len(found) > 1:
        raise CaptureError("the model has DTensors on meshes with different axes (%s): give mesh=, the whole mesh with its names"
                           % " and ".join(", ".join(map(str, whole.mesh_dim_names)) for whole in found.values()))
    whole, = found.values()
    return whole if whole.mesh_dim_names is not None else None


def adapter_for(model, optimizer, run):
    """The adapter for what was given to lockstep.capture or lockstep.attach."""
    names = names_of(model)
    if "deepspeed.DeepSpeedEngine" in names:
        from lockstep.adapters.deepspeed import DeepSpeed

        return DeepSpeed(model, optimizer, run)
    if "megatron.DistributedDataParallel" in names:
        from lockstep.adapters.megatron import Megatron

        return Megatron(model, optimizer, run)
    for name in ("megatron.FullyShardedDataParallel", "megatron_fsdp.MegatronFSDP", "megatron.TorchFullyShardedDataParallel"):
        if name in names:
            raise CaptureError("%s keeps gradients in ways that captures do not know: they know megatron.core's DistributedDataParallel"
                               % name.split(".")[1])
    from lockstep.adapters.plain import Plain

    return Plain(model, optimizer, run)
