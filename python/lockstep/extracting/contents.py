# SPDX-License-Identifier: Apache-2.0
"""What memory holds: each element is a sum of fractions times elements of sources, is zero, is nothing of ours, or is not known for a reason.

A source is what a backward pass yields for a piece of a parameter, or what a collective leaves on this rank. Its elements have numbers; element i of
source s has the number sources.first[s] + i. Each storage that holds such elements has planes, tensors as long as it: one of marks, and for each
term of the longest sum one of numbers and one of fractions. A view of the storage is the same view of the planes, so whatever copies elements copies
theirs (rules.py).
"""

from fractions import Fraction
from math import frexp

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from lockstep.carrying import memory_of, storage_of

FOREIGN, KNOWN = 0, 1  # marks; from 2 on they are Reasons
MOST_TERMS = 256  # of an element


class Meaning(str):
    """A reason for which something is not known, with what is known of it; each is one of its own. `no_sum` "never": what has it is no sum of gradients,
    whatever these are; "in_flight": nor is it, for a collective writes there that nobody has waited for; None: it may be one."""

    __hash__ = object.__hash__

    def __new__(cls, reason, no_sum=None):
        made = super().__new__(cls, reason)
        made.no_sum = no_sum
        return made

    def __eq__(self, other):
        return self is other

    def __ne__(self, other):
        return self is not other

    def written(self):
        """As a content has it."""
        return str(self) if self.no_sum is None else {self.no_sum: str(self)}


class Table:
    """Values by numbers from `first` on, each once."""

    def __init__(self, first=0):
        self.values, self.numbers, self.first = [], {}, first

    def number(self, value):
        if value not in self.numbers:
            self.numbers[value] = len(self.values) + self.first
            self.values.append(value)
        return self.numbers[value]

    def __getitem__(self, number):
        return self.values[number - self.first]


def fraction_of(value, digits=53):
    """The fraction with the smallest denominator that rounds to this number in a floating point format of so many binary digits."""
    if isinstance(value, int):
        return Fraction(value)
    if value != value or value in (float("inf"), float("-inf")):
        return None
    exact = Fraction(value)
    if exact.denominator == 1 or exact.numerator.bit_length() <= digits // 4:  # what was rounded has no such few digits
        return exact
    error = Fraction(2) ** (frexp(value)[1] - digits - 1)
    return simplest(exact - error, exact + error)


def simplest(low, high):
    """The fraction with the smallest denominator in [low, high]."""
    if low <= 0 <= high:
        return Fraction(0)
    if high < 0:
        return -simplest(-high, -low)
    # By continued fractions: both begin alike until a whole number lies between.
    terms = []
    while True:
        whole = low.numerator // low.denominator
        if whole == low or whole + 1 <= high:
            terms.append(whole if whole == low else whole + 1)
            break
        terms.append(whole)
        low, high = 1 / (high - whole), 1 / (low - whole)
    result = Fraction(terms.pop())
    while terms:
        result = terms.pop() + 1 / result
    return result


class Content:
    """What the elements of a tensor hold: `marks` in its shape, and terms, pairs of tensors of the same shape: numbers of elements of sources, and
    numbers of fractions (0: no term there). `roundoff`: the largest error of one rounding on their way, that of the coarsest type."""

    def __init__(self, marks, terms, roundoff=0.0):
        self.marks, self.terms, self.roundoff = marks, terms, roundoff

    def map(self, change):
        """The same with each plane changed, as by an operation that moves elements."""
        return Content(change(self.marks), [(change(numbers), change(factors)) for numbers, factors in self.terms], self.roundoff)

    def lengthen(self, count):
        """To so many elements of a storage at least: what comes to it is nothing of ours."""
        if self.marks.numel() < count:
            count = max(count, 2 * self.marks.numel())
            longer = self.map(lambda plane: torch.cat([plane, plane.new_zeros(count - plane.numel())]))
            self.marks, self.terms = longer.marks, longer.terms


