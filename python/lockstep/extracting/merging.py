# SPDX-License-Identifier: Apache-2.0
"""The programs of all ranks that were played, as docs/extract.md writes them: ranks that did the same have one."""

import itertools
import json

# Of a rank's run line: what all ranks have in common.
COMMON = ("adapter", "versions", "mesh", "data_axes", "loss")
# What tells nothing of a program.
LEFT_OUT = {"end": ("seconds", "overhead"), "result": ("clipped",), "parameter": ("start", "constant")}
SIZES = ("elements", "input_splits", "output_splits")
# Why a gap is there of which the first draw alone tells (weights.py, stepping.py).
OTHER_WEIGHTS = "a module computes with other weights than those that the optimizers have"
UNWRITTEN_WEIGHTS = "a module computes with weights in memory that nobody has written"
OLD_WEIGHTS = "a module computes with the weights of before the last optimizer step"
STRAY_WEIGHTS = "a module computes with weights of other elements than those that the optimizers have in these places"
FLYING_WEIGHTS = "a module computes with weights that an asynchronous collective brings, which nobody has waited for"
NOT_DIVIDED = "the engine calls backward on another multiple of the loss than its gradient_accumulation_steps and its loss scale make"
SKIPPED = "the engine skips its step, as after an overflow, and none of its gradients has overflowed"
OVERFLOWED = "a gradient of the engine has overflowed, and it skips its step"
NO_STEP = "the optimizer that the engine has wrapped does not step with the gradients that the engine has"
OTHER_GRADIENTS = "the optimizer that the engine has wrapped steps with other gradients than the engine has"
OTHER_SCALE = "the optimizer that the engine has wrapped steps with another multiple of the gradients that the engine has, and nothing clips them"
NOT_CLIPPED = "the optimizer that the engine has wrapped steps with gradients that are clipped, and to no norm that the engine allows, or not all by one factor"
OF_FIRST_DRAW = (OTHER_WEIGHTS, UNWRITTEN_WEIGHTS, OLD_WEIGHTS, STRAY_WEIGHTS, FLYING_WEIGHTS, NOT_DIVIDED, SKIPPED, OVERFLOWED, NO_STEP,
                 OTHER_GRADIENTS, OTHER_SCALE, NOT_CLIPPED)


class Different(Exception):
    """Ranks say different things of what all have in common."""


class Mesh:
    """`described` as a capture has it."""

    def __init__(self, described):
        self.axes, self.sizes, self.ranks = described["axes"], described["sizes"], described["ranks"]
        self.places = {rank: place for place, rank in enumerate(self.ranks)}
        self.known, self.stands = {}, {}

    def coordinates(self, rank):
        if rank not in self.stands:
            place, found = self.places[rank], []
            for size in reversed(self.sizes):
                found.append(place % size)
                place //= size
            self.stands[rank] = found[::-1]
        return self.stands[rank]

    def number(self, rank, axes):
        """The place of a rank among the coordinates of some axes, the last fastest."""
        found, own = 0, self.coordinates(rank)
        for axis in axes:
            found = found * self.sizes[axis] + own[axis]
        return found

    def away(self, rank, other):
        """How far another rank stands from this one along each axis along which it does: {"pp": 1}."""
        pairs = zip(self.axes, self.coordinates(rank), self.coordinates(other))
        return {axis: there - here for axis, here, there in pairs if here != there}

    def at(self, coordinates):
        """The rank there; None outside of the mesh."""
        place = 0
        for own, size in zip(coordinates, self.sizes):
            if not 0 <= own < size:
                return None
            place = place * size + own
        return self.ranks[place]

    def there(self, rank, away):
        """The rank that stands so far from this one."""
        return self.at([own + away.get(axis, 0) for axis, own in zip(self.axes, self.coordinates(rank))])

    def group(self, members):
        """{"axes": …} where the members are all ranks that agree in the other axes, in the mesh's order; else the list."""
        key = tuple(members)
        if key not in self.known:
            self.known[key] = self.look(members)
        return self.known[key]

    def look(self, members):
        found = [self.coordinates(rank) for rank in members]
        axes = [axis for axis in range(len(self.axes)) if len({one[axis] for one in found}) > 1]
        product = 1
        for axis in axes:
            product *= self.sizes[axis]
        if product != len(members):
            return list(members)
        for one, expected in zip(found, itertools.product(*(range(self.sizes[axis]) for axis in axes))):
            if tuple(one[axis] for axis in axes) != expected:
                return list(members)
        return {"axes": [self.axes[axis] for axis in axes]}


def place_of(collective):
    return collective.get("call") or "an unknown place"


def without_sizes(event):
    """Of a collective into which nobody puts gradients."""
    if event["event"] != "collective" or "input" in event or "output" in event:
        return event
    return {key: value for key, value in event.items() if key not in SIZES}


