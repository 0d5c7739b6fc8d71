# SPDX-License-Identifier: Apache-2.0
"""How a parameter is cut: boxes and ranges of its logical tensor, and what part of them a rank's tensor is.

A box is a list of [first, end) for each dimension; a range is [first, end) of row-major global indices.
"""

import weakref
from math import prod

import torch

from lockstep.places import Row, Scattered

# Places of pieces up to this size are kept, up to this many elements in all, of 16 to 24 bytes each; those of larger ones cost little beside their
# elements.
KEPT = 1 << 16
ALL_KEPT = 1 << 20


class Known:
    """Places by what they are of, while a piece has them. Parameters of the same size have the same ones."""

    def __init__(self):
        self.places = weakref.WeakValueDictionary()
        self.elements = 0

    def forget(self, count):
        self.elements -= count

    def kept(self, entry, places):
        """Whether they are kept now."""
        if places.count > KEPT or self.elements + places.count > ALL_KEPT:
            return False
        self.places[entry] = places
        self.elements += places.count
        weakref.finalize(places, self.forget, places.count).atexit = False
        return True


known = Known()


def chunk(size, count, index):
    """[first, end) of part `index` of `count`, as torch.chunk cuts and DTensor and FSDP2 shard: the last are shorter or empty."""
    each = -(-size // count)
    return min(index * each, size), min((index + 1) * each, size)


def cuts_of(placements):
    """(axis of the mesh, dimension) of each cut, in the order in which they are made. What FSDP2 cut after tensor parallelism, though its axis stands
    before, is a _StridedShard."""
    order = sorted(range(len(placements)), key=lambda axis: type(placements[axis]).__name__ == "_StridedShard")
    return [(axis, placements[axis].dim) for axis in order if type(placements[axis]).__name__ in ("Shard", "_StridedShard")]


def box_of(shape, placements, sizes, coordinates):
    """The box that a DTensor's rank at these coordinates of its mesh holds."""
    box = [(0, size) for size in shape]
    for axis, dim in cuts_of(placements):
        first, end = box[dim]
        begin, stop = chunk(end - first, sizes[axis], coordinates[axis])
        box[dim] = (first + begin, first + stop)
    return box


def boxes_of(shape, placements, sizes):
    """The different boxes that the mesh's ranks hold, none of them empty, in row-major order."""
    found = [tuple((0, size) for size in shape)] if all(shape) else []
    for axis, dim in cuts_of(placements):
        cut = []
        for box in found:
            first, end = box[dim]
            parts = (chunk(end - first, sizes[axis], at) for at in range(min(sizes[axis], end - first)))  # of the other ranks, which are many, parts are empty
            cut += [box[:dim] + ((first + begin, first + stop),) + box[dim + 1:] for begin, stop in parts if begin < stop]
        found = cut
    return sorted(found)


def range_of(shape, box):
    """The range that a box is, or None where its elements do not follow each other."""
    cut = [dim for dim, size in enumerate(shape) if box[dim] != (0, size)]
    if not cut:
        return 0, prod(shape)
    last = cut[-1]
    if any(end - first != 1 for first, end in box[:last]):
        return None
    begin = 0
    for (first, _), size in zip(box, shape):
        begin = begin * size + first
    return begin, begin + prod(end - first for first, end in box)


def meet(one, other):
    """The box that two boxes share, or None."""
    both = [(max(a, c), min(b, d)) for (a, b), (c, d) in zip(one, other)]
    return both if all(first < end for first, end in both) else None


class Piece:
    """A part of a parameter: a `box`, or elements that follow each other, a `range` (and a box too where they are one)."""

    def __init__(self, shape, box=None, range=None):
        self.shape = list(shape)
        self.box = [tuple(part) for part in box] if box is not None else None
        self.range = tuple(range) if range is not None else range_of(self.shape, self.box)
        self.known = {}  # places that this piece needs
        self.sample = None  # chooses the elements of it that are measured; None: all

    def described(self):
        return {"range": list(self.range)} if self.range else {"box": [list(part) for part in self.box]}

    def places(self, part, device):
        """Where the elements of `part`, a range or a box of the tensor, stand."""
        entry = (str(part), "" if isinstance(part, tuple) else str(self.shape), device)
        places = self.known.get(entry) or known.places.get(entry)
        if places is not None:
            self.known[entry] = places
            return places
        if isinstance(part, tuple):
            places = Row(part[0], part[1] - part[0], device)
        else:
            indices = torch.zeros((), dtype=torch.int64, device=device)
            for (first, end), size in zip(part, self.shape):
                indices = indices.unsqueeze(-1) * size + torch.arange(first, end, dtype=torch.int64, device=device)
            places = Scattered(indices.reshape(-1))
        if known.kept(entry, places):
            self.known[entry] = places
        return places

    def measured(self, flat, part):
        """What is measured of `flat`, the elements of `part`, and the places of that."""
        return (flat, self.places(part, flat.device)) if self.sample is None else self.sample.of(self, flat, part)

    def part_of(self, tensor, held):
        """The piece's elements in `tensor`, which holds the box `held` of the parameter, and their places; None where it has none."""
        if self.box is not None:
            shared = meet(self.box, held)
            if shared is None:
                return None
            slices = tuple(slice(first - begin, end - begin) for (first, end), (begin, _) in zip(shared, held))
            part = range_of(self.shape, shared) or shared
            return self.measured(tensor[slices].reshape(-1), part)
        whole = range_of(self.shape, held)
        if whole is None:
            raise AssertionError("a flat piece meets a tensor that is no range")
        return self.part_of_flat(tensor.reshape(-1), whole[0])

    def part_of_flat(self, flat, begin):
        """The same in a flat tensor whose first element has the global index `begin`; for pieces that are ranges."""
        first, end = max(self.range[0], begin), min(self.range[1], begin + flat.numel())
        if first >= end:
            return None
        return self.measured(flat[first - begin:end - begin], (first, end))


def whole(shape):
    """The pieces of a parameter that nobody cuts."""
    return [Piece(shape, box=[(0, size) for size in shape])]


def cut_at(shape, borders):
    """Ranges between these global indices and the parameter's ends."""
    ends = sorted({0, prod(shape), *(border for border in borders if 0 < border < prod(shape))})
    return [Piece(shape, range=pair) for pair in zip(ends, ends[1:])]
