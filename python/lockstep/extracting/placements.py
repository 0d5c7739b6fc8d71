# SPDX-License-Identifier: Apache-2.0
"""What is said of parameters that several ranks along an axis contribute to: whether they yield one gradient (`whole`) or shares of one (`shares`). DTensors
and frameworks say it of some (`placed` of a parameter); of others the gradients do that neighbours along the axis yield (alike.py), or those of a captured
run of the same script (runs.py). What neither says stays unsaid, and is told.
"""

import math

# Along these nobody asks: what several stages yield is added up, and so are shares of a sequence.
TOLD = ("pp", "cp", "sp")
WHOLE, SHARES, PARTS = "whole", "shares", "parts"
WORDS = {WHOLE: "one gradient", SHARES: "shares of one", PARTS: "gradients of parts"}
GRADIENTS = "the gradients"
MOST_LISTED = 4


class Conflict(Exception):
    """Two that ought to know say different things; a text for the user."""


def pattern(name):
    """A name without its numbers, such as those of layers."""
    return ".".join("*" if part.isdigit() else part for part in name.split("."))


def same(one, other):
    """Of two prints (alike.print_of); None where they do not tell."""
    if one[0] == other[0]:
        return True if one[1] is not None else None
    if one[1] is None or other[1] is None or len(one[1]) != len(other[1]):
        return None
    # One value that was rounded on other ways may have other bits.
    return False if math.dist(one[1], other[1]) > 0.05 * max(math.hypot(*one[1]), math.hypot(*other[1])) else None


def listed(names):
    """Their patterns, the first few of them."""
    every = sorted(set(map(pattern, names)))
    return ", ".join(every[:MOST_LISTED]) + (" and %d more patterns of names" % (len(every) - MOST_LISTED) if len(every) > MOST_LISTED else "")


def counted(number):
    return "1 parameter" if number == 1 else "%d parameters" % number


def names_of(event):
    return [event["name"], *event.get("aliases", ())]


