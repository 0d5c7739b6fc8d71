# SPDX-License-Identifier: Apache-2.0
"""Whether the cases of a proof are all sizes that the scenario allows, each once; and sizes of a case to look at."""

import itertools
import json
import re

from functions import demand
from program import Refused

REFUSED_LOOKED_AT = 12  # of a proof, so many cells of sizes that no case has


def guards_of(case):
    """(exactly, least, most) by size."""
    exactly, least, most = {}, {}, {}
    for guard in case["guards"]:
        demand(set(guard) in ({"size", "exactly"}, {"size", "least"}, {"size", "least", "most"}), "no guard:", guard)
        demand(guard["size"] not in exactly and guard["size"] not in least, "two guards for", guard["size"])
        kind = exactly if "exactly" in guard else least
        kind[guard["size"]] = guard["exactly"] if kind is exactly else guard["least"]
        demand(kind[guard["size"]] >= 1, "no size:", guard)
        if "most" in guard:
            most[guard["size"]] = guard["most"]
            demand(guard["most"] > guard["least"], "no sizes:", guard)
    return exactly, least, most


def holds(guards, sizes):
    exactly, least, most = guards
    return (all(sizes[size] == number for size, number in exactly.items()) and
            all(sizes[size] >= number for size, number in least.items()) and
            all(sizes[size] <= number for size, number in most.items()))


def first_common(cases):
    """Sizes that are the same in every case: the number of micro-batches and axes that stay."""
    layouts = [layout for case in cases for layout in case["layouts"]]
    return dict(layouts[0]) if layouts else None


class Sizes:
    """All sizes of a report's open axes, in cells between the numbers that its guards name."""

    def __init__(self, report, scenario, chance):
        self.report, self.scenario, self.chance = report, scenario, chance
        self.cases = report["proof"]
        self.open = report["open"]
        self.guards = [guards_of(case) for case in self.cases]
        self.refused, self.not_looked_at = 0, 0

    def check(self):
        if any("undecided" in case and not case["guards"] for case in self.cases):
            return  # it was given up as a whole, and says so
        for case, (exactly, least, _) in zip(self.cases, self.guards):
            demand({*exactly, *least} == set(self.open), "a case has no guard for one of", self.open, ":", case["sizes"])
        begins = {size: self.begins_of(size) for size in self.open}
        left = []
        # Of a cell the first size, and where the sizes end that no guard tells from it: never, for the last one.
        for cell in itertools.product(*begins.values()):
            sizes = dict(zip(self.open, cell))
            endless = {size: None if sizes[size] == begins[size][-1] else min(one for one in begins[size] if one > sizes[size]) - 1
                       for size in self.open}  # fmt: skip
            endless = {size: end for size, end in endless.items() if end != sizes[size]}
            found = [number for number, guards in enumerate(self.guards) if holds(guards, sizes)]
            demand(len(found) < 2, "several cases have the sizes", sizes)
            if not found:
                left.append((sizes, endless))
        self.check_open()
        self.check_together()
        self.chance.shuffle(left)
        for sizes, endless in left[:REFUSED_LOOKED_AT]:
            self.check_refused(sizes, endless)
        self.not_looked_at += max(len(left) - REFUSED_LOOKED_AT, 0)

    def begins_of(self, size):
        """The sizes at which a guard begins to hold, or not to."""
        found = {1}
        for exactly, least, most in self.guards:
            if size in exactly:
                found |= {exactly[size], exactly[size] + 1}
            if size in least:
                found.add(least[size])
            if size in most:
                found.add(most[size] + 1)
        return sorted(found)

    def check_open(self):
        """Every axis that may have several sizes is open, or the statement says that it is not."""
        fixed = first_common(self.cases)
        if self.report["verdict"] != "right" or not self.open or fixed is None:
            return  # it says of which sizes it speaks, one by one
        document = self.scenario.document
        layout, batch = document.get("layout", {}), document.get("batch", {})
        asked = {axis for axis, size in layout.items() if size == "any"}
        told = {one["axis"]: one["size"] for one in self.report["kept"]}
        for axis, size in told.items():
            written = {"micro_batches": 2, **batch, **layout}.get(axis)
            if asked or batch.get("micro_batches") == "any":
                if written == size:
                    continue  # whoever says "any" gives the others
            demand(f"{axis} = {size}" in self.report["statement"], "the statement does not say that", axis, "stays")
        for axis in sorted(fixed.keys() - {"micro_batches", *self.open, *told}):
            tokens = batch.get("tokens")
            listed = any(isinstance(one, list) for one in [tokens, *(tokens.values() if isinstance(tokens, dict) else [])])
            if (listed and axis not in ("tp", "pp")) or ((asked or batch.get("micro_batches") == "any") and axis not in asked):
                continue
            if axis not in layout and axis not in asked and not self.speaks_of(axis.partition("_")[0]):
                continue
            for size in sorted({1, 2, 3, 4, fixed[axis] + 1, 2 * fixed[axis]} - {fixed[axis]}):
                try:
                    self.scenario.at({**fixed, axis: size})
                except Refused:
                    self.refused += 1
                    continue
                demand(False, axis, "is not open, and the scenario allows it to be", size)

    def check_together(self):
        """Two sizes that are said to be refused together are, beside sizes that a case has."""
        fixed = first_common(self.cases)
        for one in self.report["refused_together"] if fixed is not None else []:
            try:
                self.scenario.at({**fixed, **one["sizes"]})
            except Refused:
                self.refused += 1
                continue
            demand(False, "the scenario allows together", one["sizes"])

    def speaks_of(self, axis):
        """Whether what the file lists names an axis; a framework and a preset speak of all."""
        document = self.scenario.document
        listed = {"schedule": "framework" not in document.get("schedule", {}), "model": "parameters" in document.get("model", {})}
        if axis == "tp" and listed["model"]:
            return self.names(document["model"], axis)
        if not listed["schedule"]:
            return True
        return any(self.names(document.get(part, {}), axis) for part in listed)

    @staticmethod
    def names(part, axis):
        return re.search(rf"(?<![A-Za-z0-9_]){axis}(?![A-Za-z0-9_])", json.dumps(part)) is not None

    def check_refused(self, sizes, endless):
        fixed = first_common(self.cases)
        if fixed is None:
            self.not_looked_at += 1
            return
        for attempt in range(5 if endless else 1):
            larger = {size: self.up_to(sizes[size] + (self.chance.randrange(8) if attempt else 0), endless[size]) for size in sorted(endless)}
            tried = {**fixed, **sizes, **larger}
            try:
                self.scenario.at(tried)
            except Refused:
                self.refused += 1
                continue
            demand(False, "no case has the sizes", tried, ", which the scenario allows")

    @staticmethod
    def up_to(number, most):
        return number if most is None else min(number, most)

    def drawn(self, case, number, tries=6):
        """Sizes of a case that the proof did not look at, where some are allowed: at most so many."""
        _, least, most = guards_of(case)
        known, found = [dict(layout) for layout in case["layouts"]], []
        if not least or not known:
            return []
        for _ in range(tries):
            if len(found) == number:
                break
            sizes = {**known[0], **{size: self.up_to(start + self.chance.randrange(7), most.get(size)) for size, start in least.items()}}
            if sizes in known:
                continue
            known.append(sizes)
            try:
                found.append(self.scenario.at(sizes))
            except Refused:
                continue
        return found