def elements_of(piece):
    count = 1
    for first, end in [piece["range"]] if "range" in piece else piece["box"]:
        count *= end - first
    return count


def normal(rank, events, mesh):
    """The events without what tells nothing, groups by axes, ranks by where they stand from this one, and apart from them the pieces of its results, in their order."""
    found, pieces, changed, declared = [], [], [], {}
    for event in events:
        kind = event["event"]
        if kind == "parameter":
            declared[event["id"]] = event["pieces"]
        if kind == "run":
            continue
        event = {key: value for key, value in event.items() if key not in LEFT_OUT.get(kind, ())}
        if kind == "collective":
            if "root" in event:
                event["root"] = {"position": event["group"].index(event["root"])}
            if "peer" in event:
                event["peer"] = mesh.away(rank, event["peer"])
            event["group"] = mesh.group(event["group"])
        if kind == "result":
            if event.pop("row", 0) is None:
                event["content"] = None  # no gradient
                event["size"] = elements_of(declared[event["parameter"]][event["piece"]])  # of which ranks with one program have as many
            pieces.append(event.pop("piece"))
            if event.pop("changed", False):
                changed.append(event["parameter"])
        if kind == "step" and changed:
            found.append({"event": "gap", "step": event["step"], "parameters": sorted(set(changed)),
                          "why": "gradients were changed between clipping and the optimizer's step, and what it steps with is not known"})
            changed = []
        found.append(event)
    return found, pieces


class Events:
    """Each event once, however many programs have it: those of 16,384 ranks would take gigabytes. None of them is ever changed."""

    def __init__(self):
        self.every, self.by_text, self.by_identity = [], {}, {}

    def number(self, event):
        """Those that say the same have the same."""
        number = self.by_identity.get(id(event))
        if number is None:
            text = json.dumps(event, sort_keys=True)
            number = self.by_text.get(text)
            if number is None:
                number = self.by_text[text] = self.by_identity[id(event)] = len(self.every)
                self.every.append(event)  # it stays, so that none that is made later has its identity
        return number

    def numbers(self, events):
        return tuple(map(self.number, events))

    def one(self, event):
        return self.every[self.number(event)]


