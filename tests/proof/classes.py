# SPDX-License-Identifier: Apache-2.0
"""Which parameters of a Program go through its schedule alike: those of one key.

A parameter's key says where it lies, what its backward yields, which steps choose it on which stage, and which of the
cuts that it meets are equal. Stages in the middle are alike where the Program tells them apart by nothing.
"""

from cuts import cut_signatures
from program import as_list, expressions

CUTTING = ("reduce_scatter", "reduce_scatter_v", "own", "all_gather")


def compared(tree, found):
    """Numbers that rank.pp is compared with, whatever the comparison; None for what is no number."""
    if isinstance(tree, tuple):
        if tree[0] == "compare" and ("name", "rank.pp") in tree[2:4]:
            other = tree[3] if tree[2] == ("name", "rank.pp") else tree[2]
            if other[0] == "number":
                found.add(int(other[1]))
            elif other[0] != "name" or other[1] not in ("first", "last"):
                found.add(None)
        for part in tree:
            compared(part, found)
    elif isinstance(tree, list):
        for part in tree:
            compared(part, found)


class Stages:
    """The stages that a Program tells apart."""

    def __init__(self, program):
        self.last = program.sizes["pp"] - 1
        self.named, self.compared = set(), set()
        for step in program.every_step():
            over = step.get("over")
            picks = [over["pp"]] if isinstance(over, dict) and over.get("pp", "all") != "all" else []
            if isinstance(step.get("root"), dict) and "pp" in step["root"]:
                picks.append(step["root"]["pp"])
            if isinstance(step.get("root"), int) and over is not None:
                self.named.add(step["root"])
            if "pp" in step.get("only", {}):
                picks.append(step["only"]["pp"])
            self.named |= {program.coordinate("pp", one) for pick in picks for one in as_list(pick)}
            for key in ("when", "count", "by"):
                if isinstance(step.get(key), str):
                    compared(expressions.parse(step[key]), self.compared)
        loss = program.batch.get("loss")
        for one in [loss, *loss.values()] if isinstance(loss, dict) else []:
            if isinstance(one, dict) and isinstance(one.get("weight"), str):
                compared(expressions.parse(one["weight"]), self.compared)

    def kind(self, stage):
        if stage in (0, self.last):
            return "first" if stage == 0 else "last"
        if None in self.compared or stage in self.named or self.compared & {stage - 1, stage, stage + 1}:
            return stage
        return "middle", sum(one < stage for one in self.compared)


def site_key(site):
    shard = tuple((axis, isinstance(how, dict) and bool(how.get("uneven"))) for axis, how in site.get("shard", {}).items())
    when = site.get("micro_batches")
    return (tuple(site.get("uses", ["main"])), shard, tuple(sorted(site.get("partial", []))), tuple(sorted(site.get("dispatch", []))),
            None if when is None else tuple(when), str(sorted(site.get("only", {}).items())), site.get("stage") == "all")


def key_of(program, logical):
    stages, held = Stages(program) if program.stage_kinds is None else program.stage_kinds, program.stages_of(logical)
    program.stage_kinds = stages
    sites, cuts, key = {}, {}, []
    for stage in held:
        here = program.buffers[stage][logical]
        numbers = tuple((sites.setdefault(site, len(sites)), site_key(program.parameters[site])) for site in here)
        chosen = []
        for step in program.every_step():
            if step["op"] in ("each", "wait"):
                continue
            chosen.append(program.chooses(step, stage, logical))
            if chosen[-1] and step["op"] in CUTTING:
                signature = cut_signatures(program, step, stage)[logical]
                chosen.append(cuts.setdefault(signature, len(cuts)))
        apart = 1 < len(held) <= stages.last and stage not in (0, stages.last)  # it lies on some of the stages
        one = (stage if apart else stages.kind(stage), numbers, tuple(chosen))
        if one not in key[-1:]:  # of stages in the middle that are alike there may be any number
            key.append(one)
    return tuple(key)
