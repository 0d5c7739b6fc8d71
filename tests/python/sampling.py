# SPDX-License-Identifier: Apache-2.0
"""For test_sampling.py, on a Python with torch: a sample of random tensors, cut in random ways, against what docs/capture.md says which elements are in it."""

import os
import random
import sys
from math import prod
from types import SimpleNamespace

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "python"))

import torch

from lockstep import hashing, measuring, sampling, sketching
from lockstep.floats import FORMATS, bits_of
from lockstep.pieces import Piece, cut_at
from lockstep.places import Row

MASK = 2**64 - 1


def mix64(z):
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & MASK
    z = (z ^ z >> 27) * 0x94D049BB133111EB & MASK
    return z ^ z >> 31


def splitmix(seed, n):
    return mix64((seed + (n + 1) * 0x9E3779B97F4A7C15) & MASK)


def chosen(count, of, seed):
    """The numbers of the blocks in the sample, as the document has it."""
    key = splitmix(seed, 2049)
    groups = range(-(-count // (64 * of)))
    return [block for block in (of * group + ((splitmix(key, group) >> 32) * of >> 32) for group in groups) if 64 * block < count]


def expected(tensor, blocks, sums, seed):
    """Sketch and hash of these blocks alone."""
    only, lanes = torch.zeros_like(tensor), [0, 0]
    for block in blocks:
        part = tensor[64 * block:64 * block + 64]
        only[64 * block:64 * block + 64] = part
        own = hashing.lanes(bits_of(part.contiguous()), FORMATS[tensor.dtype], Row(64 * block, part.numel(), tensor.device)).tolist()
        lanes = [(a + b) & MASK for a, b in zip(lanes, own)]
    return sketching.sketch(only, 0, sums, seed), lanes


def boxes_of(shape):
    """Random ones that are the whole together: each dimension is cut once or not."""
    boxes = [[]]
    for size in shape:
        border = random.choice([0, random.randrange(size)])
        boxes = [box + [part] for box in boxes for part in ((0, border), (border, size)) if part[0] < part[1]]
    return boxes


def main(rounds=60):
    random.seed(4)
    torch.manual_seed(4)
    sampling.ABOVE, sampling.LEAST = 0, 1
    measuring.AT_ONCE["cpu"] = 1 << 10  # so that small tensors are taken in parts as well
    taken = 0
    for turn in range(rounds):
        shape = [random.randint(1, 60) for _ in range(random.randint(1, 3))]
        shape[0] += 200
        numel, of, seed = prod(shape), random.choice((2, 3, 16)), random.choice((0, 7))
        dtype = random.choice((torch.float32, torch.bfloat16, torch.float16, torch.float64))
        whole = torch.randn(shape).to(dtype)
        if turn % 2:
            pieces = cut_at(shape, random.sample(range(numel), 2))
        else:
            pieces = [Piece(shape, box=box) for box in boxes_of(shape)]
        parameter = SimpleNamespace(shape=shape, pieces=pieces, sampled=False)
        sampling.Sample(of, seed).begin([parameter])
        if not parameter.sampled:
            continue  # one of the pieces has nothing of the sample
        sums, lanes, count = 0, [0, 0], 0
        for piece in pieces:
            flat, places = piece.part_of(whole, [(0, size) for size in shape]) if piece.box else piece.part_of_flat(whole.reshape(-1), 0)
            form, digits, numbers = measuring.measure(flat, places, 64, seed)
            sums = sums + digits
            lanes = [(a + b) & MASK for a, b in zip(lanes, numbers[:2].tolist())]
            count += flat.numel()
        blocks = chosen(numel, of, seed)
        sketch, own = expected(whole.reshape(-1), blocks, 64, seed)
        assert torch.equal(sketching.rounded(sums, form.smallest), sketch), (shape, of)
        assert lanes == own, (shape, of)
        assert count == sum(min(64, numel - 64 * block) for block in blocks)
        taken += 1
    print("compared: %d" % taken)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