class Merged:
    """Programs by what they do."""

    def __init__(self):
        self.common, self.first = None, None
        self.events = Events()
        self.programs = {}  # by the numbers of its events: by rank the pieces of its results
        self.own, self.predicted = {}, set()  # by rank: numbers of its events; ranks that were not played
        self.drawn = {}  # by rank: what its first draw has done, until there is the second
        self.depends = {}  # by rank: where its second draw does something else
        self.sizes_depend = set()  # calls in which ranks give to each other how much values say, as tokens to experts

    def add(self, rank, events, draw=0):
        run = next(event for event in events if event["event"] == "run")
        common = {key: run[key] for key in COMMON}
        if self.common is None:
            self.common, self.first, self.mesh = common, rank, Mesh(run["mesh"])
        for key in COMMON:
            if common[key] != self.common[key]:
                raise Different("ranks %d and %d have different %s: %s and %s" % (self.first, rank, {"data_axes": "data axes"}.get(key, key),
                                                                                 json.dumps(self.common[key]), json.dumps(common[key])))
        own, pieces = normal(rank, events, self.mesh)
        self.compare(rank, own, draw)
        if draw:
            return
        if rank in self.own:  # it is played again
            self.forget(rank)
        self.put(rank, self.events.numbers(own), pieces)

    def put(self, rank, numbers, pieces):
        ranks = self.programs.setdefault(numbers, {})
        ranks[rank] = pieces
        self.own[rank] = numbers

    def predict(self, rank, numbers, pieces):
        """What a rank does that was not played, by the numbers of its events."""
        self.predicted.add(rank)
        self.put(rank, numbers, pieces)

    def played(self):
        return self.own.keys() - self.predicted

    def program_of(self, rank):
        """As normal() gives it."""
        numbers = self.own[rank]
        return [self.events.every[number] for number in numbers], self.programs[numbers][rank]

    def compare(self, rank, own, draw):
        """Both draws of a rank must do the same."""
        last = max((place for place, event in enumerate(own) if event["event"] == "step"), default=len(own))
        # What follows the last step has been made of gradients, and is none.
        own = [event for event in own[:last + 1] if event["event"] != "gap" or event["why"] not in OF_FIRST_DRAW]
        other = self.drawn.pop(rank, None)
        if other is None or other[0] == draw:
            self.drawn[rank] = draw, own
            self.depends.pop(rank, None)
            return
        pairs = list(zip(own, other[1]))
        # How many tokens an expert gets depends on values, and where its gradients go does not.
        self.sizes_depend.update(place_of(one) for one, two in pairs if one != two and without_sizes(one) == without_sizes(two))
        different = next((one for one, two in pairs if without_sizes(one) != without_sizes(two)),
                         None if len(own) == len(other[1]) else max(own, other[1], key=len)[-1])
        if different is not None:
            where = different.get("call") or "%s %d of optimizer step %s" % (
                {"collective": "a collective without a place", "result": "the result of parameter"}.get(different["event"], different["event"]),
                different.get("parameter", 0), different.get("step"))
            self.depends[rank] = ("what rank %d does depends on the values of gradients or of what other ranks have sent, not only on where they go: with other"
                                  " values it differs at %s" % (rank, where))

    def sentences(self):
        """For `lockstep check`."""
        if not self.sizes_depend:
            return []
        calls = sorted(self.sizes_depend)
        return ["how much ranks give to each other at %s%s depends on values: these sizes are not held against each other."
                % (calls[0], "" if len(calls) == 1 else " and %d other place%s" % (len(calls) - 1, "s" if len(calls) > 2 else ""))]

    def forget(self, rank):
        numbers = self.own.pop(rank)
        self.programs[numbers].pop(rank)
        if not self.programs[numbers]:
            self.programs.pop(numbers)

    def one(self):
        """Whether all that were played have done the same, so that it can be said what each other rank has: pieces by its coordinates."""
        if len(self.programs) != 1:
            return False
        ranks, = self.programs.values()
        return all(self.rule(ranks, number) is not None for number in range(len(next(iter(ranks.values())))))

    def rule(self, ranks, number):
        """The axes along whose coordinates the pieces of a result are numbered; None where there is no such set of axes, or more than one."""
        pieces = {rank: own[number] for rank, own in ranks.items()}
        axes = range(len(self.mesh.axes))
        fitting = [chosen for count in range(len(axes) + 1) for chosen in itertools.combinations(axes, count)
                   if all(self.mesh.number(rank, chosen) == piece for rank, piece in pieces.items())]
        return fitting[0] if len(fitting) == 1 else None

    def pieces(self, ranks, number, every):
        """By rank of `every`, the piece of a result."""
        missing = [rank for rank in every if rank not in ranks]
        rule = self.rule(ranks, number) if missing else None
        return [ranks[rank][number] if rank in ranks else self.mesh.number(rank, rule) for rank in every]

    def written(self, world):
        """The value of "programs". Ranks of which nothing is known have the program of those that were played, which must be one(). Events that several
        programs have are the same dictionaries."""
        result, shown = [], {}
        # All ranks skip a step in which a gradient of one overflows.
        overflowed = {event["step"] for event in self.events.every if event["event"] == "gap" and event["why"] == OVERFLOWED}
        for numbers, ranks in self.programs.items():
            played = sorted(ranks.keys() - self.predicted)
            every = sorted(ranks) if len(self.own) == world else range(world)
            events, count = [], 0
            for number in numbers:
                pieces = None
                if self.events.every[number]["event"] == "result":
                    pieces = self.pieces(ranks, count, every)
                    pieces = pieces[0] if len(set(pieces)) == 1 else tuple(pieces)
                    count += 1
                if (number, pieces) not in shown:
                    event = self.events.every[number]
                    if event["event"] == "gap" and event["why"] == SKIPPED and event["step"] in overflowed:
                        event = {key: value for key, value in event.items() if key != "wrong"}
                    shown[number, pieces] = self.shown(event, pieces)
                events.append(shown[number, pieces])
            # What is not known of a rank that was played is not known of those that were not.
            sources = played if len(played) == len(ranks) else sorted(self.depends)
            depends = [{"event": "gap", "step": None, "why": self.depends[rank]} for rank in sources if rank in self.depends]
            end = next((place for place, event in enumerate(events) if event["event"] == "end"), len(events))
            events[end:end] = depends[:1]
            result.append({"ranks": intervals(every), "played": played, "events": events})
        return sorted(result, key=lambda program: program["ranks"][0])

    def shown(self, event, pieces):
        """As it is written; `pieces` of a result: its number, or one for each rank."""
        if event["event"] == "collective" and "input" not in event and place_of(event) in self.sizes_depend:
            # Each rank has made sizes of its own of values that it does not know: that these do not fit says nothing. Of tokens that experts have, tensor
            # parallelism gathers and scatters as many.
            return dict(without_sizes(event), elements=0)
        if event["event"] != "result":
            return event
        event = {key: value for key, value in event.items() if key != "size"}
        return {"event": "result", "pieces": list(pieces), **event} if isinstance(pieces, tuple) else {"event": "result", "piece": pieces, **event}


def intervals(numbers):
    """[first, end) of each row of numbers that follow each other."""
    found = []
    for number in numbers:
        if found and found[-1][1] == number:
            found[-1][1] += 1
        else:
            found.append([number, number + 1])
    return found