class Memory:
    """All that holds something of ours. `why(reason)` numbers a reason."""

    def __init__(self):
        # By address: a weak reference that keeps the address, the size of an element in bytes, and a Content of what comes first in it; nothing of ours
        # is behind.
        self.storages = {}
        self.factors, self.reasons = Table(), Table(2)
        self.factors.number(None)  # 0: no term
        self.wrote = lambda tensor: None  # told of what is written
        self.first, self.values = [0], []  # of sources: the number of the first element, and their values here

    # Sources.

    def source(self, values):
        """A new source of these elements, in their order; returns its number and what a tensor of them holds."""
        values = values.detach().reshape(-1).to(torch.float64)
        self.values.append(values.clone())
        begin = self.first[-1]
        self.first.append(begin + values.numel())
        numbers = torch.arange(begin, begin + values.numel())
        one = torch.full_like(numbers, self.factors.number(Fraction(1)))
        return len(self.values) - 1, Content(torch.ones_like(numbers), [(numbers, one)])

    # Memory.

    def holds(self, tensor):
        """Whether the tensor's storage holds anything of ours."""
        storage = storage_of(tensor)
        return storage is not None and storage._cdata in self.storages

    def of(self, tensor):
        """The Content of the tensor, in its shape; None where it holds nothing of ours."""
        memory = memory_of(tensor)
        found = self.storages.get(memory[0]._cdata) if memory is not None else None
        if found is None or tensor.numel() == 0:
            return None
        _, size, content = found
        if size != tensor.element_size():
            first, end = memory[1] // size, -(-memory[2] // size)
            if not bool(content.marks[first:end].any()):
                return None
            return self.unknown(tensor, "elements of %d bytes are read as elements of %d" % (size, tensor.element_size()))
        if memory[1] // size >= content.marks.numel():
            return None
        content.lengthen(memory[2] // size)
        if isinstance(tensor, torch.Tensor) and type(tensor) is not torch.Tensor and hasattr(tensor, "elem"):
            tensor = tensor.elem
        view = content.map(lambda plane: plane.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset()))
        return view if bool(view.marks.any()) else None

    def unknown(self, tensor, reason):
        """A Content of the tensor's shape of which nothing is known."""
        return Content(torch.full(tensor.shape, self.reasons.number(reason), dtype=torch.int64), [])

    def put(self, tensor, content):
        """From now on the tensor holds this; None: nothing of ours."""
        memory = memory_of(tensor)
        if memory is None or tensor.numel() == 0:
            return
        self.wrote(tensor)
        storage, first, end = memory
        found = self.storages.get(storage._cdata)
        if found is None and content is None:
            return
        size = tensor.element_size()
        if found is not None and found[1] != size:
            covers_all = tensor.numel() * size == storage.nbytes()
            if covers_all or not bool(found[2].marks.any()):
                self.storages.pop(storage._cdata)
                found = None
            else:  # nobody can tell the two apart
                found[2].lengthen(-(-end // found[1]))
                found[2].marks[first // found[1]:-(-end // found[1])] = self.reasons.number("its memory holds elements of two sizes")
                return
        if content is None and found is None:
            return
        if found is None:
            found = self.storages[storage._cdata] = (StorageWeakRef(storage), size, Content(torch.zeros(0, dtype=torch.int64), []))
        found[2].lengthen(end // size)
        planes = found[2]
        if content is not None and tensor.is_floating_point():
            before = 0.0 if tensor.numel() == storage.nbytes() // size else planes.roundoff  # of the whole, nothing is left of what was there
            planes.roundoff = max(before, content.roundoff, torch.finfo(tensor.dtype).eps)
        place = tensor.elem if hasattr(tensor, "elem") and type(tensor).__name__ == "AsyncCollectiveTensor" else tensor
        shape, stride, offset = place.shape, place.stride(), place.storage_offset()
        terms = content.terms if content is not None else []
        while len(planes.terms) < len(terms):
            planes.terms.append((torch.zeros_like(planes.marks), torch.zeros_like(planes.marks)))
        planes.marks.as_strided(shape, stride, offset).copy_(content.marks if content is not None else torch.zeros((), dtype=torch.int64))
        for place, (numbers, factors) in enumerate(planes.terms):
            new = terms[place] if place < len(terms) else (torch.zeros((), dtype=torch.int64),) * 2
            numbers.as_strided(shape, stride, offset).copy_(new[0])
            factors.as_strided(shape, stride, offset).copy_(new[1])

    def sweep(self):
        """Forgets memory that was freed."""
        for address in [address for address, (reference, _, _) in self.storages.items() if reference.expired()]:
            self.storages.pop(address)

    # Arithmetic of contents.

    def scaled(self, content, factor):
        """Each term times a fraction."""
        def times(factors):
            found, places = torch.unique(factors, return_inverse=True)
            table = torch.tensor([0 if number == 0 else self.factors.number(self.factors[number] * factor) for number in found.tolist()])
            return table[places.reshape(-1)].reshape(factors.shape)

        if factor == 0:  # of what is not known nothing, or no number
            return Content(self.open(torch.where(content.marks > KNOWN, content.marks, torch.ones_like(content.marks))), [], content.roundoff)
        return Content(content.marks, [(numbers, times(factors)) for numbers, factors in content.terms], content.roundoff)

    def added(self, one, other, reason):
        """Element by element; what is unknown in either is in the sum. Terms of the same element of a source become one."""
        both = (one.marks > KNOWN) & (other.marks > KNOWN)
        marks = torch.where(other.marks > KNOWN, other.marks, one.marks)
        if bool(both.any()):  # two that are no sums may make one together
            marks = torch.where(both, self.open(marks), marks)
        terms = [term for term in one.terms + other.terms if bool(term[1].any())]
        terms = self.merged(terms)
        if len(terms) > MOST_TERMS:
            return Content(torch.full_like(marks, self.reasons.number(reason)), [])
        return Content(marks, terms, max(one.roundoff, other.roundoff))

    def is_spoiled(self, content):
        """Whether what nobody has written is in it, with gradients or in their place."""
        return any(getattr(self.reasons[mark], "no_sum", None) == "never" for mark in torch.unique(content.marks[content.marks > KNOWN]).tolist())

    def open(self, marks):
        """Marks without what is known of those that are no sums of gradients."""
        for mark in torch.unique(marks[marks > KNOWN]).tolist():
            if getattr(self.reasons[mark], "no_sum", None) is not None:
                marks = torch.where(marks == mark, torch.full_like(marks, self.reasons.number(str(self.reasons[mark]))), marks)
        return marks

    def merged(self, terms):
        """Terms that two planes have of the same elements become one; planes without a term go."""
        result = []
        for numbers, factors in terms:
            for place, (other, present) in enumerate(result):
                same = (numbers == other) & (factors != 0) & (present != 0)
                if bool(same.any()):
                    both = torch.stack([present[same], factors[same]], 1)
                    pairs, where = torch.unique(both, dim=0, return_inverse=True)
                    sums = []
                    for first, second in pairs.tolist():
                        total = self.factors[first] + self.factors[second]
                        sums.append(0 if total == 0 else self.factors.number(total))
                    present, factors = present.clone(), factors.clone()
                    present[same] = torch.tensor(sums)[where]
                    factors[same] = 0
                    result[place] = (other, present)
                # A term may use the room of a plane that has none there.
                free = (present == 0) & (factors != 0)
                if bool(free.any()):
                    other, present = torch.where(free, numbers, other), torch.where(free, factors, present)
                    factors = torch.where(free, torch.zeros_like(factors), factors)
                    result[place] = (other, present)
            if bool(factors.any()):
                result.append((numbers, factors))
        return result

    # What it comes to.

    def value(self, content):
        """The elements in float64, as the sources' values make them, and the sum of the sizes of their terms."""
        if not self.values:
            return torch.zeros(content.marks.shape, dtype=torch.float64), torch.zeros(content.marks.shape, dtype=torch.float64)
        if getattr(self, "_joined", (None, None))[0] != len(self.values):
            self._joined = len(self.values), torch.cat(self.values)
        all_values = self._joined[1]
        table = torch.tensor([0.0] + [float(value) for value in self.factors.values[1:]], dtype=torch.float64)
        total = torch.zeros(content.marks.shape, dtype=torch.float64)
        size = total.clone()
        for numbers, factors in content.terms:
            part = all_values[numbers] * table[factors]
            part = torch.where(factors != 0, part, torch.zeros_like(part))
            total += part
            size += part.abs()
        return total, size

    def segments(self, content):
        """[first, count, terms or reason] as docs/extract.md writes them, of a content in its row-major order; terms are [fraction, source, offset]."""
        marks = content.marks.reshape(-1)
        if marks.numel() == 0:
            return []
        planes = [(numbers.reshape(-1), factors.reshape(-1)) for numbers, factors in content.terms]
        # A segment ends where a mark, a fraction or the order of elements changes, or a source ends.
        ends = marks[1:] != marks[:-1]
        borders = torch.tensor(self.first)
        sources = []
        for numbers, factors in planes:
            source = torch.bucketize(numbers, borders, right=True) - 1
            sources.append(source)
            both = (factors[1:] != 0) | (factors[:-1] != 0)
            ends |= (factors[1:] != factors[:-1]) | (both & ((numbers[1:] != numbers[:-1] + 1) | (source[1:] != source[:-1])))
        firsts = [0] + (torch.nonzero(ends).reshape(-1) + 1).tolist()
        result = []
        at = torch.tensor(firsts)
        marked = marks[at].tolist()
        told = [(numbers[at].tolist(), factors[at].tolist(), source[at].tolist()) for (numbers, factors), source in zip(planes, sources)]
        for place, (first, end) in enumerate(zip(firsts, firsts[1:] + [marks.numel()])):
            if marked[place] == FOREIGN:
                continue
            if marked[place] > KNOWN:
                reason = self.reasons[marked[place]]
                result.append([first, end - first, reason.written() if isinstance(reason, Meaning) else reason])
                continue
            terms = []
            for numbers, factors, source in told:
                if factors[place] != 0:
                    terms.append([str(self.factors[factors[place]]), source[place], numbers[place] - self.first[source[place]]])
            result.append([first, end - first, sorted(terms, key=lambda term: term[1:])])
        return result
