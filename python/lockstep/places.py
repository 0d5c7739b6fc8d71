# SPDX-License-Identifier: Apache-2.0
"""Where the elements of a piece stand in the logical tensor: the tables from which hash and sketch are computed.

Elements that follow each other are laid out in rows of 512, the block of the hash, which is 8 blocks of the sketch: a
table has one entry for a block then. Others, such as a part of the columns, look their entries up one by one.
"""

from functools import lru_cache

import torch

from lockstep.floats import LOW, shifted, signed, splitmix, splitmix_number

ROW = 512
BLOCK = 64


@lru_cache(maxsize=None)
def keys(device):
    """For each lane of the hash X and Y of its 512 keys, the low and the high halves."""
    numbers = torch.arange(2 * ROW, dtype=torch.int64, device=device)
    both = splitmix(0, numbers).view(2, ROW)
    return [(lane & LOW, shifted(lane, 32)) for lane in both]


def factors(domain, lane, rows):
    """The odd factors of these blocks of 512."""
    seed = splitmix_number(0, 1024 + 2 * domain + lane)
    return splitmix(seed, rows) | 1


def targets(blocks, places, sums, seed):
    """In which sum the elements at `places` of `blocks` of 64 go, and whether with a minus: two tensors."""
    key = splitmix_number(seed, 2048)
    where = splitmix(key, 2 * blocks)
    signs = splitmix(key, 2 * blocks + 1)
    group = (shifted(where, 32) * (sums // BLOCK)) >> 32
    return where, signs, group


class Row:
    """`count` elements from global index `first` on."""

    def __init__(self, first, count, device):
        self.first, self.count = first, count
        self.head = first % ROW
        self.rows = -(-(self.head + count) // ROW) if count else 0
        self.numbers = signed(first >> 9) + torch.arange(self.rows, dtype=torch.int64, device=device)
        self.blocks = (signed(first >> 9) * 8 + torch.arange(self.rows * 8, dtype=torch.int64, device=device)).view(-1, 1)
        self.device = device
        self.known = {}

    def part(self, begin, end):
        """The places of elements [begin, end) of these."""
        return Row(self.first + begin, end - begin, self.device)

    def laid_out(self, bits):
        """The bits in whole rows; what does not belong to the piece is 0."""
        if bits.numel() == self.rows * ROW:
            return bits.view(self.rows, ROW)
        whole = torch.zeros(self.rows * ROW, dtype=torch.int64, device=self.device)
        whole[self.head:self.head + self.count] = bits
        return whole.view(self.rows, ROW)

    def blank(self, products):
        """Products of what does not belong to the piece count nothing."""
        flat = products.view(-1)
        flat[:self.head] = 0
        flat[self.head + self.count:] = 0
        return products

    def keys(self, lane):
        return keys(self.device)[lane]

    def factors(self, domain, lane):
        entry = (domain, lane)
        if entry not in self.known:
            self.known[entry] = factors(domain, lane, self.numbers)
        return self.known[entry]

    def targets(self, sums, seed):
        """The number of the sum of each element, and 1 where it goes in with a minus; both [blocks, 64]."""
        entry = (sums, seed)
        if entry not in self.known:
            place = torch.arange(BLOCK, dtype=torch.int64, device=self.device).view(1, -1)
            where, signs, group = targets(self.blocks, place, sums, seed)
            self.known[entry] = (group * BLOCK + ((where + place) & 63), (signs >> place) & 1)
        return self.known[entry]


class Scattered:
    """Elements at the global indices of an int64 tensor."""

    def __init__(self, indices):
        self.indices = indices
        self.count = indices.numel()
        self.device = indices.device
        self.first = int(indices.min()) >> 9 if self.count else 0
        last = int(indices.max()) >> 9 if self.count else -1
        self.numbers = self.first + torch.arange(last - self.first + 1, dtype=torch.int64, device=self.device)
        self.known = {}

    def part(self, begin, end):
        return Scattered(self.indices[begin:end])

    def laid_out(self, bits):
        return bits.view(-1, 1)

    def blank(self, products):
        return products

    def keys(self, lane):
        x, y = keys(self.device)[lane]
        place = self.indices & (ROW - 1)
        return x[place].view(-1, 1), y[place].view(-1, 1)

    def factors(self, domain, lane):
        return factors(domain, lane, self.numbers)[(self.indices >> 9) - self.first]

    def targets(self, sums, seed):
        entry = (sums, seed)
        if entry not in self.known:
            blocks = 8 * self.first + torch.arange(8 * self.numbers.numel(), dtype=torch.int64, device=self.device)
            which = (self.indices >> 6) - 8 * self.first
            place = self.indices & (BLOCK - 1)
            where, signs, group = (table[which] for table in targets(blocks, place, sums, seed))
            self.known[entry] = (group * BLOCK + ((where + place) & 63), (signs >> place) & 1)
        return self.known[entry]
