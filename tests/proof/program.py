# SPDX-License-Identifier: Apache-2.0
"""The Program that a proof is about: a scenario's plain steps and parameters at given sizes, and the ranks' digits there.

The scenario's text is read here. A framework and a model are expanded by `lockstep show --resolved`, which is the one thing
that is taken from lockstep (docs/proof.md); expressions, selectors and placements are those of the slow interpreter in
tests/oracle, which shares no code with it either.
"""

import json
import math
import os
import re
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "oracle"))

import expressions  # noqa: E402
import placement  # noqa: E402
from functions import WrongProof  # noqa: E402

DENSE = ("tp", "cp", "sp", "dp", "pp")
EXPERT = ("etp", "ep", "edp", "edp_shard", "edp_replicate")
PARTS = {"dp": ("dp_shard", "dp_replicate"), "edp": ("edp_shard", "edp_replicate")}
TEXT_OR_COMMENT = re.compile(r'"(?:[^"\\]|\\.)*"|//[^\n]*|/\*.*?\*/', re.DOTALL)
TEXT_OR_COMMA = re.compile(r'"(?:[^"\\]|\\.)*"|,(?=\s*[}\]])', re.DOTALL)


class Refused(Exception):
    """The scenario does not allow these sizes."""


def without_comments(text):
    text = TEXT_OR_COMMENT.sub(lambda found: found[0] if found[0][0] == '"' else " ", text)
    return TEXT_OR_COMMA.sub(lambda found: found[0] if found[0][0] == '"' else "", text)


def names_in(tree):
    """Every name in an expression."""
    if isinstance(tree, (list, tuple)):
        if len(tree) == 2 and tree[0] == "name":
            return {tree[1]}
        return set().union(*(names_in(part) for part in tree))
    return set()


def names_of(expression):
    return names_in(expressions.parse(expression)) if isinstance(expression, str) else set()


def as_list(value):
    return value if isinstance(value, list) else [value]


class Scenario:
    def __init__(self, path):
        self.path = Path(path)
        self.document = json.loads(without_comments(self.path.read_text(encoding="utf-8")))
        self.document.pop("expect", None)
        self.shown = {}  # by sizes: what lockstep printed, or why it refused

    def resized(self, sizes):
        """The document at these sizes, of which dp may be given by its parts in either mesh."""
        layout = dict(self.document.get("layout", {}))
        for axis, size in sizes.items():
            if axis != "micro_batches" and (size != 1 or axis in layout):
                layout[axis] = size
        if "dp_shard" in sizes:
            layout.pop("dp", None)
        if "edp" in sizes:
            for derived in ("edp", "dp_shard", "dp_replicate"):
                layout.pop(derived, None)
            layout["dp"] = sizes["ep"] * sizes["edp"]
            if "etp" in layout:
                layout["etp"] = sizes["tp"]
        document = {**self.document, "layout": layout}
        if "micro_batches" in sizes:
            document["batch"] = {**document.get("batch", {}), "micro_batches": sizes["micro_batches"]}
        return document

    def at(self, sizes):
        """The Program at these sizes; raises Refused."""
        key = tuple(sorted(sizes.items()))
        if key not in self.shown:
            done = subprocess.run([os.environ["LOCKSTEP_BINARY"], "show", "--resolved", "-"], input=json.dumps(self.resized(sizes)),
                                  cwd=self.path.parent, capture_output=True, text=True, check=False)
            self.shown[key] = done.returncode == 0, done.stdout if done.returncode == 0 else " ".join(done.stderr.split())
        allowed, text = self.shown[key]
        if not allowed:
            raise Refused(text)
        return Program(json.loads(text, parse_float=Fraction))


def same_shape(a, b, same):
    """Whether two values are alike, where `same` says it of what is no list and no object."""
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same_shape(a[key], b[key], same) for key in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(same_shape(left, right, same) for left, right in zip(a, b))
    return a == b or (not isinstance(a, (dict, list)) and not isinstance(b, (dict, list)) and same(a, b))


class Level:
    """A digit of the rank's number: the axes, of either mesh, of which it is one."""

    def __init__(self, size, axes):
        self.size, self.axes = size, axes


