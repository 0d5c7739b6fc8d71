# SPDX-License-Identifier: Apache-2.0
"""For test_sums.py, on a Python with torch: sums.py FOLDER reads vectors.json there, writes tensors as safetensors and prints what hash and
sketch they have, as JSON."""

import json
import os
import random
import struct
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "python"))

import torch

from lockstep import hashing, measuring, sketch_files, sketching
from lockstep.floats import FORMATS, bits_of
from lockstep.pieces import Piece, chunk
from lockstep.places import Row

DTYPES = {form.name: dtype for dtype, form in FORMATS.items()}
CODES = {"float32": "F32", "float64": "F64", "bfloat16": "BF16", "float16": "F16"}


def with_bits(numbers, dtype):
    width = 8 * torch.empty(0, dtype=dtype).element_size()
    wrapped = [number - 2**width if number >> width - 1 else number for number in numbers]
    return torch.tensor(wrapped, dtype=FORMATS[dtype].integer).view(dtype)


def save(path, tensors):
    header, data = {}, b""
    for name, tensor in tensors.items():
        content = bytes(tensor.contiguous().view(-1).view(torch.uint8).tolist())
        header[name] = {"dtype": CODES[FORMATS[tensor.dtype].name], "shape": list(tensor.shape),
                        "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


def gradient_hash(tensor, first):
    """Of all elements at once."""
    places = Row(first, tensor.numel(), tensor.device)
    return hashing.written(hashing.lanes(bits_of(tensor), FORMATS[tensor.dtype], places).tolist())


def hash_of(piece, tensor, shape):
    flat, places = piece.part_of(tensor, [(0, size) for size in shape])
    _, _, numbers = measuring.measure(flat, places, 64, 0)
    return hashing.written(numbers[:2].tolist())


def any_bits(dtype, count):
    info = torch.iinfo(FORMATS[dtype].integer)
    return torch.randint(info.min, info.max, (count,), dtype=FORMATS[dtype].integer).view(dtype)


def main():
    folder = sys.argv[1]
    random.seed(3)
    torch.manual_seed(3)
    result = {"hashes": [], "drawn": [], "rounded": [], "files": {}, "shards": []}
    with open(os.path.join(folder, "vectors.json")) as file:
        for name, first, elements in json.load(file):
            dtype = DTYPES[name]
            wide = name in ("float32", "float64")
            tensor = (torch.tensor([float(element) for element in elements], dtype=dtype) if wide
                      else with_bits([int(element, 16) for element in elements], dtype))
            result["hashes"].append(gradient_hash(tensor, int(first)))

    a = [i * i % 17 - 8 for i in range(1000)]
    b = [0.1 * i for i in range(300)]
    c = [1e300, 1e-300, 5e-324] * 50
    for values, first, sums, seed in ((a, 0, 64, 0), (a, 0, 256, 0), (b, 4294967196, 64, 7), (c, 0, 64, 0)):
        result["vectors"] = result.get("vectors", []) + [sketching.sketch(torch.tensor(values, dtype=torch.float64), first, sums, seed).tolist()]

    measuring.AT_ONCE["cpu"] = 1 << 11  # so that small tensors are taken in parts as well
    for turn in range(6):
        for dtype, form in FORMATS.items():
            count = random.randrange(1, 4000)
            tensor = any_bits(dtype, count) if turn % 2 else (torch.randn(count) * 10.0 ** random.randrange(-6, 3)).to(dtype)
            first, sums = random.choice([0, 1, 63, 511, 2**33 + 5]), random.choice([64, 128, 192])
            places = Row(first, count, tensor.device)
            _, digits, numbers = measuring.measure(tensor, places, sums, turn)
            values = [value.hex() for value in tensor.double().tolist()]
            found = [value.hex() for value in sketching.rounded(digits, form.smallest).tolist()]
            assert hashing.written(numbers[:2].tolist()) == gradient_hash(tensor, first), "parts of a hash do not add up"
            result["drawn"].append({"dtype": form.name, "values": values, "first": first, "sums": sums, "seed": turn, "sketch": found,
                                    "nonfinite": int(numbers[2])})

    # Rows as the file of a step keeps them: those that fit, what a single large sum takes from the others, numbers of few digits, and zeros.
    result["kept"] = {}
    drawn = torch.randn(3, 64, dtype=torch.float64) * torch.tensor([1e-40, 1.0, 1e40], dtype=torch.float64).view(3, 1)
    steep, sparse = drawn.clone(), torch.zeros(3, 64, dtype=torch.float64)
    steep[1, 5] = 1e4
    sparse[0, 7], sparse[1, 9], sparse[1, 10], sparse[2, 63] = -3.0, 2.0**-60, 2.0**-40, 2.0**-149
    for name, values, wide in (("drawn", drawn, False), ("wide", drawn, True), ("steep", steep, False), ("sparse", sparse, False)):
        content = sketch_files.written([struct.pack("<64d", *row) for row in values.tolist()], 64, wide)
        result["kept"][name] = [len(content), [[value.hex() for value in row] for row in values.tolist()],
                                [[value.hex() for value in row] for row in sketch_files.read(content)]]

    # Middles, the smallest step away from them, carries through all digits, subnormal and too large numbers.
    cases = []
    for shift in (*range(1, 70), 500, 1003, 1970):
        for odd in (0, 1):
            for low in (-1, 0, 1):
                number = ((2**52 + odd) * 2 + 1 << shift) + low
                digits = [number >> 32 * place & 2**32 - 1 for place in range(66)]
                cases += [digits, [-digit for digit in digits]]
                # The same number, not carried.
                cases.append([digit + random.randrange(2**20) * 2**32 for digit in digits])
                for place in range(65):
                    cases[-1][place + 1] -= cases[-1][place] >> 32
    cases += [[0] * 66, [1] + [0] * 65, [-1] + [0] * 65, [0] * 65 + [2**40], [random.randrange(-2**62, 2**62) for _ in range(66)]]
    found = sketching.rounded(torch.tensor(cases), -1074).tolist()
    result["rounded"] = [[digits, value.hex()] for digits, value in zip(cases, found)]

    tensors = {}
    for dtype, form in FORMATS.items():
        for number, shape in enumerate([(1,), (1000, 7), (3, 5, 11), (511,)]):
            count = torch.Size(shape).numel()
            tensors["%s.%d" % (form.name, number)] = any_bits(dtype, count).view(shape)
    save(os.path.join(folder, "drawn.safetensors"), tensors)
    result["files"] = {name: hash_of(Piece(tensor.shape, box=[(0, size) for size in tensor.shape]), tensor, tensor.shape)
                       for name, tensor in tensors.items()}
    for name, tensor in tensors.items():
        if name.endswith(".2"):
            for dims in ((0,), (1,), (2,), (1, 2)):
                box, shard = [(0, size) for size in tensor.shape], []
                for dim in dims:
                    box[dim] = chunk(tensor.shape[dim], 2, 1)
                    shard.append("%d:%d@%d" % (dim, box[dim][0], tensor.shape[dim]))
                stem = "%s-%s" % (name, "".join(map(str, dims)))
                save(os.path.join(folder, stem + ".safetensors"), {"part": tensor[tuple(slice(*pair) for pair in box)]})
                result["shards"].append([stem, shard, hash_of(Piece(tensor.shape, box=box), tensor, tensor.shape)])
    print(json.dumps(result))


if __name__ == "__main__":
    main()
