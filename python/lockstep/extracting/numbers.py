# SPDX-License-Identifier: Apache-2.0
"""What comes out of a collective into which ranks have put whole numbers, such as counts of tokens, sizes, and objects as bytes: exactly what a
backend would leave. They are few, and lists of Python's numbers here: of each member, one list for each tensor that it put in; bytes are hexadecimal.
Counts are kept in floating point as well, beside what is no whole number, as a loss: None there, and wherever what comes out is not known.
"""

import base64
import hashlib
import math
import operator
from functools import reduce as over

import torch

REDUCED = {"sum": sum, "product": math.prod, "max": max, "min": min, "band": lambda values: over(operator.and_, values),
           "bor": lambda values: over(operator.or_, values), "bxor": lambda values: over(operator.xor, values)}
FEW = 16  # elements
NEAR, FAR = (0.75, 1.25), (4.0, 8.0)  # by how much change() changes many numbers, and few, one of which may be a coefficient
MOST_COUNTED = 1 << 53  # in floating point
REDUCTIONS = ("all_reduce", "reduce_scatter", "reduce")
FROM_ONE = ("broadcast", "scatter", "send", "recv")  # one rank alone says what comes out


def text_of(tensor):
    """Its type, and its bytes."""
    return [str(tensor.dtype).replace("torch.", ""), base64.b64encode(bytes(tensor.detach().reshape(-1).contiguous().view(torch.uint8).tolist())).decode()]


def tensor_of(text):
    kind, content = getattr(torch, text[0]), bytearray(base64.b64decode(text[1]))
    return torch.frombuffer(content, dtype=torch.uint8).view(kind) if content else torch.empty(0, dtype=kind)


def is_whole(tensor):
    return not tensor.is_floating_point() and not tensor.is_complex()


def counted(value):
    return int(value) if abs(value) < MOST_COUNTED and value == int(value) else None


def listed(tensors):
    lists = [tensor.reshape(-1).tolist() if is_whole(tensor) else [counted(value) for value in tensor.reshape(-1).tolist()] for tensor in tensors]
    return [bytes(own).hex() if tensor.dtype == torch.uint8 else own for own, tensor in zip(lists, tensors)]


def joined(lists):
    return [value for values in lists for value in (bytes.fromhex(values) if isinstance(values, str) else values)]


def padded(told, own):
    """Objects that a member puts in, as long as this rank's: the longest of all says how long they are, and that was not known when they were told."""
    return [one.ljust(len(other), "0") for one, other in zip(told, own)] if len(told) == len(own) else told


def reduced(reduce, everybody):
    """Element by element; None of a reduction that is not known here."""
    if reduce not in REDUCED or len({len(own) for own in everybody}) != 1:
        return None
    return [None if None in values else REDUCED[reduce](values) for values in zip(*everybody)]


def agreed(told, own):
    """What was told of a member, with None where it now puts in something else."""
    if tuple(map(len, told)) != tuple(map(len, own)):
        return [[None] * len(values) for values in told]
    return [[one if one == other else None for one, other in zip(*pair)] for pair in zip(told, own)]


def part(own, number, count):
    """What is for the member of that number in what a member has put in: one tensor for each, or one that is cut."""
    if len(own) == count:
        return joined(own[number:number + 1])
    values = joined(own)
    return values[number * len(values) // count:(number + 1) * len(values) // count] if len(values) % count == 0 else []


def result(op, reduce, everybody, number, root):
    """What the member of that number gets, its tensors one after another; None where that is not known. Of objects that are gathered, bytes. `root`: the
    number of the one that says it."""
    count = len(everybody)
    if op in FROM_ONE:
        return part(everybody[root], number, count) if op == "scatter" else joined(everybody[root])
    if op == "reduce_scatter":
        return reduced(reduce, [part(own, number, count) for own in everybody])
    if op in ("all_gather", "gather") and all(isinstance(one, str) for own in everybody for one in own):
        return bytes.fromhex("".join(one for own in everybody for one in own))
    whole = [joined(own) for own in everybody]
    if op in ("all_gather", "gather"):
        return joined(whole)
    return reduced(reduce, whole) if op in ("all_reduce", "reduce") else None


def exact(values, outputs):
    """The same without what sums of floating point may have been rounded to."""
    most = min((2 / torch.finfo(output.dtype).eps for output in outputs if output.is_floating_point()), default=math.inf)
    return [None if value is None or abs(value) > most else value for value in values]


def wrapped(value, dtype):
    """As a whole number of that type holds it."""
    if dtype.is_floating_point:
        return float(value)
    if dtype == torch.bool:
        return bool(value)
    kind = torch.iinfo(dtype)
    value %= 1 << kind.bits
    return value if value <= kind.max else value - (1 << kind.bits)


def write(values, outputs):
    """Into the tensors, one after another, but for what is None; whether that many were expected. `values`: a list, or bytes."""
    if values is None or len(values) != sum(output.numel() for output in outputs):
        return False
    first = 0
    for output in outputs:
        if isinstance(values, bytes):
            there = bytearray(values[first:first + output.numel()])
            output.copy_((torch.frombuffer(there, dtype=torch.uint8) if there else torch.empty(0, dtype=torch.uint8)).reshape(output.shape))
            first += output.numel()
            continue
        there = output.reshape(-1).tolist()
        own = [before if value is None else wrapped(value, output.dtype) for value, before in zip(values[first:first + output.numel()], there)]
        output.copy_(torch.tensor(own, dtype=output.dtype).reshape(output.shape))
        first += output.numel()
    return True


def of_others(gathered, count, own):
    """What comes of others where each of so many members has put in one part, as few tensors: of one that holds all, what stands before the own part and behind it."""
    if len(gathered) == count:
        return gathered[:own] + gathered[own + 1:]
    parts = []
    for one in gathered:
        flat = one.reshape(-1)
        size = -(-flat.numel() // count)
        parts += [flat[:own * size], flat[(own + 1) * size:]]
    return parts


def change(call, op, members, rank, outputs, zeros):
    """Makes something else of what comes out of a call and is not known: more on some ranks and less on others; of zeros as well if `zeros`, else they may
    be flags. What the rank has itself put into what is gathered is there, and a byte of an object says too much to be another one."""
    if op in ("all_gather", "gather"):
        outputs = of_others(outputs, len(members), members.index(rank))
    is_few = sum(output.numel() for output in outputs) <= FEW
    low, high = FAR if is_few else NEAR
    factor = low + (high - low) * int(hashlib.sha1(("%s %d" % (call, rank)).encode()).hexdigest()[:12], 16) / 16.0 ** 12
    if is_few and (rank + int(call.rpartition("#")[2])) % 2 == 0:
        factor = 1 / factor
    for output in outputs:
        if output.is_floating_point():
            before = output == 0
            output.mul_(factor)
            if zeros and is_few:
                output.masked_fill_(before, factor)
        elif is_whole(output) and output.dtype != torch.bool and (output.dtype != torch.uint8 or op in REDUCTIONS):
            output.sub_((output > 0).to(output.dtype))
