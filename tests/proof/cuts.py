# SPDX-License-Identifier: Apache-2.0
"""Which cuts are equal at every size of a case, from the geometries of a Program and what lies in its buffers.

Two cuts are equal for every size if the same rule lays out the same shapes in the same order for the same group. A
bucket begins where the one before it ends, so that what lies in it lies there as from 0 on only where its beginning is
a multiple of what its parameters are aligned to.
"""

from fractions import Fraction

from functions import demand
from program import as_list, expressions


def multiples(tree):
    """[(factor, power)]: the terms factor * n**power whose least common multiple an expression is; None for any other."""
    if tree[0] == "number" and tree[1]:
        return [(Fraction(tree[1]), 0)]
    if tree == ("name", "n"):
        return [(Fraction(1), 1)]
    if tree[0] == "*":
        left, right = multiples(tree[1]), multiples(tree[2])
        if left and right and len(left) == len(right) == 1:
            return [(left[0][0] * right[0][0], left[0][1] + right[0][1])]
    if tree[0] == "call" and tree[1] == "lcm":
        parts = [multiples(argument) for argument in tree[2]]
        if all(parts):
            return [term for part in parts for term in part]
    return None


def terms(value):
    return multiples(expressions.parse(value if isinstance(value, str) else str(value)))


def begins_aligned(geometry):
    """Whether a multiple of `align_bucket` is one of `align_parameter`, for every n."""
    parts, wholes = terms(geometry.get("align_parameter", 64)), terms(geometry.get("align_bucket", "lcm(n, 128)"))
    return bool(parts and wholes) and all(
        any(power <= whole_power and (whole / part).denominator == 1 for whole, whole_power in wholes) for part, power in parts)


def local_shape(parameter):
    return (tuple(parameter["shape"]), tuple((axis, str(how)) for axis, how in parameter.get("shard", {}).items()))


def unequal_axes(program, parameter):
    shards = parameter.get("shard", {}).items()
    return frozenset(axis for axis, how in shards if isinstance(how, dict) and how.get("uneven") and program.sizes.get(axis, 2) > 1)


def cut_signatures(program, step, stage):
    """By logical parameter that the step chooses on the stage: what decides how it is cut there."""
    key = id(step), stage
    if key not in program.signatures:
        program.signatures[key] = signatures(program, step, stage)
    return program.signatures[key]


def signatures(program, step, stage):
    geometry, over = step.get("geometry", {}), step.get("over", [])
    kind = geometry.get("kind", "parameter")
    group = tuple(sorted(as_list(over))) if not isinstance(over, dict) else tuple(sorted(map(str, over.items())))
    chosen = [logical for logical in program.buffers[stage] if program.chooses(step, stage, logical)]
    if kind in ("parameter", "rows"):
        return {logical: (kind, group) for logical in chosen}
    rule = (kind, group, *(str(geometry.get(key)) for key in ("align", "align_parameter", "align_bucket", "size", "counts")))
    first = {logical: program.parameters[program.buffers[stage][logical][0]] for logical in chosen}
    apart = {logical: program.chooses(step, stage, logical, "separate") for logical in chosen}
    by_bucket = kind == "bucket" and geometry.get("size") is None and begins_aligned(geometry)
    together = {}
    for logical in chosen:
        together.setdefault((first[logical].get("chunk", 0), first[logical].get("dtype", "float32")), []).append(logical)
    containers = []
    for members in together.values():
        if not by_bucket:
            containers.append(members)
            continue
        bucket = []
        for logical in reversed(members):  # a bucket is filled from the end
            if apart[logical]:
                containers += [bucket] if bucket else []
                containers.append([logical])
                bucket = []
            else:
                bucket.append(logical)
        containers += [bucket] if bucket else []
    found = {}
    whole = not isinstance(over, dict) and all(program.sizes.get(axis, 2) == 1 for axis in as_list(over))
    for members in containers:
        # What lies behind a shard lies at another place on each rank whose shard has another size.
        unequal = {unequal_axes(program, first[logical]) for logical in members}
        demand(whole or len(unequal) == 1, step.get("name"), "cuts a buffer that is laid out otherwise on ranks along", *unequal)
        content = tuple((local_shape(first[logical]), not by_bucket and apart[logical]) for logical in members)
        for position, logical in enumerate(members):
            found[logical] = (rule, content, position)
    return found
