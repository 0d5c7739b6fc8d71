# SPDX-License-Identifier: Apache-2.0
"""Bit patterns of floating-point tensors and SplitMix64, as int64 tensors.

torch has no unsigned 64-bit arithmetic. int64 wraps around, so sums and products are those of docs/hash.md; only shifts
to the right need the sign's copies taken off.
"""

from collections import namedtuple

import torch

LOW = 0xFFFFFFFF

# domain: docs/hash.md. fraction: bits of the significand that are written down. digits: 32-bit digits of an exact sum
# (docs/sketch.md). smallest: the exponent of the unit in which a subnormal number counts.
Format = namedtuple("Format", "name domain width fraction digits smallest integer")

FORMATS = {
    torch.float32: Format("float32", 1, 32, 23, 9, -149, torch.int32),
    torch.float64: Format("float64", 2, 64, 52, 66, -1074, torch.int64),
    torch.bfloat16: Format("bfloat16", 3, 16, 7, 9, -133, torch.int16),
    torch.float16: Format("float16", 5, 16, 10, 2, -24, torch.int16),
}


def signed(number):
    """The int64 with the bits of an unsigned 64-bit number."""
    number &= 2**64 - 1
    return number - 2**64 if number >> 63 else number


def shifted(tensor, count):
    """Logical shift to the right."""
    return (tensor >> count) & (2 ** (64 - count) - 1)


def splitmix(seed, numbers):
    """Outputs `numbers` (an int64 tensor) of SplitMix64 started at `seed` (a Python int)."""
    z = (numbers + 1) * signed(0x9E3779B97F4A7C15) + signed(seed)
    z = (z ^ shifted(z, 30)) * signed(0xBF58476D1CE4E5B9)
    z = (z ^ shifted(z, 27)) * signed(0x94D049BB133111EB)
    return z ^ shifted(z, 31)


def splitmix_number(seed, number):
    """One output as a Python int, unsigned."""
    return int(splitmix(seed, torch.tensor([signed(number)]))[0]) & (2**64 - 1)


def bits_of(tensor):
    """The bit patterns of a contiguous floating-point tensor: int64, not negative but for float64."""
    form = FORMATS[tensor.dtype]
    bits = tensor.view(form.integer)
    if form.width == 64:
        return bits
    return bits.to(torch.int64) & (2**form.width - 1)
