# SPDX-License-Identifier: Apache-2.0
"""Random schedules: a sensible base that is right in most cases, built from the placements, in many styles."""

import math

DENSE, EXPERT = ("tp", "cp", "sp", "dp", "pp"), ("etp", "ep", "edp", "pp")


class Family:
    """Parameters that are reduced alike: over which axes, and along which axes copies of them end up equal."""

    def __init__(self, mesh, model, parameters):
        self.mesh, self.names = mesh, [p["name"] for p in parameters]
        first = parameters[0]
        shard, dispatch = first.get("shard", {}), first.get("dispatch", [])
        self.expert = any(axis in EXPERT[:3] for axis in list(shard) + dispatch)
        if self.expert:
            self.reduced = ["edp"] + [axis for axis in ("etp", "ep") if axis not in shard and axis not in dispatch]
        else:
            self.reduced = ["dp", "cp", "sp"] + first.get("partial", [])
        self.copies = [
            axis for axis in (EXPERT if self.expert else DENSE)[: -1 if not self.expert else 3] if axis not in shard
        ]
        stages = set()
        for parameter in parameters:
            stage = parameter.get("stage", 0)
            stages |= set(range(mesh.size["pp"])) if stage == "all" else {mesh.coordinate("pp", stage)}
        tied = first.get("tied")
        self.stages = sorted(stages) if (tied or first.get("stage") == "all") and len(stages) > 1 else None

    @staticmethod
    def key(mesh, parameter):
        """Parameters of one key may stand in one Family."""
        stage = parameter.get("stage", 0)
        where = ("tied", parameter["tied"]) if "tied" in parameter else stage if stage == "all" else "one stage"
        return (
            sorted(parameter.get("shard", {})),
            sorted(parameter.get("dispatch", [])),
            parameter.get("partial", []),
            where,
        )


