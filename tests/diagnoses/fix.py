# SPDX-License-Identifier: Apache-2.0
"""Which steps a fix changes, and whether two schedules are the same plain steps.

The steps of the wrong and of the fixed schedule are told apart by their names; a `wait` without one by the step that it
waits for. A step that both have is

- *changed* where any of its keys is another, the steps of an `each` aside;
- *moved* where it is another's neighbour now: of the steps that are not changed, as many as possible stay (a longest
  common subsequence; the beginning and the end of each `each` stay in any case), and the others are moved. Where this can
  be done in several ways, as for two neighbours that change places, each is a way to say what the fix changes.

A step of the wrong schedule alone is *one too many*, of the fixed one alone *missing*. Blame names a missing step where it
says that a step is missing, or that a neighbour needs one beside it, with the op and the groups of the fix's. Which
parameters, which factor and which place that step should have is a question to the repair.

Two schedules are the same plain steps where, one by one and in order, everything is the same: op, groups, buffers,
factors, conditions, geometry, and the parameters selected, however the selectors are spelled. Names do not count, for the
name of a step that is missing is anybody's guess; a key that has its default is one that is not there. What plain steps of a
framework say is said for its whole mesh, of which a file has a part:

- groups are compared by their ranks, and factors by what they come to for all sizes of the axes that have more than one
  rank, with a sum of tokens as an unknown: where cp is 1, `["dp", "cp"]` is dp, and `1 / (dp * cp)` is `1 / dp`;
- there are numbers where a framework's file speaks of sizes, such as `1 * sp / 2` for `1 * sp / (dp * sp)`: where one of two
  factors speaks of fewer axes than the other, and of no other ones, their values at the file's sizes decide.

A mean over ranks may be missing in one step or in two: where blame says that nothing averages, and the fix adds the sum over
the same groups with a scale by one over their number beside it, it has named both.
"""

import json
import math
import re
import zlib
from fractions import Fraction

import pairs  # noqa: F401 (finds the folders)
from layout import Mesh
from placement import fits

DEFAULTS = {"reduce": "sum", "on": "all", "async": False, "buffer": "grad", "to": "grad", "only": {}, "when": True, "count": True, "combine": "sum"}
STAYS = 1000  # the weight of an end of an `each`: more than there are steps
MOST_WAYS = 200


def content(step):
    return {key: value for key, value in step.items() if key not in ("name", "steps")}


def in_order(steps, known=None):
    """(key, end, step) of each step; of an `each` there is one in front of its steps and one behind them. Keys are names;
    a `wait` without one is named by the step that it waits for, and several for one step are told apart."""
    known = set() if known is None else known
    for step in steps:
        key = step.get("name") or f"wait for {step['for']}"
        while key in known:
            key += " again"
        known.add(key)
        yield key, "begin" if "steps" in step else "", step
        if "steps" in step:
            yield from in_order(step["steps"], known)
            yield key, "end", step


def listed(steps):
    """Every step by its key."""
    return {key: step for key, end, step in in_order(steps) if end != "end"}


def ways_to_stay(before, after):
    """Sets of places of `before` that do not stay, one set for each heaviest common subsequence. Items are (key, weight)."""
    place = {item[0]: number for number, item in enumerate(after)}
    best = [(0, {frozenset()})] * (len(after) + 1)  # by the first place of `after` that may still be used
    for number in range(len(before) - 1, -1, -1):
        key, weight = before[number]
        now = []
        for first in range(len(after) + 1):
            left = (best[first][0], {ways | {number} for ways in best[first][1]})
            if place[key] >= first:
                there = best[place[key] + 1]
                taken = (there[0] + weight, there[1])
                left = max(left, taken, key=lambda one: one[0]) if left[0] != taken[0] else (left[0], left[1] | taken[1])
            assert len(left[1]) <= MOST_WAYS, "too many ways to say what moved"
            now.append(left)
        best = now
    return best[0][1]


