# SPDX-License-Identifier: Apache-2.0
"""Sketch and hash of a piece of a gradient at once, part by part, so that what they need besides stays small."""

import contextlib

import torch

from lockstep import hashing, sketching
from lockstep.errors import CaptureError
from lockstep.floats import FORMATS, bits_of
from lockstep.places import ROW

# Elements: what a processor's cache holds, and what keeps a GPU busy. Each takes about 200 bytes while it is measured.
AT_ONCE = {"cpu": 1 << 17}
AT_ONCE_ON_DEVICES = 1 << 21


def unseen(tensor):
    """While it lasts, no dispatch mode sees operations: each of them would cost as much as many elements. What is no plain tensor needs one."""
    return torch._C._DisableTorchDispatch() if type(tensor) is torch.Tensor else contextlib.nullcontext()


def measure(flat, places, sums, seed):
    """The format of the elements, their sums as digits (int64 [sums, digits]), and int64 [3]: both lanes of the hash, and how many
    are not finite. Nothing is brought to the host."""
    form = FORMATS.get(flat.dtype)
    if form is None:
        raise CaptureError("a gradient is %s: captures know float32, float64, bfloat16 and float16" % str(flat.dtype).replace("torch.", ""))
    at_once = AT_ONCE.get(flat.device.type, AT_ONCE_ON_DEVICES)
    if flat.numel() <= at_once:
        bits = bits_of(flat.contiguous())
        digits, nonfinite = sketching.digits_of(bits, form, places, sums, seed)
        return form, digits, torch.cat([hashing.lanes(bits, form, places), nonfinite.view(1)])
    digits, numbers = 0, 0
    for part, own in parts(flat, places, at_once):
        _, more, other = measure(part, own, sums, seed)
        digits, numbers = digits + more, numbers + other
    return form, digits, numbers


def parts(flat, places, at_once):
    """They end where rows do."""
    begin = 0
    while begin < flat.numel():
        end = min(begin + at_once - (getattr(places, "head", 0) + begin) % ROW, flat.numel())
        yield flat[begin:end], places.part(begin, end)
        begin = end


def lanes_of(flat, places):
    """Both lanes of the hash alone, int64 [2], on the device."""
    with unseen(flat):
        return lanes(flat, places)


def lanes(flat, places):
    at_once = AT_ONCE.get(flat.device.type, AT_ONCE_ON_DEVICES)
    if flat.numel() > at_once:
        return sum(lanes(part, own) for part, own in parts(flat, places, at_once))
    form = FORMATS[flat.dtype]
    return hashing.lanes(bits_of(flat.contiguous()), form, places)
