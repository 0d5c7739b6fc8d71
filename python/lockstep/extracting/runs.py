# SPDX-License-Identifier: Apache-2.0
"""What a captured run of few ranks (docs/capture.md) says of its parameters: along each axis of its mesh whether ranks yield one gradient, shares of one, or
gradients of parts. Equal gradients are one; different ones of the same elements are shares where something of the run is placed along the axis
(docs/verify.md).
"""

import glob
import json
import math
import os
import struct

from lockstep.extracting.merging import Mesh
from lockstep.extracting.placements import Conflict, PARTS, SHARES, TOLD, WHOLE, names_of, pattern


class Rank:
    """The file of one rank."""

    def __init__(self, path):
        self.stem = path[:-len(".jsonl")]
        with open(path, encoding="utf-8") as file:
            self.run, *events = map(json.loads, file)
        self.parameters = {event["id"]: event for event in events if event["event"] == "parameter"}
        self.names = {event["name"]: names_of(event) for event in self.parameters.values()}
        self.yields, self.files = {}, {}  # by name: contributions by (optimizer step, micro-batch, piece), in their order; by step: rows
        self.partial = {}  # by name: axes along which it is said that these are shares
        for event in events:
            if event["event"] == "contribution":
                parameter = self.parameters[event["parameter"]]
                key = event["step"], event["micro_batch"], json.dumps(parameter["pieces"][event["piece"]])
                self.yields.setdefault(parameter["name"], {}).setdefault(key, []).append(event)
                self.partial.setdefault(parameter["name"], set()).update(event.get("partial", ()))

    def sketch(self, event):
        step = event["step"]
        if step not in self.files:
            with open("%s.step-%05d.safetensors" % (self.stem, step), "rb") as file:
                from lockstep import sketch_files  # which imports torch; most extractions read no run

                self.files[step] = sketch_files.read(file.read())
        return self.files[step][event["row"]]


class Told:
    """Raises Conflict where the folder holds no such run."""

    def __init__(self, folder):
        self.folder = folder
        paths = sorted(glob.glob(os.path.join(glob.escape(folder), "rank-*.jsonl")))
        if not paths:
            raise Conflict("--placements %s: no rank of a captured run has left a file there" % folder)
        try:
            ranks = {rank.run["rank"]: rank for rank in map(Rank, paths)}
            run = next(iter(ranks.values())).run
            self.mesh, self.data_axes = Mesh(run["mesh"]), run["data_axes"]
            self.names = {name for rank in ranks.values() for event in rank.parameters.values() for name in names_of(event)}
            self.kinds, self.patterns = {}, {}  # by name or pattern, and axis: what pairs of ranks say
            for axis in self.asked():
                self.look(ranks, axis)
        except (OSError, ValueError, KeyError, IndexError, TypeError, struct.error) as error:
            raise Conflict("--placements %s: it is no captured run that can be read (%s: %s)" % (folder, type(error).__name__, error)) from error

    def asked(self):
        return [axis for axis, size in zip(self.mesh.axes, self.mesh.sizes) if size > 1 and axis not in TOLD and axis not in self.data_axes]

    def look(self, ranks, axis):
        is_placed = any(axis in event.get("placed", ()) for rank in ranks.values() for event in rank.parameters.values())
        for number, one in ranks.items():
            other = ranks.get(self.mesh.there(number, {axis: 1}))
            for name in one.yields.keys() & other.yields.keys() if other is not None else ():
                kinds = {kind for kind in self.pair(one, other, name, axis, is_placed) if kind is not None}
                for own in one.names[name]:
                    self.kinds.setdefault((own, axis), set()).update(kinds)
                    self.patterns.setdefault((pattern(own), axis), set()).update(kinds)

    @staticmethod
    def pair(one, other, name, axis, is_placed):
        mine, its = one.yields[name], other.yields[name]
        if {key[2] for key in mine}.isdisjoint(key[2] for key in its):
            yield PARTS
        for key in mine.keys() & its.keys():
            if axis in one.partial[name]:
                yield SHARES
                continue
            for first, second in zip(mine[key], its[key]):
                here, there = one.sketch(first), other.sketch(second)
                size = max(math.hypot(*here), math.hypot(*there))
                if first["hash"] == second["hash"]:
                    yield WHOLE if size > 0 else None
                elif is_placed and math.dist(here, there) > 0.05 * size:
                    yield SHARES

    def said(self, names, axis):
        """(kind, who says so) of a parameter of these names; where the run has none of them, of those that have others but for numbers."""
        for known, keys in ((self.kinds, names), (self.patterns, [] if self.names & set(names) else map(pattern, names))):
            found = set().union(*(known.get((key, axis), set()) for key in keys))
            if len(found) == 1:
                return next(iter(found)), self.folder
        return None

    def check_used(self, mesh, data_axes, names):
        """That it is of the same script, as far as its names tell."""
        for axis in self.mesh.axes:
            if axis in mesh.axes and (axis in self.data_axes) != (axis in data_axes):
                raise Conflict("--placements %s: ranks along %s see different tokens in one of both runs alone" % (self.folder, axis))
        if not set(map(pattern, names)) & set(map(pattern, self.names)):
            raise Conflict("--placements %s: none of its parameters has a name of this script's: it has %s, and the script %s"
                           % (self.folder, min(self.names, default="none"), min(names, default="none")))
        if not set(self.asked()) & set(mesh.axes):
            raise Conflict("--placements %s: it has no axis of more than one rank along which this script's ranks see the same tokens; its mesh is %s"
                           % (self.folder, ", ".join("%s %d" % one for one in zip(self.mesh.axes, self.mesh.sizes))))
