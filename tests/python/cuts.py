# SPDX-License-Identifier: Apache-2.0
"""Cuts random parameters as Megatron does, and compares every piece with the elements of the whole that it says it has."""

import os
import random
import sys
from math import prod

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "python"))

import torch

from lockstep.cuts import Cut


def part(whole, dim, stride, place, count):
    """As Megatron initializes a rank's part: every count-th of the chunks."""
    chunks = torch.chunk(whole, stride * count, dim)
    return torch.cat(chunks[place::count], dim)


def places_of(places):
    return places.indices.tolist() if hasattr(places, "indices") else list(range(places.first, places.first + places.count))


def main(rounds=400):
    random.seed(5)
    checked = 0
    for _ in range(rounds):
        local = [random.choice((1, 2, 3, 4, 6)) for _ in range(random.randint(0, 3))]
        dim = random.choice([None, *range(len(local))])
        count = random.choice((1, 2, 3)) if dim is not None else 1
        stride = 2 if dim == 0 and count > 1 and local[0] % 2 == 0 else 1
        layers = random.choice((1, 1, 2))
        borders = sorted(random.sample(range(1, prod(local)), min(random.randint(0, 3), prod(local) - 1))) if prod(local) > 1 else []
        shape = [size * count if place == dim else size for place, size in enumerate(local)]
        whole = torch.randn([layers] * (layers > 1) + shape)
        seen = []
        for layer in range(layers):
            of_layer = whole[layer] if layers > 1 else whole
            for place in range(count):
                cut = Cut(local, dim, stride, (place, count), (layer, layers), borders)
                assert cut.shape == list(whole.shape)
                flat = (part(of_layer, dim, stride, place, count) if dim is not None else of_layer).reshape(-1)
                begin = random.choice([0, *borders])
                found = cut.parts_of(flat, 0)
                assert [number for number, _, _ in found if number in cut.between(begin, flat.numel())] == \
                    [number for number, _, _ in cut.parts_of(flat[begin:], begin)]
                for number, elements, places in found:
                    indices = places_of(places)
                    assert torch.equal(whole.reshape(-1)[indices], elements), (local, dim, stride, count, borders, number)
                    seen += indices
                    checked += 1
        assert sorted(seen) == list(range(whole.numel()))
    print("counted: %d pieces of %d parameters" % (checked, rounds))


if __name__ == "__main__":
    main()
