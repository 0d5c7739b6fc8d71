# SPDX-License-Identifier: Apache-2.0
"""What comes out of a collective into which ranks have put whole numbers, such as counts of tokens, sizes, and objects as bytes: exactly what a
backend would leave. They are few, and lists of Python's numbers here: of each member, one list for each tensor that it put in; bytes are hexadecimal.
"""

import math
import operator
from functools import reduce as over

import torch

REDUCED = {"sum": sum, "product": math.prod, "max": max, "min": min, "band": lambda values: over(operator.and_, values),
           "bor": lambda values: over(operator.or_, values), "bxor": lambda values: over(operator.xor, values)}
FROM_ONE = ("broadcast", "scatter", "send", "recv")  # one rank alone says what comes out


def is_whole(tensor):
    return not tensor.is_floating_point() and not tensor.is_complex()


def listed(tensors):
    lists = [tensor.reshape(-1).tolist() for tensor in tensors]
    return [bytes(own).hex() if tensor.dtype == torch.uint8 else own for own, tensor in zip(lists, tensors)]


def joined(lists):
    return [value for values in lists for value in (bytes.fromhex(values) if isinstance(values, str) else values)]


def reduced(reduce, everybody):
    """Element by element; None of a reduction that is not known here."""
    if reduce not in REDUCED or len({len(own) for own in everybody}) != 1:
        return None
    return [REDUCED[reduce](values) for values in zip(*everybody)]


def part(own, number, count):
    """What is for the member of that number in what a member has put in: one tensor for each, or one that is cut."""
    if len(own) == count:
        return joined(own[number:number + 1])
    values = joined(own)
    return values[number * len(values) // count:(number + 1) * len(values) // count] if len(values) % count == 0 else []


def result(op, reduce, everybody, number, root):
    """What the member of that number gets, its tensors one after another; None where that is not known. `root`: the number of the one that says it."""
    count = len(everybody)
    if op in FROM_ONE:
        return part(everybody[root], number, count) if op == "scatter" else joined(everybody[root])
    if op == "reduce_scatter":
        return reduced(reduce, [part(own, number, count) for own in everybody])
    whole = [joined(own) for own in everybody]
    if op in ("all_gather", "gather"):
        return joined(whole)
    return reduced(reduce, whole) if op in ("all_reduce", "reduce") else None


def wrapped(value, dtype):
    """As a whole number of that type holds it."""
    if dtype == torch.bool:
        return bool(value)
    kind = torch.iinfo(dtype)
    value %= 1 << kind.bits
    return value if value <= kind.max else value - (1 << kind.bits)


def write(values, outputs):
    """Into the tensors, one after another; whether that many were expected."""
    if values is None or len(values) != sum(output.numel() for output in outputs):
        return False
    first = 0
    for output in outputs:
        own = [wrapped(value, output.dtype) for value in values[first:first + output.numel()]]
        output.copy_(torch.tensor(own, dtype=output.dtype).reshape(output.shape))
        first += output.numel()
    return True
