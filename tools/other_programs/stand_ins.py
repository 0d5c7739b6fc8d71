# SPDX-License-Identifier: Apache-2.0
"""What a rank has in place of GPUs and of modules that are not installed: programs that ask for CUDA run on the CPU then."""

import collections
import importlib.machinery
import os
import sys
import types


class Nothing:
    """Stands for whatever a module that is not installed has. As a decorator it changes nothing."""

    def __init__(self, *arguments, **more):
        pass

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Nothing()

    def __call__(self, *arguments, **more):
        return arguments[0] if len(arguments) == 1 and callable(arguments[0]) and not more else Nothing()

    def __iter__(self):
        return iter(())

    def __enter__(self):
        return self

    def __exit__(self, *what):
        return None


def module(name, **members):
    """A module with these members, and Nothing for all else, found by import from now on; so are the packages that it is in."""
    made = types.ModuleType(name)
    made.__dict__.update(members)
    made.__getattr__ = lambda member: Nothing if not member.startswith("__") else (_ for _ in ()).throw(AttributeError(member))
    made.__path__, made.__spec__ = [], importlib.machinery.ModuleSpec(name, None)
    sys.modules[name] = made
    outer, _, inner = name.rpartition(".")
    if outer:
        setattr(sys.modules.get(outer) or module(outer), inner, made)
    return made


def elsewhere(device):
    """Whether that names a device that is not the CPU."""
    import torch
    if isinstance(device, torch.device):
        device = device.type
    return isinstance(device, int) and not isinstance(device, bool) or isinstance(device, str) and device.startswith("cuda")


def lead_to_cpu(ranks):
    """Calls of torch that name a GPU do the same on the CPU."""
    import torch
    import torch.distributed as distributed

    def moved(to):
        def there(self, *arguments, **more):
            arguments = ["cpu" if elsewhere(one) else one for one in arguments]
            if elsewhere(more.get("device")):
                more["device"] = "cpu"
            return to(self, *arguments, **more)
        return there

    torch.Tensor.to, torch.nn.Module.to = moved(torch.Tensor.to), moved(torch.nn.Module.to)
    torch.Tensor.cuda = torch.nn.Module.cuda = lambda self, *arguments, **more: self
    torch.Tensor.pin_memory = lambda self, *arguments: self
    accelerator = torch.accelerator
    accelerator.current_accelerator, accelerator.is_available = lambda *a, **k: torch.device("cpu"), lambda: True
    accelerator.device_count = torch.cuda.device_count = lambda: ranks
    accelerator.set_device_index = torch.cuda.set_device = torch.cuda.synchronize = torch.cuda.empty_cache = lambda *a, **k: None
    torch.cuda.memory_stats = lambda *a, **k: collections.defaultdict(int)
    torch.cuda.max_memory_allocated = torch.cuda.reset_peak_memory_stats = lambda *a, **k: 0
    torch.cuda.get_device_properties = lambda *a, **k: types.SimpleNamespace(total_memory=0, name="CPU")

    begin, wrapped = distributed.init_process_group, torch.nn.parallel.DistributedDataParallel.__init__

    def on_gloo(backend=None, *arguments, **more):
        more.pop("device_id", None)
        return begin("gloo", *arguments, **more)

    def without_devices(self, module, device_ids=None, output_device=None, **more):
        return wrapped(self, module, **more)

    distributed.init_process_group = distributed.distributed_c10d.init_process_group = on_gloo
    torch.nn.parallel.DistributedDataParallel.__init__ = without_devices
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
