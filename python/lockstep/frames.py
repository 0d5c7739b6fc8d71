# SPDX-License-Identifier: Apache-2.0
"""Which frames of a call stack only pass a call on."""

# Frames that pass a call on: the interface of torch.distributed, autograd's engine and the dispatcher. FSDP and DTensor, which
# stand below torch/distributed as well, are who calls.
PASSING = ("torch/distributed/distributed_c10d.py", "torch/distributed/c10d_logger.py", "torch/distributed/_functional_collectives",
           "torch/distributed/nn/functional.py", "torch/autograd/", "torch/_tensor.py", "torch/_ops.py", "torch/_compile.py",
           "torch/_dynamo/", "torch/_library/", "torch/utils/_contextlib.py", "torch/utils/_python_dispatch.py", "lockstep/",
           "contextlib.py", "typing_extensions.py", "deepspeed/comm/", "deepspeed/utils/", "torch/utils/hooks.py", "torch/nn/modules/module.py", "torch/_logging/")


def passes_on(path, name):
    """Whether the frame of the function `name` does no more than pass a call on; `path` without the folder that its package lies in."""
    return path.startswith(PASSING) or path.startswith("<") or (path.startswith("torch/") and name == "__call__")
