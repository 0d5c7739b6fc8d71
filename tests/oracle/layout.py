# SPDX-License-Identifier: Apache-2.0
"""Ranks, their coordinates in both meshes, process groups, and the batch that is split over them."""

import math
from fractions import Fraction

from expressions import Context, ScenarioError, number

EXPERT_AXES = ("etp", "ep", "edp", "edp_shard", "edp_replicate")


class Mesh:
    """size[axis], and coordinates[rank][axis], for every axis of both meshes."""

    def __init__(self, layout):
        self.layout = layout
        size = {axis: layout.get(axis, 1) for axis in ("tp", "cp", "sp", "pp", "ep", "etp")}
        if "dp_shard" in layout or "dp_replicate" in layout:
            size["dp_replicate"] = layout.get("dp_replicate", 1)
            size["dp_shard"] = layout.get("dp_shard", layout.get("dp", 1) // size["dp_replicate"] or 1)
            size["dp"] = size["dp_shard"] * size["dp_replicate"]
            if layout.get("dp", size["dp"]) != size["dp"]:
                raise ScenarioError("dp is not dp_shard times dp_replicate")
        else:
            size["dp"] = size["dp_shard"] = layout.get("dp", 1)
            size["dp_replicate"] = 1
        self.world = math.prod(size[axis] for axis in ("tp", "cp", "sp", "dp", "pp"))
        if self.world % (size["etp"] * size["ep"] * size["pp"]):
            raise ScenarioError("etp * ep * pp must divide the world size")
        size["edp"] = self.world // (size["etp"] * size["ep"] * size["pp"])
        # edp falls into dp_replicate parts where it can.
        self.splits_edp = size["edp"] % size["dp_replicate"] == 0
        size["edp_replicate"] = size["dp_replicate"] if self.splits_edp else 1
        size["edp_shard"] = size["edp"] // size["edp_replicate"]
        self.size = size
        order = layout.get("order", "tp-cp-sp-ep-dp-pp").split("-")
        dense = [axis for axis in order if axis != "ep"]
        expert = [{"tp": "etp", "dp": "edp"}.get(axis, axis) for axis in order if axis not in ("cp", "sp")]
        self.coordinates = []
        for rank in range(self.world):
            here = dict.fromkeys(size, 0)
            expert_here = self.digits(rank, expert)
            here.update(expert_here)
            here.update(self.digits(rank, dense))
            here["dp_shard"] = here["dp"] % size["dp_shard"]
            here["dp_replicate"] = here["dp"] // size["dp_shard"]
            here["edp_shard"] = here["edp"] % size["edp_shard"]
            here["edp_replicate"] = here["edp"] // size["edp_shard"]
            here["expert pp"] = expert_here.get("pp", 0)
            self.coordinates.append(here)
        self.pipeline_groups_agree = all(here["pp"] == here["expert pp"] for here in self.coordinates)
        self.instance_groups_agree = self.instances_agree([axis for axis in order if axis in ("dp", "cp")])

    def instances_agree(self, data_axes):
        """Whether dp_replicate and edp_replicate group the same ranks, and an instance is a row among those of dp and cp."""
        size = self.size
        if size["dp_replicate"] == 1 or not self.splits_edp:
            return True
        for part, others in (("dp", ("tp", "cp", "sp", "dp_shard", "pp")), ("edp", ("etp", "ep", "edp_shard", "expert pp"))):
            groups = {}
            for rank, here in enumerate(self.coordinates):
                groups.setdefault(tuple(here[axis] for axis in others), []).append(rank)
            if part == "dp":
                dense = sorted(groups.values())
        if dense != sorted(groups.values()):
            return False
        row = size["dp"] * size["cp"] // size["dp_replicate"]
        for here in self.coordinates:
            position, scale = 0, 1
            for axis in data_axes:
                position += scale * here[axis]
                scale *= size[axis]
            if position // row != here["dp_replicate"]:
                return False
        return True

    def digits(self, rank, axes):
        result = {}
        for axis in axes:  # the leftmost varies fastest
            result[axis] = rank % self.size[axis]
            rank //= self.size[axis]
        if rank:
            raise ScenarioError("an axis larger than 1 is missing in the order")
        return result

    def coordinate(self, axis, value):
        """A coordinate as written: a number, counted from the end where negative, "first" or "last"."""
        n = self.size[axis]
        value = {"first": 0, "last": n - 1}.get(value, value)
        if value < 0:
            value += n
        if not 0 <= value < n:
            raise ScenarioError(f"{axis} has no coordinate {value}")
        return value

    def allowed(self, only, rank):
        """Whether `rank` is at one of the coordinates named on each axis of `only`."""
        for axis, values in (only or {}).items():
            values = values if isinstance(values, list) else [values]
            if self.coordinates[rank][axis] not in [self.coordinate(axis, value) for value in values]:
                return False
        return True

    def group(self, over, rank):
        """The ranks that share the group of `over` with `rank`, ascending; None where it is in none."""
        if isinstance(over, str):
            over = [over]
        picks = {} if isinstance(over, list) else {axis: pick for axis, pick in over.items() if pick != "all"}
        free = set(over)
        expert = any(axis in EXPERT_AXES for axis in free)
        if expert and not self.pipeline_groups_agree:
            raise ScenarioError("the two meshes have different pipeline groups")
        if free & {"edp_shard", "edp_replicate"} and not self.splits_edp:
            raise ScenarioError("edp does not fall into dp_replicate parts")
        for whole in ("dp", "edp"):
            if whole in free:
                free |= {f"{whole}_shard", f"{whole}_replicate"}
        mesh = ("etp", "ep", "edp_shard", "edp_replicate", "pp")
        if not expert:
            mesh = ("tp", "cp", "sp", "dp_shard", "dp_replicate", "pp")
        if not free <= set(mesh) | {"dp", "edp"}:
            raise ScenarioError("a group needs axes of one mesh")
        if not self.allowed(picks, rank):
            return None
        mine = self.coordinates[rank]
        return tuple(
            other
            for other in range(self.world)
            if self.allowed(picks, other)
            and all(self.coordinates[other][axis] == mine[axis] for axis in mesh if axis not in free)
        )


class Batch:
    """Micro-batches, tokens, and what one device minimizes."""

    def __init__(self, batch, mesh):
        self.mesh = mesh
        counts = batch.get("micro_batches", 2)
        if not isinstance(counts, list):
            counts = [counts] * batch.get("steps", 1)
        if len(counts) != batch.get("steps", len(counts)):
            raise ScenarioError("micro_batches has not one entry per optimizer step")
        self.counts, self.steps = counts, len(counts)
        self.tokens = self.per_use(batch.get("tokens", "uneven"))
        self.loss = self.per_use(batch.get("loss", "token_mean"), single=("weight",))
        weight = batch.get("weight", {})
        self.weights = weight if isinstance(weight, dict) else {"main": weight}

    @staticmethod
    def per_use(value, single=()):
        return value if isinstance(value, dict) and set(value) != set(single) else {"main": value}

    def micro_batches(self, step):
        return self.counts[step]

    def first_micro_batch(self, step):
        return sum(self.counts[:step])

    def tokens_at(self, use, step, micro_batch, at):
        tokens = self.tokens.get(use, self.tokens.get("main", "uneven"))
        if tokens == "even":
            return 1
        through = self.first_micro_batch(step) + micro_batch
        if tokens == "uneven":
            return 2 ** ((through + at["dp"] + at["cp"] + at["sp"]) % 3)
        entry = tokens[through] if len(tokens) == sum(self.counts) else tokens[micro_batch]
        return entry[at["dp"]][at["cp"]][at["sp"]]

    def weight(self, use, step, micro_batch, rank):
        """What the summed loss of the tokens of `rank` enters the loss on one device with."""
        loss = self.loss.get(use, self.loss.get("main", "token_mean"))
        factor = number(self.weights.get(use, self.weights.get("main", 1)), Context(self.mesh, self))
        here, size = self.mesh.coordinates[rank], self.mesh.size
        m_count, dp, cp, sp = self.counts[step], size["dp"], size["cp"], size["sp"]

        def total(micro_batches, dps):
            return sum(
                self.tokens_at(use, step, m, {"dp": d, "cp": c, "sp": s})
                for m in micro_batches
                for d in dps
                for c in range(cp)
                for s in range(sp)
            )

        if loss == "token_mean":
            return factor * Fraction(1, total(range(m_count), range(dp)))
        if loss == "micro_batch_mean":
            return factor * Fraction(1, m_count * dp * total([micro_batch], [here["dp"]]))
        if loss == "local_mean":
            return factor * Fraction(1, m_count * dp * cp * sp * self.tokens_at(use, step, micro_batch, here))
        if loss == "sum":
            return factor
        return factor * number(loss["weight"], Context(self.mesh, self, rank, step, micro_batch))
