# SPDX-License-Identifier: Apache-2.0
"""Which ranks of many are played where they do not all do the same, and what the others are taken to do: what ranks at other coordinates of the mesh do.

Ranks' programs are compared as local_form.py has them, as texts with whole numbers in them. Along an axis along which the texts of the first, second,
third and last rank are the same but for numbers that grow evenly, such as where a part of a parameter begins, all ranks are taken to do that (`even`).
Along the others, such as a pipeline, ranks at each coordinate are played (`complete`), and at each of these the first and second along every even axis,
and the one that is last along all of them. Others that chance has chosen are played as well, and must do what was predicted.
"""

import itertools
import json
import random
import re

from lockstep.extracting.local_form import in_one_order, local, placed

COMPARED = 8
MOST_PLAYED = 2  # one of so many at most; else it is better to play all
NUMBER = re.compile(r"(0|[1-9][0-9]*)")


class Uneven(Exception):
    """Nothing can be said of ranks that were not played."""


class Text:
    """A program as texts of its events, and the numbers in these."""

    def __init__(self, form):
        self.events = [json.dumps(event, sort_keys=True) for event in form]
        parts = [NUMBER.split(event) for event in self.events]
        self.words, self.numbers = [one[::2] for one in parts], [[int(number) for number in one[1::2]] for one in parts]

    def away(self, other):
        """By how much the numbers of each event of another one are larger; None where the words are others."""
        if self.words != other.words:
            return None
        return [[two - one for one, two in zip(*pair)] for pair in zip(self.numbers, other.numbers)]


class Line:
    """What ranks do that stand where `text` is told along all axes but some, whose `steps` say by how much numbers grow along each. Of most events no number
    does, or along one axis alone: each is made once for all ranks that have it."""

    def __init__(self, text, steps, one):
        self.text, self.one = text, one
        self.moves = [{axis: step[event] for axis, step in steps.items() if any(step[event])} for event in range(len(text.events))]
        self.known = [{} for _ in self.moves]  # of each event, by the coordinates along its axes: its text, and itself

    def at(self, place):
        """(text, event) of all, in their order."""
        found = []
        for event, (moves, known) in enumerate(zip(self.moves, self.known)):
            key = tuple([place[axis] for axis in moves])
            if key not in known:
                text = self.moved(event, zip(key, moves.values()))
                known[key] = text, self.one(json.loads(text))
            found.append(known[key])
        return found

    def moved(self, event, steps):
        """The event whose numbers are larger by the sum of (times, by how much each)."""
        words, numbers = self.text.words[event], self.text.numbers[event]
        for times, away in steps:
            numbers = [number + times * one for number, one in zip(numbers, away)]
        parts = [None] * (len(words) + len(numbers))
        parts[::2], parts[1::2] = words, map(str, numbers)
        return "".join(parts)


class Classes:
    """`merged`: the ranks that were played, of which chance has chosen those in `drawn`; `play(ranks)` plays more of them."""

    def __init__(self, merged, play, drawn=(), seed=2):
        self.merged, self.play, self.drawn, self.seed = merged, play, drawn, seed
        self.mesh, self.texts = merged.mesh, {}  # by rank: of which pieces of its results, and its Text
        self.compared, self.complete = [], []

    def text(self, coordinates):
        """Of a rank that was played."""
        rank = self.mesh.at(coordinates)
        events, pieces = self.merged.program_of(rank)
        if self.texts.get(rank, (None,))[0] is not pieces:  # or it was played again
            form = local(events, pieces, self.mesh, rank)
            back = placed(form, self.mesh, rank)
            if back is None or in_one_order(*back) != in_one_order(events, pieces):
                raise Uneven("what rank %d does cannot be told without its number" % rank)
            self.texts[rank] = pieces, Text(form)
        return self.texts[rank][1]

    def have(self, places):
        known = self.merged.played()
        missing = sorted({self.mesh.at(place) for place in places} - known)
        if missing and MOST_PLAYED * (len(known) + len(missing)) > len(self.mesh.ranks):
            raise Uneven("more than half of the ranks would have to be played")
        if missing:
            self.play(missing)

    def along(self, axis, coordinate, of=None):
        place = list(of or [0] * len(self.mesh.sizes))
        place[axis] = coordinate
        return place

    def steps(self, base, even):
        """By even axis, how numbers grow along it."""
        found = {}
        for axis in even:
            found[axis] = self.text(base).away(self.text(self.along(axis, 1, base)))
            if found[axis] is None:
                raise Uneven("the ranks %d and %d do different things" % (self.mesh.at(base), self.mesh.at(self.along(axis, 1, base))))
        return found

    def is_even(self, axis):
        size = self.mesh.sizes[axis]
        first, *others = [self.text(self.along(axis, one)) for one in sorted({0, 1, min(2, size - 1), size - 1})]
        step = first.away(others[0])
        return step is not None and all(first.away(other) == [[times * one for one in event] for event in step]
                                        for times, other in zip(sorted({1, min(2, size - 1), size - 1}), others))

    def extend(self):
        """Predicts all ranks that were not played, and compares some of them; Uneven where that cannot be, and all are to be played."""
        sizes = self.mesh.sizes
        axes = [axis for axis, size in enumerate(sizes) if size > 1]
        star = [self.along(axis, one) for axis in axes for one in {0, 1, min(2, sizes[axis] - 1), sizes[axis] - 1}]
        self.have(star)
        even = [axis for axis in axes if self.is_even(axis)]
        self.complete = [axis for axis in axes if axis not in even]
        bases = [[coordinate if axis in self.complete else 0 for axis, coordinate in enumerate(place)]
                 for place in itertools.product(*(range(size) if axis in self.complete else [0] for axis, size in enumerate(sizes)))]
        corners = [[sizes[axis] - 1 if axis in even else coordinate for axis, coordinate in enumerate(base)] for base in bases]
        design = bases + corners + [self.along(axis, 1, base) for base in bases for axis in even]
        self.have(design)
        left = sorted(set(self.mesh.ranks) - self.merged.played())
        self.compared = sorted(set(self.drawn) - {self.mesh.at(place) for place in star + design})
        self.compared += random.Random(self.seed).sample(left, min(COMPARED - len(self.compared), len(left)))
        self.have([self.mesh.coordinates(rank) for rank in self.compared])
        lines = {tuple(base): Line(self.text(base), self.steps(base, even), self.merged.events.one) for base in bases}
        predicted, played = [], self.merged.played()
        for rank in sorted(self.mesh.ranks):
            place = self.mesh.coordinates(rank)
            found = lines[tuple(coordinate if axis in self.complete else 0 for axis, coordinate in enumerate(place))].at(place)
            if rank in played:
                if [text for text, _ in found] != self.text(place).events:
                    raise Uneven("rank %d does not do what the ranks at its coordinates do" % rank)
                continue
            program = placed([event for _, event in found], self.mesh, rank)
            if program is None:
                raise Uneven("parts of parameters that others would have are none")
            predicted.append((rank, self.merged.events.numbers(program[0]), program[1]))
        for one in predicted:
            self.merged.predict(*one)

    def chosen(self):
        """What the extraction says of it."""
        complete = [self.mesh.axes[axis] for axis in self.complete]
        even = [axis for axis, size in zip(self.mesh.axes, self.mesh.sizes) if size > 1 and axis not in complete]
        return {"extended": {"complete": complete, "even": even, "compared": sorted(self.compared)}}
