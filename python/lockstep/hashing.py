# SPDX-License-Identifier: Apache-2.0
"""The gradient hash of docs/hash.md in torch operations, on the device where the tensor is."""

import torch

from lockstep.floats import LOW, shifted


def canonical(bits, form):
    """-0 as +0, and every NaN with all bits set."""
    minus_zero = -(2**63) if form.width == 64 else 1 << form.width - 1
    infinity = ((1 << form.width - 1 - form.fraction) - 1) << form.fraction
    magnitude = bits & (2 ** (form.width - 1) - 1)
    bits = torch.where(bits == minus_zero, torch.zeros_like(bits), bits)
    every_bit = -1 if form.width == 64 else 2**form.width - 1
    return torch.where(magnitude > infinity, torch.full_like(bits, every_bit), bits)


def lanes(bits, form, places):
    """The two lanes as an int64 tensor; `bits` are those of the elements at `places`, in order."""
    if places.count == 0:
        return torch.zeros(2, dtype=torch.int64, device=bits.device)
    rows = places.laid_out(canonical(bits, form))
    found = []
    for lane in (0, 1):
        x, y = places.keys(lane)
        if form.width == 64:
            products = ((rows & LOW) ^ x) * (shifted(rows, 32) ^ y)
        else:
            products = (rows ^ x) * y
        found.append((places.blank(products).sum(1) * places.factors(form.domain, lane)).sum())
    return torch.stack(found)


def written(pair):
    """32 hexadecimal digits of the two lanes, given as Python ints."""
    return "%016x%016x" % tuple(lane & (2**64 - 1) for lane in pair)
