# SPDX-License-Identifier: Apache-2.0
"""Sketch and hash of a piece of a gradient at once, part by part, so that what they need besides stays small."""

import torch

from lockstep import hashing, sketching
from lockstep.errors import CaptureError
from lockstep.floats import FORMATS, bits_of
from lockstep.places import ROW

# Elements: what a processor's cache holds, and what keeps a GPU busy. Each takes about 200 bytes while it is measured.
AT_ONCE = {"cpu": 1 << 17}
AT_ONCE_ON_DEVICES = 1 << 21


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
    # Parts end where rows do.
    digits, numbers = 0, 0
    begin = 0
    while begin < flat.numel():
        end = min(begin + at_once - (getattr(places, "head", 0) + begin) % ROW, flat.numel())
        _, more, other = measure(flat[begin:end], places.part(begin, end), sums, seed)
        digits, numbers, begin = digits + more, numbers + other, end
    return form, digits, numbers