class Placements:
    """`run`: runs.Told of a captured run, or None."""

    def __init__(self, run=None):
        self.run, self.left = run, {}  # by rank: what alike.Alike has left
        self.why = {}  # by axis: why what was yielded along it does not tell
        self.used = {}  # by axis, kind and who says so: names

    def add(self, rank, left):
        if left is not None:
            self.left[rank] = left

    def axes(self):
        return sorted({axis for left in self.left.values() for axis in left["axes"]})

    def pairs(self, mesh, axis):
        """(rank, rank) of those that were played and agree in all other axes."""
        place, first = mesh.axes.index(axis), {}
        for rank in sorted(self.left, key=lambda rank: mesh.coordinates(rank)[place]):
            line = tuple(own for number, own in enumerate(mesh.coordinates(rank)) if number != place)
            if line in first:
                yield first[line], rank
            else:
                first[line] = rank

    def partners(self, mesh):
        """Ranks without which nothing is known along an axis."""
        return sorted({mesh.there(0, {axis: 1}) for axis in self.axes() if not any(self.pairs(mesh, axis))} - self.left.keys())

    def are_comparable(self, axis, one, other):
        """Whether the premises of alike.py hold for two ranks; if not, says why."""
        mine, its = self.left[one], self.left[other]
        if mine["inputs"] != its["inputs"]:
            self.why[axis] = "ranks %d and %d call the model with different inputs" % (one, other)
        elif mine["other"] != its["other"] or len(mine["sent"]) != len(its["sent"]):
            self.why[axis] = "ranks %d and %d do not send the same to other stages" % (one, other)
        elif any(same(*two) is not (axis not in mine["other"]) for two in zip(mine["sent"], its["sent"])):
            self.why[axis] = "what ranks %d and %d send to other stages is %s" % (
                one, other, "not known to be different" if axis in mine["other"] else "not the same")
        return axis not in self.why

    def seen(self, mesh, axis):
        """By name: what pairs of ranks along the axis say, None among it where one does not tell; and which pair said it first."""
        found, said = {}, {}
        for one, other in self.pairs(mesh, axis):
            if not self.are_comparable(axis, one, other):
                return {}, {}
            mine, its = self.left[one]["yields"], self.left[other]["yields"]
            for name in mine.keys() & its.keys():
                kinds = {{True: WHOLE, False: SHARES, None: None}[same(*two)] for two in zip(mine[name], its[name])}
                found.setdefault(name, set()).update(kinds if len(mine[name]) == len(its[name]) else {WHOLE, SHARES})  # neither
                said.setdefault(name, (one, other))
        return found, said

    def by_name(self, mesh):
        """By (name, axis): (kind, who says so)."""
        found = {}
        for axis in self.axes():
            kinds, said = self.seen(mesh, axis)
            for name, own in kinds.items():
                # A pass in which nothing tells, as where all of a gradient is zero, does not speak against others.
                if len(own - {None}) == 1:
                    kind, = own - {None}
                    found[name, axis] = kind, "%s of ranks %d and %d" % (GRADIENTS, *said[name])
        return found

    def apply(self, programs, mesh, data_axes):
        """Writes into the programs what is said. Returns what is not, by (pattern of names, axis): the names. Raises Conflict."""
        seen, unsaid, done = self.by_name(mesh), {}, {}
        shared = Shared(programs, mesh)

        def told(event):
            """A parameter with what is said of it, and axes along which it has shares."""
            shares, new = [], dict(event)
            for axis in self.open_along(event, mesh, data_axes):
                if not shared.along(event["name"], axis):
                    continue
                said = self.said(names_of(event), axis, seen)
                if said is None:
                    unsaid.setdefault((pattern(event["name"]), axis), set()).add(event["name"])
                    continue
                kind, who = said
                self.used.setdefault((axis, kind, who), set()).add(event["name"])
                new.update(placed=[*new.get("placed", ()), axis], placed_by={**new.get("placed_by", {}), axis: who})
                if kind == SHARES:
                    shares.append(axis)
            return event, new, shares

        def once(make, event, *more):
            """Many programs have the same event, which stays with what comes of it, so that no other has its identity."""
            key = id(event), *more
            if key not in done:
                done[key] = make(event, *more)
            return done[key]

        def as_shares(event, axes):
            own = event.get("partial", ())
            return event, dict(event, partial=[*own, *(axis for axis in axes if axis not in own)])

        for program in programs:
            shares, events = {}, program["events"]  # shares: by number of a parameter, axes along which it has them
            for place, event in enumerate(events):
                if event["event"] == "parameter":
                    _, events[place], axes = once(told, event)
                    if axes:
                        shares[event["id"]] = tuple(axes)
                elif event["event"] == "contribution" and event["parameter"] in shares:
                    _, events[place] = once(as_shares, event, shares[event["parameter"]])
        if self.run is not None:
            self.run.check_used(mesh, data_axes, {event["name"] for program in programs for event in program["events"] if event["event"] == "parameter"})
        return unsaid

    @staticmethod
    def open_along(event, mesh, data_axes):
        """Axes along which nothing is said of a parameter."""
        return [axis for axis, size in zip(mesh.axes, mesh.sizes)
                if size > 1 and axis not in TOLD and axis not in data_axes and axis not in event.get("placed", ())]

    def said(self, names, axis, seen):
        own = next((seen[name, axis] for name in names if (name, axis) in seen), None)
        told = self.run.said(names, axis) if self.run is not None else None
        if own is not None and told is not None and own[0] != told[0]:
            raise Conflict('ranks along %s yield %s of parameter "%s", as %s say, and %s, as %s says: it is a run of something else, or the script does'
                           " something else at its size" % (axis, WORDS[own[0]], names[0], own[1], WORDS[told[0]], told[1]))
        if told is not None and told[0] == PARTS:
            raise Conflict('ranks along %s have parts of parameter "%s", as %s says, and here they have the same elements of it: it is a run of something'
                           " else, or the script does something else at its size" % (axis, names[0], told[1]))
        return own or told

    def head(self):
        """Sentences for `lockstep check`: for each axis, what is said of how many parameters, of which, and by whom."""
        sentences = []
        for axis in sorted({axis for axis, _, _ in self.used}):
            said = {}  # by kind and who says so: names
            for (other, kind, who), names in self.used.items():
                if other == axis:
                    said.setdefault((kind, "the gradients that played ranks yield say" if who.startswith(GRADIENTS) else "%s says" % who), set()).update(names)
            parts = ["%s of %s (%s), as %s" % (WORDS[kind], counted(len(said[kind, who])), listed(said[kind, who]), who)
                     for kind in WORDS for _, who in sorted(key for key in said if key[0] == kind)]
            sentences.append("of parameters of which neither DTensors nor the framework say it, ranks along %s yield %s." % (axis, "; ".join(parts)))
        return {"placements": sentences} if sentences else {}

    def words(self, unsaid):
        """A sentence for each pattern of names."""
        for (names, axis), every in sorted(unsaid.items()):
            why = " (%s)" % self.why[axis] if axis in self.why else ""
            count = "" if names in every else ", %s," % counted(len(every))
            yield "whether ranks along %s yield one gradient of %s%s or shares of one is not known%s: --placements RUN tells it" % (axis, names, count, why)


class Shared:
    """Of which parameters ranks contribute to the same part."""

    def __init__(self, programs, mesh):
        self.programs, self.mesh, self.known, self.by_name = programs, mesh, {}, None

    def along(self, name, axis):
        if (name, axis) not in self.known:
            self.known[name, axis] = self.look(name, axis)
        return self.known[name, axis]

    def look(self, name, axis):
        others, own = [number for number, one in enumerate(self.mesh.axes) if one != axis], [self.mesh.axes.index(axis)]
        first = {}  # the coordinate of the first rank there, by part and coordinates along all other axes
        for ranks, parts in self.parts().get(name, ()):
            for begin, end in ranks:
                for rank in range(begin, end):
                    here, there = self.mesh.number(rank, own), self.mesh.number(rank, others)
                    if any(first.setdefault((part, there), here) != here for part in parts):
                        return True
        return False

    def parts(self):
        """By name: of each program that contributes to it, its ranks and the parts."""
        if self.by_name is None:
            self.by_name = {}
            for program in self.programs:
                numbers, found = {event["id"]: event for event in program["events"] if event["event"] == "parameter"}, {}
                for event in program["events"]:
                    if event["event"] == "contribution":
                        part = numbers[event["parameter"]]["pieces"][event["piece"]] if "piece" in event else event
                        found.setdefault(event["parameter"], set()).add(str(part.get("range", part.get("box"))))
                for number, parts in found.items():
                    for name in names_of(numbers[number]):
                        self.by_name.setdefault(name, []).append((program["ranks"], parts))
        return self.by_name
