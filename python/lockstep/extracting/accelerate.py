# SPDX-License-Identifier: Apache-2.0
"""What Hugging Face accelerate, and so transformers' Trainer, needs of a GPU (shims.py): without one it would train each rank by itself, and call that
no error."""

import torch

from lockstep.extracting import shims
from lockstep.optimizers import Replaced


@shims.of("accelerate.state")
def several_ranks(module):
    """It asks torch for CUDA where it chooses what it trains on; the process group that it makes then is the played one, and its devices are the CPU
    (cuda.py)."""
    def around(original):
        def prepare_backend(state, *arguments, **keys):
            there = Replaced(torch.cuda, "is_available", lambda _: lambda: True)
            try:
                return original(state, *arguments, **keys)
            finally:
                there.remove()
        return prepare_backend
    if not torch.cuda.is_available():
        Replaced(module.PartialState, "_prepare_backend", around)
