# SPDX-License-Identifier: Apache-2.0
"""Parameters, the pieces and buffers that ranks hold of them, selectors, and what each backward contributes."""

import math
import re

from expressions import ScenarioError


def intervals_of(parameter, coordinates, size):
    """The piece of a rank, one interval per dimension; of two axes on one dimension the first written cuts first."""
    box = [(0, length) for length in parameter["shape"]]
    for axis, how in parameter.get("shard", {}).items():
        dim, uneven = (how["dim"], how.get("uneven", False)) if isinstance(how, dict) else (how, False)
        begin, end = box[dim]
        length, n, mine = end - begin, size[axis], coordinates[axis]
        if uneven:  # as torch.chunk
            chunk = -(-length // n)
            box[dim] = (begin + min(mine * chunk, length), begin + min((mine + 1) * chunk, length))
        elif length % n:
            raise ScenarioError(f"{axis} does not divide dimension {dim} of {parameter['name']}")
        else:
            box[dim] = (begin + mine * length // n, begin + (mine + 1) * length // n)
    return tuple(box)


def elements_of(box, shape):
    """Row-major global indices of the elements of a piece, in row-major order of the piece."""
    indices = [0]
    for (begin, end), length in zip(box, shape):
        indices = [index * length + at for index in indices for at in range(begin, end)]
    return indices


class Buffer:
    """What one rank holds of one copy of a logical parameter; its sites on one rank share it, in the place of the
    first."""

    def __init__(self, logical, site, parameter, box):
        self.logical, self.box, self.sites = logical, box, [site]
        self.name, self.copy = parameter["name"], parameter.get("copy")
        self.elements = elements_of(box, parameter["shape"])
        self.numel = len(self.elements)
        self.rows = box[0][1] - box[0][0] if box else 1
        self.chunk, self.dtype = parameter.get("chunk", 0), parameter.get("dtype", "float32")


def fits_glob(glob, text):
    pattern = "".join(".*" if c == "*" else "." if c == "?" else re.escape(c) for c in glob)
    return re.fullmatch(pattern, text, re.DOTALL) is not None


def fits(item, parameter, numel):
    """One selector without its exclamation mark."""
    if item.startswith("tag:"):
        return item[4:] in parameter.get("tags", [])
    if item.startswith("tied:"):
        return item[5:] == parameter.get("tied")
    for key in ("shard", "partial"):
        if item.startswith(key + ":"):
            return any(fits_glob(item[len(key) + 1 :], axis) for axis in parameter.get(key, []))
    comparison = re.fullmatch(r"(numel|chunk)\s*(<=|>=|==|<|>)\s*(\d+)", item)
    if comparison:
        value, bound = numel if comparison[1] == "numel" else parameter.get("chunk", 0), int(comparison[3])
        return {
            "<=": value <= bound,
            ">=": value >= bound,
            "==": value == bound,
            "<": value < bound,
            ">": value > bound,
        }[comparison[2]]
    return fits_glob(item, parameter["name"])


class Model:
    def __init__(self, parameters, mesh):
        self.parameters, self.mesh = parameters, mesh
        self.logical_of, self.logical_name, by_tie = [], [], {}
        for parameter in parameters:
            tied = parameter.get("tied")
            if tied and tied in by_tie:
                self.logical_of.append(by_tie[tied])
                continue
            if tied:
                by_tie[tied] = len(self.logical_name)
            self.logical_of.append(len(self.logical_name))
            self.logical_name.append(parameter["name"])
        self.buffers = [self.held_by(rank) for rank in range(mesh.world)]
        self.cache = {}

    def held_by(self, rank):
        held, coordinates = {}, self.mesh.coordinates[rank]
        for site, parameter in enumerate(self.parameters):
            stage, logical = parameter.get("stage", 0), self.logical_of[site]
            if parameter.get("frozen") or (stage != "all" and self.mesh.coordinate("pp", stage) != coordinates["pp"]):
                continue
            key = logical, parameter.get("copy")
            if key in held:
                held[key].sites.append(site)
            else:
                held[key] = Buffer(logical, site, parameter, intervals_of(parameter, coordinates, self.mesh.size))
        return list(held.values())  # in the order of first sites

    def logical_elements(self):
        """The global elements of every logical parameter that is not frozen."""
        result = {}
        for site, parameter in enumerate(self.parameters):
            if not parameter.get("frozen"):
                result[self.logical_of[site]] = range(math.prod(parameter["shape"]))
        return result

    def chooses(self, selectors, buffer):
        """A list is a union without its exclusions; exclusions alone start from all; one name chosen is enough."""
        if selectors is None:
            return True
        selectors = [selectors] if isinstance(selectors, str) else selectors
        wanted = [item for item in selectors if not item.startswith("!")]
        excluded = [item[1:] for item in selectors if item.startswith("!")]
        for site in buffer.sites:
            parameter = self.parameters[site]
            if (not wanted and excluded) or any(fits(item, parameter, buffer.numel) for item in wanted):
                if not any(fits(item, parameter, buffer.numel) for item in excluded):
                    return True
        return False

    def selected(self, selectors, rank):
        key = (rank, tuple(selectors) if isinstance(selectors, list) else selectors)
        if key not in self.cache:
            self.cache[key] = [i for i, buffer in enumerate(self.buffers[rank]) if self.chooses(selectors, buffer)]
        return self.cache[key]

    def takes_part(self, site, rank):
        parameter = self.parameters[site]
        return self.mesh.allowed(parameter.get("only"), rank)

    def contributions(self, rank, buffer, batch, step, micro_batch, uses=None):
        """What backward adds: (site, use, the rank that names it, the rank on which `by` is evaluated)."""
        result = []
        for site in buffer.sites:
            parameter = self.parameters[site]
            when = parameter.get("micro_batches")
            if when is not None and micro_batch not in when:
                continue
            if not self.takes_part(site, rank):
                continue
            for source, evaluated_on in self.sources(site, rank, buffer):
                for use in parameter.get("uses", ["main"]):
                    if uses is not None and use not in uses:
                        continue
                    if batch.tokens_at(use, step, micro_batch, self.mesh.coordinates[source]):
                        result.append((site, use, source, evaluated_on))
        return result

    def sources(self, site, rank, buffer):
        parameter, mesh = self.parameters[site], self.mesh
        dispatch, here = parameter.get("dispatch"), mesh.coordinates[rank]
        if dispatch:  # the tokens of this group's ranks, every rank with its own
            return [(source, source) for source in mesh.group(dispatch, rank)]
        same = ["cp", "sp", "dp", "pp"] + parameter.get("partial", [])
        for other in range(mesh.world):  # the lowest rank that computes the same full value
            there = mesh.coordinates[other]
            if (
                all(there[axis] == here[axis] for axis in same)
                and self.takes_part(site, other)
                and intervals_of(parameter, there, mesh.size) == buffer.box
            ):
                return [(other, rank)]
        raise AssertionError("a rank is at least its own source")
