# SPDX-License-Identifier: Apache-2.0
"""A part of the elements of large parameters: one block of 64 in so many, by global index, the same on every rank and in every run (docs/capture.md).

Hash and sketch of what is chosen are those of a gradient of which the other elements are not there: linear, whatever the sharding.
"""

import re
from math import prod

import torch

from lockstep.errors import CaptureError, shown
from lockstep.floats import shifted, splitmix, splitmix_number
from lockstep.pieces import known
from lockstep.places import BLOCK, ROW, Row, Scattered, factors, keys

ABOVE = 1 << 16  # Parameters of up to so many elements are measured whole.
LEAST = 256  # elements of each piece that are chosen; a parameter that is cut finer is measured whole
MOST = 1024


def one_of(sample):
    """N of "1/N"; 1 where all is measured."""
    if sample is None:
        return 1
    found = re.fullmatch(r"1/([1-9]\d{0,3})", sample) if isinstance(sample, str) else None
    if found is None or int(found[1]) > MOST:
        raise CaptureError('sample is %s: expected a part of the elements such as "1/16", down to "1/%d", or None for all' % (shown(sample), MOST))
    return int(found[1])


class Blocks(Row):
    """The elements of [first, end) that are in some blocks of 64, by their numbers in ascending order."""

    def __init__(self, numbers, first, end, device):
        self.on_host, self.device = numbers, device
        begin, last = int(numbers[0]) * BLOCK, int(numbers[-1]) * BLOCK
        self.head = max(0, first - begin)
        self.rows = numbers.numel()
        self.count = (self.rows - 1) * BLOCK + min(BLOCK, end - last) - self.head
        self.numbers = numbers.to(device)
        self.blocks = self.numbers.view(-1, 1)
        self.known = {}
        self.first = first

    def part(self, begin, end):
        numbers = self.on_host[(self.head + begin) // BLOCK:-(-(self.head + end) // BLOCK)]
        first = int(numbers[0]) * BLOCK + (self.head + begin) % BLOCK
        return Blocks(numbers, first, int(numbers[-1]) * BLOCK + (self.head + end - 1) % BLOCK + 1, self.device)

    def laid_out(self, bits):
        if bits.numel() == self.rows * BLOCK:
            return bits.view(self.rows, BLOCK)
        whole = torch.zeros(self.rows * BLOCK, dtype=torch.int64, device=self.device)
        whole[self.head:self.head + self.count] = bits
        return whole.view(self.rows, BLOCK)

    def keys(self, lane):
        within = self.numbers & (ROW // BLOCK - 1)
        return [half.view(-1, BLOCK)[within] for half in keys(self.device)[lane]]

    def factors(self, domain, lane):
        entry = (domain, lane)
        if entry not in self.known:
            self.known[entry] = factors(domain, lane, self.numbers >> 3)
        return self.known[entry]

    def indices(self):
        """Global ones, on the host."""
        return (self.on_host.view(-1, 1) * BLOCK + torch.arange(BLOCK)).view(-1)[self.head:self.head + self.count]


class Sample:
    """Which elements are measured, of one capture."""

    def __init__(self, count, seed):
        self.count, self.key = count, splitmix_number(seed, 2049)

    def blocks(self, first, end):
        """The numbers of the chosen blocks that have elements of [first, end), on the host: one of `count` that follow each other."""
        size = self.count * BLOCK
        groups = torch.arange(first // size, -(-end // size), dtype=torch.int64)
        numbers = groups * self.count + ((shifted(splitmix(self.key, groups), 32) * self.count) >> 32)
        return numbers[((numbers + 1) * BLOCK > first) & (numbers * BLOCK < end)]

    def chosen(self, part, shape, device):
        """Places of the chosen elements of `part`, a range or a box of the tensor, and where in it they stand; None without any."""
        if isinstance(part, tuple):
            numbers = self.blocks(*part)
            if not numbers.numel():
                return None
            places = Blocks(numbers, *part, device)
            at = places.indices() - part[0]
        else:
            strides = [prod(shape[dim + 1:]) for dim in range(len(shape))]
            first = sum(begin * stride for (begin, _), stride in zip(part, strides))
            end = sum((stop - 1) * stride for (_, stop), stride in zip(part, strides)) + 1
            indices = (self.blocks(first, end).view(-1, 1) * BLOCK + torch.arange(BLOCK)).view(-1)
            inside, at = indices < prod(shape), torch.zeros_like(indices)  # the last block may reach beyond the tensor
            for (begin, stop), stride, size in zip(part, strides, shape):
                place = torch.div(indices, stride, rounding_mode="floor") % size
                inside &= (place >= begin) & (place < stop)
                at = at * (stop - begin) + (place - begin)
            if not bool(inside.any()):
                return None
            places, at = Scattered(indices[inside].to(device)), at[inside]
        places.at = at.to(device)
        return places

    def begin(self, parameters):
        """From now on this part of those that are large enough is measured."""
        for parameter in parameters:
            if prod(parameter.shape) <= ABOVE:
                continue
            found = [self.chosen(piece.range or piece.box, piece.shape, torch.device("cpu")) for piece in parameter.pieces]
            if all(places is not None and places.count >= LEAST for places in found):
                parameter.sampled = True
                for piece in parameter.pieces:
                    piece.sample = self

    def of(self, piece, flat, part):
        """The chosen ones of the elements of `part`, which are all in `flat`, and their places; None without any."""
        entry = ("sample", self.count, self.key, str(part), "" if isinstance(part, tuple) else str(piece.shape), flat.device)
        places = piece.known.get(entry) or known.places.get(entry)
        if places is None:
            places = self.chosen(part, piece.shape, flat.device)
            if places is None:
                return None
            if not known.kept(entry, places):
                return flat.index_select(0, places.at), places
        piece.known[entry] = places
        return flat.index_select(0, places.at), places