class Fix:
    """What makes the steps of `wrong` those of `fixed`, both plain documents."""

    def __init__(self, wrong, fixed):
        old, new = wrong["schedule"]["steps"], fixed["schedule"]["steps"]
        self.steps, self.sizes = new, Sizes(fixed["layout"])
        self.before, self.after = listed(old), listed(new)
        self.too_many = self.before.keys() - self.after.keys()
        self.missing = self.after.keys() - self.before.keys()
        both = self.before.keys() & self.after.keys()
        self.changed = {key for key in both if content(self.before[key]) != content(self.after[key])}

        def staying(steps):
            return [((key, end), STAYS if end else 1) for key, end, _ in in_order(steps) if key in both and (end or key not in self.changed)]

        there = staying(old)
        self.moved = {frozenset(there[number][0][0] for number in way) for way in ways_to_stay(there, staying(new))}

    def ways(self):
        """Each set of steps that says what the fix changes. A wait that is missing or too many may be said by the step that it
        waits for, which is in flight for too long or not long enough."""
        sure = self.too_many | self.missing | self.changed
        waits = {key: step["for"] for key, step in {**self.before, **self.after}.items() if step["op"] == "wait" and key in self.too_many | self.missing}
        found = {frozenset(sure | moved) for moved in self.moved}
        return found | {frozenset(waits.get(key, key) for key in way) for way in found}

    def named(self, step, edits):
        """The key of a step that blame names, where `edits` are those of the repair that it rests on. A missing step has
        the name that the repair invents, or is said by its neighbour ("needs a scale after it"); it is the fix's where it
        does the same over the same groups, and where the neighbour is the fix's as well."""
        if step in self.missing:
            return step
        for edit in edits:
            side = "after" if "after" in edit else "before"
            if "insert" not in edit or step not in (edit["insert"].get("name", ""), edit[side]):
                continue
            for key in sorted(self.missing):
                if self.alike(edit["insert"], self.after[key]) and (step not in self.before or self.beside(key, side) == step):
                    return key
        return step

    def alike(self, one, other):
        return all(one.get(word) == other.get(word) for word in ("op", "for")) and self.sizes.group(one.get("over")) == self.sizes.group(other.get("over"))

    def completes(self, key, edits):
        """The missing scale that makes a mean of the missing sum `key`, where one edit inserts that mean."""
        inserted = [edit["insert"] for edit in edits if "insert" in edit]
        if key not in self.missing or not any(step.get("reduce") == "avg" and self.alike(step, self.after[key]) for step in inserted):
            return set()
        one_of_all = Fraction(1, len(self.sizes.group(self.after[key]["over"])[0]))
        beside = {self.beside(key, "after"), self.beside(key, "before")} & self.missing
        return {name for name in beside if self.after[name]["op"] == "scale" and self.sizes.value(self.after[name]["by"]) == one_of_all}

    def beside(self, key, side):
        """The step that the step of the fixed schedule stands directly after, or before; "" at an end of a list."""
        there = [(other, end) for other, end, _ in in_order(self.steps)]
        place = there.index((key, "begin" if (key, "begin") in there else "")) + (-1 if side == "after" else 1)
        other, end = there[place] if 0 <= place < len(there) else ("", "")
        return "" if end == ("begin" if side == "after" else "end") else other

    def words(self):
        """What the fix changes, for people."""
        said = [f"drops {key}" for key in sorted(self.too_many)]
        said += [f"adds {key} {json.dumps(content(self.after[key]))}" for key in sorted(self.missing)]
        for key in sorted(self.changed):
            old, new = content(self.before[key]), content(self.after[key])
            keys = [name for name in {**old, **new} if old.get(name) != new.get(name)]
            said.append(f"changes {key}: " + ", ".join(f"{name} {json.dumps(old.get(name))} → {json.dumps(new.get(name))}" for name in keys))
        if any(self.moved):
            said.append("moves " + " or ".join(sorted(", ".join(sorted(way)) for way in self.moved)))
        return "; ".join(said)


def selected(selectors, parameters):
    """Names of the parameters that a step acts on; the selectors themselves where a rank's own size decides."""
    if selectors is None:
        return [parameter["name"] for parameter in parameters]
    selectors = [selectors] if isinstance(selectors, str) else selectors
    if any(item.lstrip("!").startswith("numel") for item in selectors):
        return selectors
    wanted = [item for item in selectors if not item.startswith("!")]
    excluded = [item[1:] for item in selectors if item.startswith("!")]

    def is_in(parameter):
        size = math.prod(parameter["shape"])
        return (not wanted or any(fits(item, parameter, size) for item in wanted)) and not any(fits(item, parameter, size) for item in excluded)

    tied = {parameter.get("tied") for parameter in parameters if is_in(parameter)} - {None}  # one name chosen is enough
    return [parameter["name"] for parameter in parameters if is_in(parameter) or parameter.get("tied") in tied]


