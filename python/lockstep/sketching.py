# SPDX-License-Identifier: Apache-2.0
"""The gradient sketch of docs/sketch.md in torch operations, on the device where the tensor is: exact, rounded once.

An element is a whole number times a power of two. Its bits are added into 32-bit digits of the sum that it goes to, each
of them an int64, so that additions are exact in any order, on a GPU as well; digits are carried when a sum is read.
"""

import torch

from lockstep.floats import FORMATS, LOW, bits_of
from lockstep.places import Row

def digits_of(bits, form, places, sums, seed):
    """The sums of the elements at `places` as digits, int64 [sums, form.digits], and how many were not finite (a tensor)."""
    totals = torch.zeros(sums * form.digits, dtype=torch.int64, device=bits.device)
    nonfinite = torch.zeros((), dtype=torch.int64, device=bits.device)
    if places.count:
        target, negative = places.targets(sums, seed)
        nonfinite += add(totals, places.laid_out(bits).reshape(-1), target.reshape(-1), negative.reshape(-1), form)
    return totals.view(sums, form.digits), nonfinite


def add(totals, bits, target, negative, form):
    """Adds elements to the digits; how many were not finite."""
    top = (1 << form.width - 1 - form.fraction) - 1
    exponent = (bits >> form.fraction) & top
    normal = (exponent > 0).to(torch.int64)
    finite = (exponent < top).to(torch.int64)
    significand = ((bits & (2**form.fraction - 1)) | (normal << form.fraction)) * finite
    shift = (exponent - normal) * finite
    sign = 1 - 2 * (((bits >> form.width - 1) & 1) ^ negative)
    offset = shift & 31
    place = target * form.digits + (shift >> 5)
    low = (significand & LOW) << offset
    totals.index_add_(0, place, (low & LOW) * sign)
    middle = ((low >> 32) & LOW) + ((significand >> 32) << offset)
    if form.fraction < 32:
        totals.index_add_(0, place + 1, middle * sign)
    else:
        totals.index_add_(0, place + 1, (middle & LOW) * sign)
        totals.index_add_(0, place + 2, (middle >> 32) * sign)
    return (1 - finite).sum()


def power(exponent):
    """2 to an int64 tensor of exponents, all of normal numbers."""
    return ((exponent + 1023) << 52).view(torch.float64)


def carried(digits):
    """The same numbers with digits from 0 to 2^32 - 1; only the last, which is added, has a sign."""
    carry = torch.zeros_like(digits[:, 0])
    result = []
    for column in range(digits.shape[1]):
        total = digits[:, column] + carry
        result.append(total & LOW)
        carry = total >> 32
    return torch.stack(result + [carry], 1)


def bit_length(number):
    """Of an int64 tensor of numbers from 1 to 2^32 - 1; a float64 holds them exactly."""
    return (number.to(torch.float64).view(torch.int64) >> 52) - 1022


def rounded(digits, smallest):
    """The float64 nearest to each number of int64 [numbers, digits] in units of 2^smallest, to even in the middle."""
    digits = carried(digits)
    negative = digits[:, -1] < 0
    digits = torch.where(negative.view(-1, 1), carried(-digits), torch.cat([digits, torch.zeros_like(digits[:, :1])], 1))
    # The three highest digits, and whether anything stands below them.
    count = digits.shape[1]
    numbers = torch.arange(count, dtype=torch.int64, device=digits.device)
    top = ((digits != 0).to(torch.int64) * (numbers + 1)).amax(1)
    padded = torch.cat([torch.zeros_like(digits[:, :3]), digits], 1)
    at = (top + 2).view(-1, 1)
    first, second, third = (padded.gather(1, at - below).view(-1) for below in (0, 1, 2))
    left = torch.arange(count + 3, dtype=torch.int64, device=digits.device).view(1, -1) < at - 2
    rest = ((padded != 0) & left).any(1)
    # 62 bits of them, the lowest of which says whether more follows: what is left to round is the conversion's to do.
    length = bit_length(first.clamp(min=1))
    space = 62 - length
    high = first << space
    middle = torch.where(space >= 32, second << (space - 32).clamp(min=0), second >> (32 - space).clamp(min=0))
    lost = (second << space.clamp(max=31)) & LOW
    lost = torch.where(space >= 32, torch.zeros_like(lost), lost)
    under = torch.where(space >= 32, third >> (64 - space).clamp(max=63), torch.zeros_like(third))
    kept = torch.where(space >= 32, under << (64 - space).clamp(max=63), torch.zeros_like(third))
    sticky = rest | (lost != 0) | (third != kept)
    number = (high | middle | under | sticky.to(torch.int64)).to(torch.float64)
    exponent = (top - 1) * 32 - space + smallest
    half = exponent >> 1
    value = torch.where(top > 0, number, torch.zeros_like(number)) * power(half) * power(exponent - half)
    return torch.where(negative, -value, value)


def sketch(tensor, first=0, sums=256, seed=0):
    """The sums, float64 [sums], of a floating-point tensor whose elements have the global indices from `first` on."""
    flat = tensor.detach().reshape(-1)
    form = FORMATS[flat.dtype]
    places = Row(first, flat.numel(), flat.device)
    return rounded(digits_of(bits_of(flat), form, places, sums, seed)[0], form.smallest)
