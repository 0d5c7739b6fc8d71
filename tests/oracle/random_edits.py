# SPDX-License-Identifier: Apache-2.0
"""Edits: chosen at random, and applied to a plain list of steps by the words of docs/scenario-format.md, "Edits"."""

import copy
import re
from fractions import Fraction

from random_schedule import DENSE


# A key of our own, in steps that an edit put into one iteration; it is gone from the schedule that is judged.
ITERATION = "one iteration"


def find(steps, name):
    """(list, index) of a step by name, inside `each` as well."""
    for i, step in enumerate(steps):
        if step.get("name") == name:
            return steps, i
        if step["op"] == "each":
            inner = find(step["steps"], name)
            if inner:
                return inner
    return None


def all_steps(steps):
    for step in steps:
        yield step
        yield from all_steps(step.get("steps", []))


def only_there(step):
    """In the body of `each`, but in its own iteration alone."""
    condition = f"micro_batch == {step[ITERATION]}"
    step["when"] = f"({step['when']}) and {condition}" if "when" in step else condition


def put(steps, step, edit):
    where = "before" if "before" in edit else "after"
    name, iteration = re.fullmatch(r"(.*?)(?:\[(\w+)\])?", edit[where]).groups()
    target, i = find(steps, name)
    # What is put beside a step of one iteration is in that iteration too.
    iteration = iteration or target[i].get(ITERATION)
    if iteration and step.get(ITERATION) != iteration:
        step[ITERATION] = iteration
        only_there(step)
    target.insert(i if where == "before" else i + 1, step)


def apply(edit, steps):
    if "drop" in edit:
        target, i = find(steps, edit["drop"])
        target.pop(i)
    elif "duplicate" in edit:
        target, i = find(steps, edit["duplicate"])
        target.insert(i + 1, {**copy.deepcopy(target[i]), "name": edit["duplicate"] + ".2"})
    elif "move" in edit:
        target, i = find(steps, edit["move"])
        put(steps, target.pop(i), edit)
    elif "insert" in edit:
        put(steps, copy.deepcopy(edit["insert"]), edit)
    elif "set" in edit:
        target, i = find(steps, edit["set"])
        step = target[i]
        for key, value in edit.items():
            if key == "set":
                continue
            if key == "geometry" and value is not None and "geometry" in step:
                step[key] = {**step[key], **value}
            elif value is None:
                step.pop(key, None)
            else:
                step[key] = copy.deepcopy(value)
        if "when" in edit and ITERATION in step:
            only_there(step)


def forget_iterations(steps):
    """Takes ITERATION away."""
    for step in all_steps(steps):
        step.pop(ITERATION, None)