class Sizes:
    """What groups and factors are at the sizes of a layout."""

    TERM = re.compile(r"(?:sum|max)\([^()]*\)|[A-Za-z_][\w.]*|\d+(?:\.\d+)?|\S")

    def __init__(self, layout):
        self.mesh = Mesh(layout)
        self.size = {**self.mesh.size, "world": self.mesh.world}

    def group(self, over):
        """The ranks that meet, however their axes are spelled."""
        return sorted({self.mesh.group(over, rank) for rank in range(self.mesh.world)} - {None}) if over is not None else None

    def terms(self, factor):
        """The words of a factor; a sum of tokens is one, without axes of one rank."""
        words = self.TERM.findall(str(factor))
        for place, word in enumerate(words):
            if word.startswith("sum("):
                what, *axes = (part.strip() for part in word[4:-1].split(","))
                words[place] = "sum(" + ", ".join([what, *sorted(axis for axis in axes if self.size.get(axis) != 1)]) + ")"
        return words

    def value(self, factor, size=None):
        """At these sizes; each number of tokens, or sum of it, is an unknown. Nothing for what is no product of such."""
        words = self.terms(factor)
        is_call = any(word[0].isalnum() and after == "(" for word, after in zip(words, words[1:]))
        if is_call or not all(word in "+-*/()" or word[0].isalnum() for word in words):
            return None
        unknown = {word: Fraction(zlib.crc32(word.encode()), 7) for word in words if word[0].isalpha()}
        known = {**unknown, **(size or self.size)}
        return eval("".join(word if word in "+-*/()" else f"Fraction('{known.get(word, word)}')" for word in words), {"Fraction": Fraction})

    def other_sizes(self):
        """Unlike sizes of the axes that have more than one rank: factors that are equal there are equal everywhere."""
        free = ("tp", "cp", "sp", "pp", "dp_shard", "dp_replicate", "ep", "etp")
        size = {axis: Fraction(1 if self.size[axis] == 1 else zlib.crc32(axis.encode()), 1) for axis in free}
        size["dp"] = size["dp_shard"] * size["dp_replicate"]
        size["world"] = size["tp"] * size["cp"] * size["sp"] * size["dp"] * size["pp"]
        size["edp"] = size["world"] / (size["etp"] * size["ep"] * size["pp"])
        size["edp_replicate"] = size["dp_replicate"] if self.size["edp_replicate"] > 1 else Fraction(1)
        size["edp_shard"] = size["edp"] / size["edp_replicate"]
        return size

    def speaks_of(self, factor):
        words = {word for word in self.terms(factor) if word[0].isalpha() and self.size.get(word) != 1}
        return words - {"world"} | {axis for axis in ("tp", "cp", "sp", "dp", "pp") if "world" in words and self.size[axis] > 1}

    def same(self, factor, other):
        """Whether two factors are one, or come to one number where one speaks of fewer sizes than the other."""
        if self.terms(factor) == self.terms(other):
            return True
        everywhere = self.value(factor, self.other_sizes())
        if everywhere is None or self.value(other) is None:
            return False
        if everywhere == self.value(other, self.other_sizes()):
            return True
        ours, theirs = self.speaks_of(factor), self.speaks_of(other)
        return (ours < theirs or theirs < ours) and self.value(factor) == self.value(other)


def plain(document):
    """The steps of a plain document without what does not count."""
    parameters = document["model"]["parameters"]
    sizes = Sizes(document["layout"])
    steps = listed(document["schedule"]["steps"])
    number = {step["name"]: place for place, step in enumerate(steps.values()) if "name" in step}

    def one(step):
        found = {key: value for key, value in content(step).items() if key not in DEFAULTS or DEFAULTS[key] != value}
        if step["op"] not in ("wait", "each"):
            found["params"] = selected(step.get("params"), parameters)
        if "over" in step:
            found["over"] = sizes.group(step["over"])
        if "for" in step:
            found["for"] = number[step["for"]]
        if "geometry" in step:
            found["geometry"] = {key: value for key, value in step["geometry"].items() if value != []}
        if "steps" in step:
            found["steps"] = [one(inner) for inner in step["steps"]]
        return found

    return [one(step) for step in document["schedule"]["steps"]]


def with_factors_of(steps, others, layout):
    """The plain steps, each factor that is the other's with the other's text."""
    sizes = Sizes(layout)

    def one(step, other):
        found = dict(step)
        if "by" in step and "by" in other and sizes.same(step["by"], other["by"]):
            found["by"] = other["by"]
        if "steps" in step:
            found["steps"] = with_factors_of(step["steps"], other.get("steps", []), layout)
        return found

    return [one(*pair) for pair in zip(steps, others)] + steps[len(others) :]


def flat(steps, path=0):
    """Plain steps one by one with how deep they stand, as text, to say in what two schedules differ."""
    for step in steps:
        yield json.dumps([path, {key: value for key, value in step.items() if key != "steps"}], sort_keys=True)
        yield from flat(step.get("steps", []), path + 1)
