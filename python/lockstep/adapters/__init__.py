# SPDX-License-Identifier: Apache-2.0
"""What is different in each framework: which tensors are parameters, what the optimizer gets, and when."""


def adapter_for(model, optimizer, run):
    """The adapter for what was given to lockstep.capture or lockstep.attach. A framework is not imported to find out."""
    names = {(kind.__module__ or "").split(".")[0] + "." + kind.__name__ for kind in type(model).__mro__}
    if "deepspeed.DeepSpeedEngine" in names:
        from lockstep.adapters.deepspeed import DeepSpeed

        return DeepSpeed(model, optimizer, run)
    from lockstep.adapters.plain import Plain

    return Plain(model, optimizer, run)
