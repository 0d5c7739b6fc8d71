# SPDX-License-Identifier: Apache-2.0
"""The file of a step's sketches (docs/capture.md, "The files"): safetensors, with the sums of each row as whole numbers times a power of two."""

import json
import struct

import torch

from lockstep.measuring import unseen
from lockstep.sketching import power

BITS = 30  # of the largest sum of a row; the others have as many binary places
LEAST = 22  # bits that half of a row's sums have then at least, or all that they had before
SHORTENED, WIDE = "I32", "F64"
SIZES = {SHORTENED: 4, WIDE: 8}


def numbers_of(values):
    """Whole numbers and the exponents of two of what they count, int64 [rows, sums] and [rows], for float64 sums of gradients that have no more digits than
    float32; None where a row would lose too much, as one does of which a single sum is far larger than the others."""
    size = values.abs()
    largest = size.amax(1)
    if not bool(torch.isfinite(largest).all()):
        return None
    exponents = torch.frexp(largest)[1].to(torch.int64) - BITS
    numbers = (values * power(-exponents).view(-1, 1)).round()
    exact = (numbers * power(exponents).view(-1, 1) == values).all(1)
    count = (values != 0).sum(1, keepdim=True)
    typical = size.sort(1, descending=True)[0].gather(1, count // 2)
    return (numbers.to(torch.int64), exponents) if bool((exact | (typical.view(-1) * power(-exponents) >= 2**LEAST)).all()) else None


def safetensors(tensors):
    """A file of tensors, each a name, a dtype, a shape and the bytes, little endian."""
    header, begin = {}, 0
    for name, dtype, shape, data in tensors:
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [begin, begin + len(data)]}
        begin += len(data)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + b"".join(data for *_, data in tensors)


def written(rows, sums, wide):
    """A file of rows of float64 sums, which are bytes; `wide`: as they are, for gradients of float64."""
    if rows and not wide:
        values = torch.frombuffer(bytearray(b"".join(rows)), dtype=torch.float64).view(len(rows), sums)
        with unseen(values):
            found = numbers_of(values)
            if found is not None:
                numbers, exponents = (struct.pack("<%di" % one.numel(), *one.reshape(-1).tolist()) for one in found)
                return safetensors([("sketches", SHORTENED, [len(rows), sums], numbers), ("exponents", SHORTENED, [len(rows)], exponents)])
    return safetensors([("sketches", WIDE, [len(rows), sums], b"".join(rows))])


def read(content):
    """The rows of such a file, a tuple of sums each."""
    length, = struct.unpack("<Q", content[:8])
    header = json.loads(content[8:8 + length])
    begin, _ = header["sketches"]["data_offsets"]
    count, sums = header["sketches"]["shape"]
    kind = header["sketches"]["dtype"]
    rows = [struct.unpack_from("<%d%s" % (sums, "d" if kind == WIDE else "i"), content, 8 + length + begin + row * sums * SIZES[kind]) for row in range(count)]
    if kind == WIDE:
        return rows
    exponents = struct.unpack_from("<%di" % count, content, 8 + length + header["exponents"]["data_offsets"][0])
    return [tuple(number * 2.0**exponent for number in row) for row, exponent in zip(rows, exponents)]
