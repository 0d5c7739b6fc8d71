# SPDX-License-Identifier: Apache-2.0
"""Pieces of a parameter that each are elements in a row on the rank that holds them: tensor parallelism cuts the whole along one dimension,
expert parallelism stacks what its ranks hold, and owners cut each rank's part, laid out flat, at places of their own.
"""

from math import prod

from lockstep.pieces import Piece


def boxes_between(shape, begin, end):
    """The boxes, in their order, that the elements [begin, end) of a tensor laid out flat are."""
    if begin >= end:
        return []
    if not shape:
        return [[]]
    size = prod(shape[1:])
    first, last = -(-begin // size), end // size
    if first > last:  # within one row
        return [[(last, last + 1)] + box for box in boxes_between(shape[1:], begin - last * size, end - last * size)]
    head = [[(first - 1, first)] + box for box in boxes_between(shape[1:], begin % size, size)] if begin % size else []
    middle = [[(first, last)] + [(0, one) for one in shape[1:]]] if first < last else []
    return head + middle + [[(last, last + 1)] + box for box in boxes_between(shape[1:], 0, end - last * size)]


class Cut:
    """`pieces` of the whole of `shape`, of which this rank holds a tensor of the shape `local`.

    dim, tp: the dimension that tensor parallelism cuts, or None, and this rank's place among how many. stride: how many
    blocks of the whole a rank's part is made of, as Megatron cuts gates and what they are multiplied with.
    stacked: this rank's place among those that hold different tensors under one name, and how many; the whole has a dimension for them.
    borders: places in a part, laid out flat, between elements of different owners.
    """

    def __init__(self, local, dim, stride, tp, stacked, borders):
        local, size = list(local), prod(local)
        whole = [extent * tp[1] if place == dim else extent for place, extent in enumerate(local)]
        lead = [stacked[1]] if stacked[1] > 1 else []
        self.shape, self.here = lead + whole, (stacked[0], tp[0])
        self.pieces, self.own = [], []  # own: the numbers of this rank's pieces, and their elements in its part
        stride = stride if dim == 0 and tp[1] > 1 and local[0] % stride == 0 else 1
        block = size // stride
        ends = sorted({0, size, *(border for border in borders if 0 < border < size), *(block * number for number in range(1, stride))})
        for layer in range(stacked[1]):
            for place in range(tp[1]):
                for begin, end in zip(ends, ends[1:]):
                    if dim in (None, 0):  # rows that follow each other stay together
                        number, within = divmod(begin, block)
                        first = layer * size * tp[1] + (number * tp[1] + place) * block + within
                        self.add(layer, place, begin, end, range=(first, first + end - begin))
                        continue
                    for box in boxes_between(local, begin, end):
                        count = prod(stop - start for start, stop in box)
                        shifted = [(start + place * local[dim], stop + place * local[dim]) if number == dim else (start, stop)
                                   for number, (start, stop) in enumerate(box)]
                        self.add(layer, place, begin, begin + count, box=([(layer, layer + 1)] if lead else []) + shifted)
                        begin += count

    def add(self, layer, place, begin, end, **piece):
        if (layer, place) == self.here:
            self.own.append((len(self.pieces), begin, end))
        self.pieces.append(Piece(self.shape, **piece))

    def between(self, begin, end):
        """The numbers of this rank's pieces within [begin, end) of its part."""
        return [number for number, first, last in self.own if begin <= first and last <= end]

    def parts_of(self, flat, begin):
        """(number, elements, places) of the pieces in what this rank has from its part's element `begin` on."""
        found = []
        for number, first, last in self.own:
            if begin <= first and last <= begin + flat.numel():
                piece = self.pieces[number]
                found.append((number,) + piece.measured(flat[first - begin:last - begin], piece.range or piece.box))
        return found
