# SPDX-License-Identifier: Apache-2.0
"""What asks for CUDA gets the CPU, where there is no GPU: a script that says "cuda", and frameworks that know nothing else, run as they are.

Devices: whatever names cuda in a call of torch names the CPU, and a number as well (what torch.cuda.current_device() returned). Streams and events
are there and order nothing, for everything on the CPU runs in its order. torch.cuda.is_available() stays false, so that a script that asks goes its
own way without one. What has no counterpart on the CPU, such as a kernel of its own, ends in the error that it ends in.
"""

import contextlib
import os

import torch
from torch.cuda.amp import common as amp
from torch.nn.parallel import DistributedDataParallel

from lockstep.optimizers import Replaced


def is_cuda(device):
    if isinstance(device, bool):
        return False
    return isinstance(device, int) or (isinstance(device, str) and device.split(":")[0] == "cuda") or (isinstance(device, torch.device) and device.type == "cuda")


MAKERS = ("tensor", "as_tensor", "zeros", "ones", "empty", "full", "rand", "randn", "randint", "randperm", "arange", "linspace", "eye", "empty_strided",
          "zeros_like", "ones_like", "empty_like", "full_like", "rand_like", "randn_like", "scalar_tensor")
OF_TENSORS = ("to", "new_empty", "new_zeros", "new_ones", "new_full", "new_tensor", "new_empty_strided")


def on_cpu(original):
    """Makes a function that calls the original with the CPU for what names cuda."""
    def call(*arguments, **keys):
        if keys.get("device") is not None and is_cuda(keys["device"]):
            keys["device"] = torch.device("cpu")
        if keys.get("pin_memory"):
            keys["pin_memory"] = False
        return original(*arguments, **keys)
    return call


def to_cpu(original):
    def to(tensor, *arguments, **keys):
        if arguments and not isinstance(arguments[0], (torch.Tensor, torch.dtype)) and is_cuda(arguments[0]):
            arguments = (torch.device("cpu"),) + arguments[1:]
        if keys.get("device") is not None and is_cuda(keys["device"]):
            keys["device"] = torch.device("cpu")
        return original(tensor, *arguments, **keys)
    return to


class Generator(torch.Generator):
    def __new__(cls, device="cpu"):
        return super().__new__(cls, "cpu")


class Stream:
    """Of torch.cuda, with nothing to wait for."""

    device = torch.device("cpu")
    cuda_stream = 0

    def __init__(self, *_, **__):
        pass

    def wait_stream(self, *_):
        pass

    wait_event = synchronize = wait_stream

    def record_event(self, event=None):
        return event or Event()

    def query(self):
        return True

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return False


class Event:
    def __init__(self, *_, **__):
        pass

    def record(self, *_):
        pass

    wait = synchronize = record

    def query(self):
        return True

    def elapsed_time(self, *_):
        return 0.0


def without_devices(original):
    """DistributedDataParallel is given the number of the GPU on which the script believes its model to be."""
    def init(wrapper, *arguments, **keys):
        model = arguments[0] if arguments else keys["module"]
        if all(parameter.device.type == "cpu" for parameter in model.parameters()):
            arguments = arguments[:1] + (None,) * len(arguments[1:3]) + arguments[3:]
            keys = {key: None if key in ("device_ids", "output_device") else value for key, value in keys.items()}
        original(wrapper, *arguments, **keys)
    return init


def state(*_, **__):
    return torch.get_rng_state()


def set_state(new, *_, **__):
    torch.set_rng_state(new.cpu() if isinstance(new, torch.Tensor) else new)


NOTHING = ("synchronize", "set_device", "empty_cache", "manual_seed", "manual_seed_all", "reset_peak_memory_stats", "reset_max_memory_allocated", "ipc_collect",
           "set_per_process_memory_fraction", "set_stream", "init", "_lazy_init")
ZEROS = ("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved", "current_device")


class Properties:
    """Of a device that is none."""

    name, major, minor, total_memory, multi_processor_count = "none", 9, 0, 80 << 30, 132


def install():
    """Where torch finds no GPU."""
    if torch.cuda.is_available():
        return
    # Not by a mode for functions of torch: backward passes run without it.
    for name in MAKERS:
        del Replaced(torch, name, on_cpu).replacement.__wrapped__  # a builtin, of which inspect knows no source
    for name in OF_TENSORS:
        Replaced(torch.Tensor, name, to_cpu if name == "to" else on_cpu)
    for name in ("cuda", "pin_memory"):
        Replaced(torch.Tensor, name, lambda original: lambda tensor, *_, **__: tensor)
    Replaced(torch.Tensor, "is_pinned", lambda original: lambda *_, **__: False)
    torch.Generator = Generator
    cuda = torch.cuda
    for name in NOTHING:
        if hasattr(cuda, name):
            Replaced(cuda, name, lambda original: lambda *_, **__: None)
    for name in ZEROS:
        Replaced(cuda, name, lambda original: lambda *_, **__: 0)
    for name, value in (("current_stream", Stream), ("default_stream", Stream), ("stream", lambda *_, **__: contextlib.nullcontext()),
                        ("device_count", lambda: int(os.environ["LOCAL_WORLD_SIZE"])), ("get_rng_state", state), ("set_rng_state", set_state), ("get_device_properties", lambda *_, **__: Properties()),
                        ("get_device_capability", lambda *_, **__: (9, 0)), ("get_device_name", lambda *_, **__: "none"), ("is_bf16_supported", lambda *_, **__: True),
                        ("mem_get_info", lambda *_, **__: (80 << 30, 80 << 30)), ("is_current_stream_capturing", lambda: False)):
        Replaced(cuda, name, lambda original, value=value: lambda *arguments, **keys: value(*arguments, **keys))
    cuda.Stream, cuda.Event = Stream, Event
    # Else a GradScaler would scale nothing, and what comes of its scale would not be seen.
    Replaced(amp, "amp_definitely_not_available", lambda original: lambda: False)
    Replaced(DistributedDataParallel, "__init__", without_devices)
    cuda.device = lambda *_, **__: contextlib.nullcontext()
