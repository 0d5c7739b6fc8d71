# SPDX-License-Identifier: Apache-2.0
"""What is different in each framework: which tensors are parameters, what the optimizer gets, and when."""


from lockstep.errors import CaptureError


def names_of(model):
    """Package and name of the class of a model, or of each in a list, and of those that it inherits. No framework is imported to find out."""
    models = model if isinstance(model, (list, tuple)) else [model]
    return {(kind.__module__ or "").split(".")[0] + "." + kind.__name__ for one in models for kind in type(one).__mro__}


def mesh_of(model):
    """The mesh that the framework knows, or None."""
    if "megatron.DistributedDataParallel" in names_of(model):
        from lockstep.adapters.megatron import mesh

        return mesh()
    return None


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