class ScheduleMaker:
    def __init__(self, rng, mesh, model, batch, uses):
        self.rng, self.mesh, self.model, self.batch = rng, mesh, model, batch
        self.count = 0
        present = {use for p in model.parameters if not p.get("frozen") for use in p.get("uses", ["main"])}
        self.uses = [use for use in uses if use in present]
        groups = {}
        for parameter in model.parameters:
            if not parameter.get("frozen"):
                groups.setdefault(repr(Family.key(mesh, parameter)), []).append(parameter)
        self.families = [Family(mesh, model, parameters) for parameters in groups.values()]
        self.in_each, self.after, self.norms = [], [], []
        self.buffer, self.result = "grad", "grad"

    def chance(self, probability):
        return self.rng.random() < probability

    def name(self, stem):
        self.count += 1
        return f"{stem}_{self.count}"

    def step(self, op, stem=None, **keys):
        step = {"name": self.name(stem or op), "op": op}
        step.update({key: value for key, value in keys.items() if value is not None})
        if (
            self.buffer != "grad"
            and op not in ("each", "wait", "all_to_all", "own", "copy", "accumulate")
            and "buffer" not in keys
        ):
            step["buffer"] = self.buffer
        return step

    # The factor that makes the loss of one device out of summed losses: inside `each`, and after it.

    def factors(self, use):
        loss = self.batch.loss.get(use, self.batch.loss.get("main", "token_mean"))
        tokens = "tokens" if use == "main" or use not in self.batch.tokens and self.chance(0.5) else f"tokens.{use}"
        if isinstance(loss, dict):
            inside, outside = loss["weight"], "1"
        elif loss == "token_mean":
            inside, outside = "1", f"1/sum({tokens}, dp, cp, sp, micro_batch)"
        elif loss == "micro_batch_mean":
            inside, outside = f"1/sum({tokens}, cp, sp)", "1/(micro_batches*dp)"
        elif loss == "local_mean":
            inside, outside = f"1/{tokens}", "1/(micro_batches*dp*cp*sp)"
        else:
            inside, outside = "1", "1"
        weight = self.batch.weights.get(use, self.batch.weights.get("main", 1))
        if weight != 1:
            inside = f"{weight}*({inside})"
        return inside, outside

    def backwards(self):
        factors = {use: self.factors(use) for use in self.uses}
        together = len({self.factors_key(f) for f in factors.values()}) == 1 and self.chance(0.8)
        every, outside = [], "1"
        if together:
            inside, outside = factors[self.uses[0]]
            every.append(self.step("backward", "backward", by=None if inside == "1" else inside))
        else:  # a factor of its own for each use, so all of it must be inside
            for use in self.uses:
                inside, out = factors[use]
                by = f"({inside})*({out})" if out != "1" else inside
                every.append(self.step("backward", f"backward_{use}", by=None if by == "1" else by, uses=[use]))
        if together and outside != "1" and self.chance(0.25):
            by = every[0].get("by", "1")
            every[0]["by"], outside = f"({by})*({outside})", "1"
        every[0]["name"] = "backward"
        return every, outside

    @staticmethod
    def factors_key(factors):
        return (
            tuple(text.replace("tokens.aux", "tokens") for text in factors) if isinstance(factors[0], str) else factors
        )

    # Reductions of one family.

    def geometry(self):
        rng, kind = self.rng, self.rng.choice(("parameter", "parameter", "rows", "flat", "flat", "bucket", "bucket"))
        if kind in ("parameter", "rows"):
            return {"kind": kind} if kind == "rows" or self.chance(0.5) else None
        if kind == "flat":
            return {
                "kind": kind,
                **({"align": rng.choice(("2*n", "lcm(n,4)", "n", "lcm(n,6)"))} if self.chance(0.5) else {}),
            }
        geometry = {"kind": "bucket"}
        if self.chance(0.8):
            geometry["align_parameter"] = rng.choice((1, 2, 4, 8))
        if self.chance(0.8):
            geometry["align_bucket"] = rng.choice(("n", "lcm(n,4)", "2*n", "lcm(n,6)"))
        if self.chance(0.5):
            geometry["size"] = rng.choice((4, 8, 16, "3*n"))
        if self.chance(0.3):
            names = [b.name for held in self.model.buffers for b in held]
            geometry["separate"] = rng.choice(([], [rng.choice(names)]))
        return geometry

    def scatter(self, family, params, axes):
        """A reduce_scatter, or one whose slices have any lengths."""
        over = self.over_axes(axes)
        if not self.chance(0.25):
            return self.step("reduce_scatter", params=params, over=over, geometry=self.geometry())
        geometry = self.counts(family, axes) if self.chance(0.7) else self.geometry()
        return self.step("reduce_scatter_v", params=params, over=over, geometry=geometry)

    def counts(self, family, axes):
        """Parts of every parameter, some members with none; the number of parts divides them all."""
        sizes = [b.numel for held in self.model.buffers for b in held if b.name in family.names]
        parts, n = math.gcd(*sizes), math.prod(self.mesh.size[axis] for axis in axes)
        ends = sorted(self.rng.randint(0, min(parts, 64)) for _ in range(n - 1))
        parts = parts if parts <= 64 else next(k for k in range(64, 0, -1) if parts % k == 0)
        ends = [0] + [min(end, parts) for end in ends] + [parts]
        if parts == 0:
            return None
        return {"kind": "counts", "counts": [after - before for before, after in zip(ends, ends[1:])]}

    def params(self, family):
        if len(self.families) == 1 and self.chance(0.8):
            return None
        if "tied" in repr(family.names) or len(family.names) > 2 or not self.chance(0.3):
            return list(family.names)
        others = [p["name"] for p in self.model.parameters if p["name"] not in family.names and not p.get("frozen")]
        return ["!" + name for name in others] or list(family.names)

    def over_axes(self, axes):
        """The axes as written: one as text, several as a list or as picks."""
        axes = [axis for axis in axes if self.mesh.size[axis] > 1 or self.chance(0.2)] or axes[:1]
        self.rng.shuffle(axes)
        if self.chance(0.15):
            return {axis: "all" for axis in axes}
        return axes[0] if len(axes) == 1 and self.chance(0.7) else axes

    def over_stages(self, family):
        pp = self.mesh.size["pp"]
        if len(family.stages) == pp and self.chance(0.5):
            return "pp"
        return {
            "pp": [
                0 if s == 0 and self.chance(0.5) else "first" if s == 0 else "last" if s == pp - 1 else s
                for s in family.stages
            ]
        }

    def all_reduce(self, family, axes, **keys):
        return self.step(
            "all_reduce", "all_reduce", params=self.params(family), over=self.over_axes(list(axes)), **keys
        )

    def maybe_average(self, step, steps, params):
        """An average in place of the sum, made good by a factor."""
        if step["op"] not in ("all_reduce", "reduce_scatter", "reduce_scatter_v", "reduce") or not self.chance(0.2):
            return
        step["reduce"] = "avg"
        over = step["over"]
        axes = [over] if isinstance(over, str) else over
        if isinstance(axes, dict) and any(pick != "all" for pick in axes.values()):
            step.pop("reduce")
            return
        steps.insert(steps.index(step), self.step("scale", "scale", params=params, by="*".join(axes)))

    def reduce_family(self, family):
        rng, steps = self.rng, []
        params = self.params(family)
        axes = list(family.reduced)
        large = [axis for axis in axes if self.mesh.size[axis] > 1] or axes[:1]
        stage_step = None
        if family.stages:
            stage_step = self.step("all_reduce", "stages_all_reduce", params=params, over=self.over_stages(family))
            if self.chance(0.6):
                steps.append(stage_step)
                stage_step = None
        style = rng.choice(
            (
                "all_reduce",
                "one_by_one",
                "scatter",
                "scatter",
                "scatter",
                "scatter_some",
                "gather",
                "hsdp",
                "root",
                "own",
                "twice",
            )
        )
        cut, owner_alone = [], []
        if style == "one_by_one":
            steps += [self.all_reduce(family, [axis]) for axis in large]
        elif style in ("scatter", "gather", "twice") or (style == "hsdp" and self.mesh.size["dp_replicate"] == 1):
            steps.append(self.scatter(family, params, axes))
            cut = axes
            if style == "gather":
                steps.append(self.step("all_gather", params=params, over=steps[-1]["over"], geometry=None))
                cut = []
        elif style == "scatter_some":
            rng.shuffle(large)
            k = rng.randint(1, len(large))
            scatter = self.step(
                "reduce_scatter", params=params, over=self.over_axes(large[:k]), geometry=self.geometry()
            )
            rest = (
                [self.all_reduce(family, large[k:], **({"on": "owned"} if self.chance(0.6) else {}))]
                if large[k:]
                else []
            )
            steps += [scatter] + rest if self.chance(0.6) else rest + [scatter]
            cut = large[:k]
            if self.chance(0.3) and rest and steps[-1] is not scatter:  # cut what is owned once more instead
                steps[-1].update(op="reduce_scatter", on="owned")
                cut = large
        elif style == "hsdp" and "dp" in axes:
            others = [axis for axis in large if axis != "dp"]
            steps += [self.all_reduce(family, others)] if others else []
            steps.append(self.step("reduce_scatter", params=params, over="dp_shard", geometry=self.geometry()))
            steps.append(
                self.step(
                    "all_reduce",
                    "replicate_all_reduce",
                    params=params,
                    over="dp_replicate",
                    on=rng.choice((None, "owned")),
                )
            )
            cut = ["dp_shard"]
        elif style == "root":
            root = rng.choice((0, {axis: rng.randrange(self.mesh.size[axis]) for axis in axes}, 0))
            steps.append(self.step("reduce", params=params, over=list(axes), root=root))
            owner_alone = [(axis, root[axis] if isinstance(root, dict) else 0) for axis in axes]
            if self.chance(0.3):
                steps.append(self.step("broadcast", params=params, over=list(axes), root=root))
                if self.chance(0.7):
                    steps.append(self.step("own", params=params, over=[]))
                    owner_alone = []
        else:
            steps.append(self.all_reduce(family, axes))
            if style == "own":
                steps.append(self.step("own", params=params, over=self.over_axes(axes), geometry=self.geometry()))
                cut = axes
        if stage_step:
            if cut and self.chance(0.5):
                stage_step["on"] = "owned"
            steps.append(stage_step)
        for step in list(steps):
            self.maybe_average(step, steps, params)
        self.count_in_norm(family, cut, owner_alone)
        return self.with_async(steps)

    def with_async(self, steps):
        result = []
        for i, step in enumerate(steps):
            result.append(step)
            if step["op"] in ("all_reduce", "reduce_scatter", "reduce", "all_gather", "scale") and self.chance(0.12):
                step["async"] = True
                wait = {"name": self.name("wait"), "op": "wait", "for": step["name"]}
                if self.chance(0.1):
                    wait.pop("name")
                steps.insert(i + 1, wait)
                if self.chance(0.2):  # something harmless in between
                    steps.insert(i + 1, self.step("all_to_all", over=self.random_over()))
        return result

    def count_in_norm(self, family, cut, owner_alone):
        conditions = [f"rank.{axis} == {at}" for axis, at in owner_alone]
        for axis in family.copies:
            if self.mesh.size[axis] == 1 or axis in cut or axis in [a for a, _ in owner_alone]:
                continue
            if axis == "dp" and "dp_shard" in cut:
                conditions.append("rank.dp_replicate == 0")
            else:
                conditions.append(f"rank.{axis} == {self.rng.choice((0, 'first'))}")
        if family.stages:
            conditions.append(f"rank.pp == {family.stages[0]}")
        self.norms.append(
            self.step(
                "norm",
                params=list(family.names),
                over=list(DENSE),
                buffer=self.result,
                count=" and ".join(conditions) or None,
            )
        )

    def clips(self):
        """Everything once, in one step or in one for each family."""
        if self.chance(0.6):
            return [self.step("clip", buffer=self.result, on=self.rng.choice((None, None, "owned")))]
        return [self.step("clip", params=list(family.names), buffer=self.result) for family in self.families]

    def random_over(self):
        rng = self.rng
        mesh = EXPERT if rng.random() < 0.3 and self.mesh.pipeline_groups_agree else DENSE
        large = [axis for axis in mesh if self.mesh.size[axis] > 1]
        if large and rng.random() < 0.85:
            mesh = large
        axes = rng.sample(mesh, min(len(mesh), rng.choice((1, 1, 2, 3))))
        if rng.random() < 0.25:
            return {
                axis: rng.choice(("all", ["first", "last"], [0])) if self.mesh.size[axis] > 1 else "all"
                for axis in axes
            }
        return axes[0] if len(axes) == 1 else axes

    # The whole.

    def make(self):
        rng, steps = self.rng, []
        self.result = rng.choice(("grad", "grad", "grad", "main_grad"))
        every, outside = self.backwards()
        if self.chance(0.2):
            every.insert(rng.randrange(len(every) + 1), self.step("all_to_all", over=self.random_over()))
        move = self.result != "grad" and self.chance(0.5)
        if move:  # gradients are collected in another buffer after each micro-batch
            every += [self.step("accumulate", **{"from": "grad", "to": self.result}), self.step("zero")]
        if self.batch.steps > 1 or self.chance(0.15):
            if not self.chance(0.06):
                steps.append(self.step("zero"))
                if self.result != "grad":
                    steps.append(self.step("zero", buffer=self.result))
        if self.chance(0.08):
            leftover = self.step(
                "leftover", what="parameter", per=rng.choice((None, "rank")), by=rng.choice((None, 2, "1/3"))
            )
            steps.insert(rng.randrange(len(steps) + 1), leftover)
        steps.append({"name": "each", "op": "each", "steps": every})
        if self.result != "grad" and not move:
            steps.append(self.step("copy", **{"from": "grad", "to": self.result}))
        self.buffer = self.result
        if outside != "1":
            steps.append(self.step("scale", by=outside))
        if self.chance(0.06):
            steps.append(
                self.step(
                    "broadcast",
                    over="tp",
                    root=rng.choice((0, {"tp": "last"})),
                    params=[
                        p["name"]
                        for p in self.model.parameters
                        if not p.get("shard") and not p.get("partial") and not p.get("dispatch") and not p.get("frozen")
                    ]
                    or None,
                )
            )
        rng.shuffle(self.families)
        for family in self.families:
            steps += self.reduce_family(family)
        if self.chance(0.45):
            steps += self.norms
            if self.chance(0.5):
                steps += self.clips()
        schedule = {"steps": steps}
        if self.result != "grad":
            schedule["result"] = self.result
        return schedule
