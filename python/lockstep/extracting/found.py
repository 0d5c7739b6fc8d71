# SPDX-License-Identifier: Apache-2.0
"""What played ranks leave that others have to know, and which ranks are to be played again with it: keys of the store, calls with gradients in them, and
whole numbers that they put into calls (numbers.py)."""

import itertools
import json
import random

# Of these it must be known what all put in, or nothing is: counts of tokens go through them.
ALL_MATTER = ("all_reduce", "reduce_scatter", "all_gather")

MOST_TIMES = 3
COMPARED = 8  # ranks that chance chooses of those whose counts are told by others'


def in_common(own):
    """By rank, what it puts in, without the numbers of which any rank's is None."""
    lists = list(own.values())
    if None in lists or not any(isinstance(values, list) and None in values for one in lists for values in one):
        return own
    known = [[None not in values for values in zip(*tensors)] for tensors in zip(*lists)]
    return {rank: [[value if is_known else None for value, is_known in zip(values, each)] for values, each in zip(one, known)] for rank, one in own.items()}


class Found:
    """Of all ranks that were played. `stored`, `carrying` and `told` are what ranks that are played later are given."""

    def __init__(self):
        self.stored = {}  # by key, what ranks have set in the store
        self.carrying = set()  # calls into which a rank puts gradients
        self.told = {}  # by call: what each member puts in, where that is not the same or was not known; [] where it is not known
        self.silent = {}  # by rank: calls into which it puts no gradients
        # By call: its members, its operation, the rank that says what comes out (or None), and by rank what it puts in; None where that is not known.
        self.numbers = {}
        self.times = {}  # by call: how often it was told
        self.taken, self.asked = {}, {}  # by rank: numbers that it took from what the first rank has sent, and calls of which it got none
        self.said = {}  # by rank: calls into which it has put numbers
        self.varying = set()  # calls of which the one that says what comes out says something else in the second draw
        self.counts = {}  # by call: of how many ranks that were not played it is taken what they put in
        self.stale = set()  # ranks that were given something else than what is known now

    def playing(self, rank):
        """With all that is known."""
        self.stale.discard(rank)

    def add(self, rank, draw, left):
        """What a rank has left."""
        self.stored.update(left.get("stored", {}))
        self.carrying.update(left.get("carries", ()))
        self.silent[rank] = set(left.get("silent", ()))
        if draw:
            for call, (_, _, speaker, own) in left.get("numbers", {}).items():
                if speaker == rank and call in self.numbers and self.numbers[call][3].get(rank) != own and not any(isinstance(values, str) for values in own):
                    self.varying.add(call)
        else:
            for call in self.said.get(rank, ()):
                self.numbers[call][3].pop(rank, None)
            self.said[rank] = list(left.get("numbers", {}))
            for call, (members, op, speaker, own) in left.get("numbers", {}).items():
                self.numbers.setdefault(call, (members, op, speaker, {}))[3][rank] = own
            self.taken[rank], self.asked[rank] = left.get("taken", {}), set(left.get("asked", ()))

    def tell(self, call, everybody, ranks, are_objects=False):
        """Objects that are others each time, as with the number of a process in them, are told a few times."""
        self.told[call] = everybody
        self.times[call] = self.times.get(call, 0) + 1
        if not are_objects or self.times[call] <= MOST_TIMES:
            self.stale.update(ranks)

    def tell_what_nobody_knows(self):
        """When the first rank alone was played: calls of which it knows no number are told as unknown, before others are played. A rank with empty parts does
        not take its zeros there for what comes out, and need not be played again."""
        for call, (members, _, speaker, own) in self.numbers.items():
            if speaker is None and all(values and all(isinstance(one, list) and set(one) == {None} for one in values) for values in own.values()):
                self.told[call] = [next(iter(own.values()))] * len(members)

    def tell_what_one_says(self):
        """Of broadcasts, and of what is sent from one to another."""
        for call, (members, op, speaker, own) in self.numbers.items():
            if speaker is None:
                continue
            if speaker not in own or call in self.varying:
                if self.told.get(call, [None]):
                    self.tell(call, [], {rank for rank in members if rank in self.taken and rank != speaker})
                continue
            everybody = [own.get(rank) for rank in members]
            sent = own[speaker]
            others = {rank: [sent[number]] if op == "scatter" else sent for number, rank in enumerate(members) if rank in self.taken and rank != speaker}
            wrong = {rank for rank, values in others.items() if call in self.asked[rank] or self.taken[rank].get(call, values) != values}
            if self.told.get(call, everybody) != everybody:
                wrong = others
            if wrong:
                self.tell(call, everybody, wrong)

    def everybody(self, members, own, mesh):
        """What each member has put into a call, of which some have put in `own`, and members that are to be played first to know it. Those that were
        not played have put in what others have at the same coordinates along the axes along which it differs, as few as can be. So that none is missed, the
        first and the last at each of these coordinates are played, and some that chance chooses."""
        axes = [axis for axis, size in enumerate(mesh.sizes) if size > 1]
        for chosen in itertools.chain.from_iterable(itertools.combinations(axes, count) for count in range(len(axes) + 1)):
            known = {}
            if all(known.setdefault(mesh.number(rank, chosen), value) == value for rank, value in own.items()):
                break
        places = {}
        for rank in members:
            places.setdefault(mesh.number(rank, chosen), []).append(rank)
        to_play = {rank for ranks in places.values() for rank in (ranks[0], ranks[-1])}
        others = sorted(set(members) - to_play)
        to_play.update(random.Random(len(members)).sample(others, min(COMPARED, len(others))))
        return [known.get(mesh.number(rank, chosen)) for rank in members], to_play - own.keys()

    def tell_what_all_say(self, mesh):
        """Of calls into which all members put numbers, where these differ. Ranks that are to be played to know it."""
        to_play = set()
        for call, (members, op, speaker, said) in self.numbers.items():
            if speaker is not None or not said:
                continue
            own = in_common(said)
            if len({json.dumps(value) for value in own.values()}) == 1:
                everybody, wrong = [next(iter(own.values()))] * len(members), {rank for rank in own if own[rank] != said[rank]}
                if call in self.told:  # and perhaps otherwise: all that were given that play again
                    wrong = own
                if wrong and self.told.get(call) != everybody:
                    self.tell(call, everybody, wrong)
                continue
            everybody = []
            self.counts.pop(call, None)
            if None not in own.values() and all(rank in own for rank in members):
                everybody = [own[rank] for rank in members]
            elif None not in own.values() and op in ALL_MATTER:
                everybody, missing = self.everybody(members, own, mesh)
                to_play |= missing
                if missing:
                    continue
                self.counts[call] = len(set(members) - own.keys())
            if self.told.get(call) != everybody:
                self.tell(call, everybody, own, all(isinstance(one, str) for values in everybody for one in values))
        return to_play

    def give_anew(self):
        """What the first rank has sent has changed."""
        self.stale.update(self.taken)
        self.stale.discard(0)

    def again(self, mesh):
        """Ranks that have to be played again, and those that were not played and without which the others do not know enough."""
        self.tell_what_one_says()
        to_play = self.tell_what_all_say(mesh)
        # What they get of a call into which others put gradients is none, as far as they know.
        return self.stale | to_play | {rank for rank, calls in self.silent.items() if calls & self.carrying}