class Program:
    def __init__(self, document):
        self.document = document
        self.layout = document.get("layout", {})
        self.batch = document.get("batch", {})
        self.parameters = document["model"]["parameters"]
        self.edits_model = "edits" in document["model"]
        self.sizes = self.all_sizes()
        self.read_schedule(document["schedule"], self.batch)
        self.expert = self.speaks_of_experts()
        self.levels = self.all_levels()
        self.collect()

    def read_schedule(self, schedule, batch):
        self.schedule, self.batch = schedule, batch
        self.steps, self.result = schedule["steps"], schedule.get("result", "grad")
        counts, times = batch.get("micro_batches", 2), batch.get("steps")
        self.counts = counts if isinstance(counts, list) else [counts] * (times or 1)
        self.signatures, self.stage_kinds = {}, None  # of cuts, by step and stage; classes.Stages

    def all_sizes(self):
        layout = self.layout
        size = {axis: layout.get(axis, 1) for axis in ("tp", "cp", "sp", "pp", "ep", "etp")}
        if "dp_shard" in layout or "dp_replicate" in layout:
            size["dp_replicate"] = layout.get("dp_replicate", 1)
            size["dp_shard"] = layout.get("dp_shard", layout.get("dp", 1) // size["dp_replicate"] or 1)
        else:
            size["dp_shard"], size["dp_replicate"] = layout.get("dp", 1), 1
        size["dp"] = size["dp_shard"] * size["dp_replicate"]
        self.world = math.prod(size[axis] for axis in DENSE)
        size["edp"] = self.world // (size["etp"] * size["ep"] * size["pp"])
        size["edp_replicate"] = size["dp_replicate"] if size["edp"] % size["dp_replicate"] == 0 else 1
        size["edp_shard"] = size["edp"] // size["edp_replicate"]
        return size

    def every_step(self):
        for step in self.steps:
            yield step
            yield from step.get("steps", [])

    def speaks_of_experts(self):
        named = set()
        for parameter in self.parameters:
            for key in ("shard", "partial", "only", "dispatch"):
                named |= set(parameter.get(key, ()))
            if parameter.get("dispatch"):
                return True
        for step in self.every_step():
            over = step.get("over", [])
            named |= {over} if isinstance(over, str) else set(over)
            named |= set(step.get("only", {}))
            for key in ("by", "when", "count"):
                named |= {name.removeprefix("rank.") for name in names_of(step.get(key))}
        return bool(named & set(EXPERT))

    def all_levels(self):
        """Digits in which both meshes can be written, the pipeline's first, then the slowest."""
        size, stretches = self.sizes, []

        def add(axis, begin, length):
            if length > 1:
                stretches.append((axis, begin, begin * length))

        order = self.layout.get("order", "tp-cp-sp-ep-dp-pp").split("-")
        order += [axis for axis in ("tp", "cp", "sp", "ep", "dp", "pp") if axis not in order]
        meshes = [[axis for axis in order if axis != "ep"]]
        if self.expert:
            meshes.append([{"tp": "etp", "dp": "edp"}.get(axis, axis) for axis in order if axis not in ("cp", "sp")])
        for mesh in meshes:
            begin = 1
            for axis in mesh:
                if axis in PARTS:
                    shard, replicate = PARTS[axis]
                    add(axis, begin, size[axis])
                    add(shard, begin, size[shard])
                    add(replicate, begin * size[shard], size[replicate])
                else:
                    add(axis, begin, size[axis])
                begin *= size[axis]
        marks = sorted({1} | {mark for _, begin, end in stretches for mark in (begin, end)})
        levels = [Level(end // begin, {axis for axis, first, last in stretches if first <= begin and end <= last})
                  for begin, end in zip(marks, marks[1:])]
        levels.reverse()
        return sorted(levels, key=lambda level: "pp" not in level.axes)

    def levels_of(self, axis):
        """Numbers of its levels, the slowest first; none where it has one rank."""
        return [number for number, level in enumerate(self.levels) if axis in level.axes]

    # What each stage holds.

    def collect(self):
        """Logical parameters, and the buffers of each stage in the order of their first sites."""
        self.logical_of, self.logicals, tied_as = [], [], {}
        for number, parameter in enumerate(self.parameters):
            tied = parameter.get("tied")
            if tied and tied in tied_as and parameter.get("copy") != self.parameters[self.logicals[tied_as[tied]][0]].get("copy"):
                raise WrongProof(f"{tied} has several copies, which no proof follows")
            if tied and tied in tied_as:
                self.logical_of.append(tied_as[tied])
                self.logicals[tied_as[tied]].append(number)
                continue
            if tied:
                tied_as[tied] = len(self.logicals)
            self.logical_of.append(len(self.logicals))
            self.logicals.append([number])
        stages = self.sizes["pp"]
        self.buffers = [{} for _ in range(stages)]
        for number, parameter in enumerate(self.parameters):
            if not parameter.get("frozen"):
                stage = parameter.get("stage", 0)
                for held_on in range(stages) if stage == "all" else [self.coordinate("pp", stage)]:
                    self.buffers[held_on].setdefault(self.logical_of[number], []).append(number)
        self.by_name = {self.parameters[sites[0]]["name"]: logical for logical, sites in enumerate(self.logicals)}

    def name(self, logical):
        return self.parameters[self.logicals[logical][0]]["name"]

    def held(self):
        """Logical parameters that some stage holds."""
        return sorted({logical for buffers in self.buffers for logical in buffers})

    def stages_of(self, logical):
        return [stage for stage, buffers in enumerate(self.buffers) if logical in buffers]

    def coordinate(self, axis, value):
        """A coordinate as written: a number, counted from the end where negative, "first" or "last"."""
        size = self.sizes[axis]
        value = {"first": 0, "last": size - 1}.get(value, value)
        return value + size if value < 0 else value

    def numel(self, parameter):
        """Of one rank's piece, where all pieces are equal."""
        shape = [Fraction(extent) for extent in parameter["shape"]]
        for axis, how in parameter.get("shard", {}).items():
            shape[how["dim"] if isinstance(how, dict) else how] /= self.sizes[axis]
        return math.prod(shape)

    def chooses(self, step, stage, logical, key="params"):
        """Whether the step's selectors fit what the stage holds of the logical parameter."""
        selectors = step.get(key) if key == "params" else step.get("geometry", {}).get(key, [])
        if selectors is None:
            return True
        selectors = as_list(selectors)
        wanted = [item for item in selectors if not item.startswith("!")]
        excluded = [item[1:] for item in selectors if item.startswith("!")]
        sites = [self.parameters[site] for site in self.buffers[stage][logical]]
        numel = self.numel(sites[0])
        for site in sites:
            if any(placement.fits(item, site, numel) for item in wanted) or (not wanted and excluded):
                if not any(placement.fits(item, site, numel) for item in excluded):
                    return True
        return False