class EditMaker:
    """Chooses edits that leave a valid schedule: another one, as a rule a wrong one."""

    def __init__(self, rng, maker, steps):
        self.rng, self.maker, self.steps = rng, maker, steps

    def names(self, *ops):
        return [step["name"] for step in all_steps(self.steps) if "name" in step and (not ops or step["op"] in ops)]

    def waited_for(self):
        return {step["for"] for step in all_steps(self.steps) if step["op"] == "wait"}

    def random_edit(self):
        kind = self.rng.choice(("drop", "duplicate", "move", "set", "set", "set", "insert", "insert", "split"))
        return getattr(self, kind)() or []

    def drop(self):
        names = [n for n in self.names() if n not in self.waited_for() and n not in ("each", "backward")]
        return [{"drop": self.rng.choice(names)}] if names else []

    def duplicate(self):
        names = [n for n in self.names() if n + ".2" not in self.names() and n != "each"]
        return [{"duplicate": self.rng.choice(names)}] if names else []

    def in_each(self, name):
        return any(step.get("name") == name for outer in self.steps if outer["op"] == "each" for step in outer["steps"])

    def move(self):
        names = [n for n in self.names() if n not in ("each", "backward") and not n.startswith("backward")]
        if not names:
            return []
        name = self.rng.choice(names)
        target, i = find(self.steps, name)
        anchors = [n for n in self.names() if n != name]
        if "micro_batch ==" in str(target[i].get("when")):
            anchors = [n for n in anchors if self.in_each(n)]
        return [{"move": name, self.rng.choice(("before", "after")): self.anchor(anchors)}] if anchors else []

    def anchor(self, names):
        name = self.rng.choice(names)
        if name == "backward" and self.rng.random() < 0.4:
            name += self.rng.choice(("[0]", "[first]", "[last]"))
        return name

    def set(self):
        rng, maker = self.rng, self.maker
        names = self.names()
        name = rng.choice(names)
        target, i = find(self.steps, name)
        step, op, changes = target[i], target[i]["op"], {}
        if op == "each":
            changes["when"] = rng.choice(("rank.dp == 0", "step == 0", "rank.pp == last"))
        elif op in ("backward", "scale", "leftover"):
            changes["by"] = rng.choice((2, "1/2", "1/dp", "1/world", "sp", "cp*tp", Fraction("0.1"), "1/(rank.dp+1)"))
            if op == "backward" and rng.random() < 0.2:
                changes["by"] = None
        elif op in ("all_reduce", "reduce_scatter", "reduce_scatter_v", "reduce"):
            choice = rng.random()
            if choice < 0.15:
                changes["reduce"] = "sum" if step.get("reduce") == "avg" else "avg"
            elif choice < 0.4:
                changes["over"] = maker.random_over()
                if op == "reduce":
                    changes["root"] = 0
            elif choice < 0.5:
                changes["on"] = None if step.get("on") else "owned"
            elif choice < 0.75 and op in ("reduce_scatter", "reduce_scatter_v"):
                geometry, kind = maker.geometry() or {"kind": "parameter"}, (step.get("geometry") or {}).get(
                    "kind", "parameter"
                )
                if geometry.get("kind", "parameter") == kind:
                    changes["geometry"] = geometry
                else:
                    return [{"set": name, "geometry": None}, {"set": name, "geometry": geometry}]
            elif choice < 0.85:
                changes["async"] = True
            else:
                changes.update(self.left_out())
        elif op == "norm":
            changes.update(
                rng.choice(
                    (
                        {"count": "rank.dp == 0"},
                        {"count": "true"},
                        {"combine": "mean_of_norms"},
                        {"over": maker.random_over()},
                        {"over": None},
                        {"params": None},
                    )
                )
            )
        elif op in ("all_gather", "broadcast", "own", "all_to_all"):
            changes.update(
                self.left_out() if rng.random() < 0.6 or op == "all_gather" else {"over": maker.random_over()}
            )
            if op == "broadcast" and "over" in changes:
                changes["root"] = 0
        elif op in ("copy", "accumulate"):
            changes["to"] = rng.choice(("grad", "main_grad", "other"))
        else:
            changes.update(self.left_out())
        return [{"set": name, **changes}] if changes else []

    def left_out(self):
        rng, size = self.rng, self.maker.mesh.size
        axis = rng.choice([a for a in DENSE if size[a] > 1] or ["dp"])
        return rng.choice(
            (
                {"only": {axis: [0]}},
                {"only": {axis: [0, "last"]}},
                {"when": f"rank.{axis} == last"},
                {"when": f"not rank.{axis} == 0"},
                {"when": "world > 3"},
                {"when": "step == 0 or rank.pp > 0"},
            )
        )

    def insert(self):
        step = self.random_step()
        where = self.rng.choice(("before", "after"))
        edits = [{"insert": step, where: self.anchor(self.names())}]
        if step.get("async") and self.rng.random() < 0.7:
            later = [n for n in self.names("zero", "scale", "all_reduce", "norm", "reduce_scatter")] or [step["name"]]
            anchor = step["name"] if self.rng.random() < 0.5 else self.rng.choice(later)
            edits.append(
                {"insert": {"name": self.maker.name("wait"), "op": "wait", "for": step["name"]}, "after": anchor}
            )
        return edits

    def random_params(self):
        rng, parameters = self.rng, [p for p in self.maker.model.parameters if not p.get("frozen")]
        kind = rng.random()
        if kind < 0.4:
            return None
        if kind < 0.7:
            return [rng.choice(parameters)["name"]]
        if kind < 0.8:
            return ["*weight"] if any(p["name"].endswith("weight") for p in parameters) else None
        if kind < 0.9:
            numel = rng.choice([b.numel for held in self.maker.model.buffers for b in held])
            return [f"numel{rng.choice(('>=', '<=', '=='))}{numel}"]
        return ["!" + rng.choice(parameters)["name"]] if len(self.maker.model.logical_name) > 1 else None

    def random_step(self):
        rng, maker = self.rng, self.maker
        op = rng.choice(
            (
                "scale",
                "all_reduce",
                "all_reduce",
                "all_reduce",
                "reduce_scatter",
                "reduce_scatter_v",
                "all_gather",
                "broadcast",
                "reduce",
                "own",
                "copy",
                "accumulate",
                "zero",
                "leftover",
                "norm",
                "clip",
                "all_to_all",
            )
        )
        step = {"name": maker.name(op), "op": op}
        params = self.random_params()
        if params and op != "all_to_all":
            step["params"] = params
        if op not in ("scale", "copy", "accumulate", "zero", "leftover", "clip"):
            step["over"] = maker.random_over()
            sharded = [p for p in maker.model.parameters if p.get("shard") and not p.get("frozen")]
            if (
                sharded and op in ("all_reduce", "broadcast", "reduce_scatter") and rng.random() < 0.3
            ):  # mixes up shards
                parameter = rng.choice(sharded)
                step.update(params=[parameter["name"]], over=rng.choice(list(parameter["shard"])))
        if op in ("reduce_scatter", "reduce_scatter_v", "all_gather", "own") and rng.random() < 0.6:
            step["geometry"] = maker.geometry() or {"kind": "parameter"}
        if op in ("broadcast", "reduce"):
            step["root"] = 0
        if op in ("all_reduce", "reduce_scatter", "reduce_scatter_v", "reduce") and rng.random() < 0.3:
            step["reduce"] = rng.choice(("avg", "sum"))
        if op in ("scale", "leftover"):
            step["by"] = rng.choice((2, "1/2", 0, "3/2", "1/world"))
        if op == "leftover":
            step.update(
                {"what": rng.choice(("parameter", "momentum")), **({"per": "rank"} if rng.random() < 0.5 else {})}
            )
        if op in ("copy", "accumulate"):
            step.update(
                {"from": rng.choice(("grad", "main_grad", "other")), "to": rng.choice(("grad", "main_grad", "other"))}
            )
        elif op not in ("own", "all_to_all", "norm") and rng.random() < 0.25:
            step["buffer"] = rng.choice(("grad", "main_grad", "other"))
        on_parts = ("scale", "clip", "all_reduce", "reduce_scatter", "broadcast", "zero", "copy", "accumulate", "leftover", "own")
        if op in on_parts and rng.random() < 0.4:
            step["on"] = "owned"
        if rng.random() < 0.15:
            step.update(self.left_out())
        if op != "own" and rng.random() < 0.12:
            step["async"] = True
        return step

    def split(self):
        """Some ranks call another step in the place of this one."""
        rng, size = self.rng, self.maker.mesh.size
        names = self.names("all_reduce", "reduce_scatter", "reduce")
        axes = [axis for axis in DENSE if size[axis] > 1]
        if not names or not axes:
            return []
        name, axis = rng.choice(names), rng.choice(axes)
        target, i = find(self.steps, name)
        step = target[i]
        if "when" in step or step.get("async") or name + ".2" in self.names():
            return []
        change = rng.choice(
            (
                {},
                {"reduce": "sum" if step.get("reduce") == "avg" else "avg"},
                {"params": self.random_params()},
                {"buffer": "other"},
                {"op": "all_to_all"},
            )
        )
        if "op" in change:
            change.update(dict.fromkeys(set(step) & {"params", "root", "reduce", "geometry", "on", "buffer"}))
        edits = [
            {"duplicate": name},
            {"set": name, "when": f"rank.{axis} == 0"},
            {"set": name + ".2", "when": f"rank.{axis} != 0", **change},
        ]
        if rng.random() < 0.3:
            others = [n for n in self.names() if n not in ("each", name)]
            edits += [{"move": name, "before": rng.choice(others)}] if others else []
        return edits
