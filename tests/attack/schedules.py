# SPDX-License-Identifier: Apache-2.0
"""Schedules that are right, in the styles of real frameworks, and what an adversary does to them."""

LARGE = 2**10 * 3**2 * 5**2 * 7 * 11 * 13  # elements that nearly every size divides
EXTENTS = (5040, 720720, 50257, 1_000_003, 12_582_912)
SMALL = (4, 7, 13, 64, 100, 200)  # of which many ranks hold nothing
# What frameworks round to: Megatron's 64, 128 and 65536, DeepSpeed's 2 * n, and what does not divide them.
ALIGNMENTS = ("n", "2*n", "lcm(n, 128)", "lcm(n, 64)", "lcm(n, 12)", "lcm(n, 2*n)", "128*n", "1", "max(n, 128)", "64", "dp", "lcm(n, dp)")
PARAMETER_ALIGNMENTS = (1, 1, 2, 4, 8, 64, 128, "n", "2*n", "8*n", "lcm(n, 8)", "dp")
# Bucket sizes of Megatron (40 million, a million for each rank), DeepSpeed (5e8) and DDP (25 MiB of float32), and small ones.
BUCKETS = (40_000_000, 500_000_000, 6_553_600, 1000, 64, "max(40000000, 1000000 * dp)", "100 * n", "dp * 1000", "3 * n")


class Maker:
    """The steps of one scenario, for `data` axes that split the tokens, and the parameters as they are placed."""

    def __init__(self, draw, speller, axes, model, batch, framework):
        self.random, self.coordinate = draw.random, draw.coordinate
        self.speller, self.axes, self.model, self.batch, self.framework = speller, axes, model, batch, framework
        self.data = [axis for axis in axes if axis in ("dp", "cp", "sp", "dp_shard", "dp_replicate")] or ["dp"]
        self.count, self.edits = 0, []

    def chance(self, probability):
        return self.random.random() < probability

    def one_of(self, *choices):
        return self.random.choice(choices)

    def step(self, op, **keys):
        self.count += 1
        return {"name": f"{op}_{self.count}", "op": op, **{key: value for key, value in keys.items() if value is not None}}

    # What is right

    def inside_and_outside(self):
        """The factors that make the loss of one device: in backward, and behind the reduction."""
        loss = self.batch.get("loss", "token_mean")
        total = ", ".join([*self.counted(), "micro_batch"])
        ranks = "*".join(self.counted())
        if isinstance(loss, dict):
            return loss["weight"], "1"
        if loss == "token_mean":
            return "1", f"1/sum(tokens, {total})"
        if loss == "micro_batch_mean":
            local = [axis for axis in self.counted() if axis in ("cp", "sp")]
            others = "*".join(["micro_batches", *(axis for axis in self.counted() if axis not in local)])
            return (f"1/sum(tokens, {', '.join(local)})" if local else "1/tokens"), f"1/({others})"
        return ("1/tokens", f"1/(micro_batches*{ranks})") if loss == "local_mean" else ("1", "1")

    def counted(self):
        """The axes that split the tokens, dp as a whole or by its parts."""
        return list(dict.fromkeys("dp" if axis.startswith("dp_") else axis for axis in self.data))

    def geometry(self):
        kind = self.one_of("parameter", "rows", "flat", "flat", "bucket", "bucket")
        geometry = {"kind": kind}
        if kind == "flat" and self.chance(0.5):
            geometry["align"] = self.random.choice(ALIGNMENTS)
        if kind == "bucket":
            if self.chance(0.7):
                geometry["align_parameter"] = self.random.choice(PARAMETER_ALIGNMENTS)
            if self.chance(0.7):
                geometry["align_bucket"] = self.random.choice(ALIGNMENTS)
            if self.chance(0.4):
                geometry["size"] = self.random.choice([size for size in BUCKETS if "dp" not in str(size) or "dp" in self.axes])
            if self.chance(0.2):
                geometry["separate"] = [self.random.choice(self.model)["name"]]
        return geometry

    def reduction(self, params, over, reduce):
        """Steps after which every rank, or the owner of every element, holds the sum (the average) over these axes."""
        style = self.one_of("all_reduce", "all_reduce", "scatter", "scatter", "gather", "own", "one by one", "root", "hybrid")
        over = list(over)
        self.random.shuffle(over)
        keys = {"params": params, "reduce": reduce}
        if style == "one by one":
            return [self.step("all_reduce", over=axis, **keys) for axis in over]
        if style == "hybrid" and len(over) > 1:
            first = self.step("reduce_scatter", over=over[0], geometry=self.geometry() if self.chance(0.5) else None, **keys)
            return [first, *(self.step(self.one_of("all_reduce", "reduce_scatter"), over=axis, on="owned", **keys) for axis in over[1:])]
        if style == "own":
            return [self.step("all_reduce", over=over, **keys), self.step("own", over=self.one_of(over, over[0]), params=params, geometry=self.geometry())]
        if style == "root":
            return [self.step("reduce", over=over, root=0, **keys), self.step("broadcast", over=over, root=0, params=params)]
        if style in ("scatter", "gather"):
            steps = [self.step("reduce_scatter", over=over, geometry=self.geometry(), **keys)]
            return steps + ([self.step("all_gather", over=over, params=params)] if style == "gather" else [])
        return [self.step("all_reduce", over=over, **keys)]

    def right(self):
        """A schedule that is right wherever it is allowed."""
        inside, outside = self.inside_and_outside()
        backward = self.step("backward", by=inside if inside != "1" else None)
        backward["name"] = "backward"
        body, after = [backward], []
        average = None
        denominator = "*".join(self.data)
        if outside == f"1/(micro_batches*{'*'.join(self.counted())})" and self.chance(0.4) and "micro" not in inside:
            average, outside = "avg", "1/micro_batches"
        scale = [self.step("scale", by=outside)] if outside != "1" else []
        early = self.chance(0.3)
        after += scale if early else []
        groups = {}
        for parameter in self.model:
            groups.setdefault(repr(key_of(parameter)), []).append(parameter)
        for members in groups.values():
            names = [parameter["name"] for parameter in members]
            params = None if len(groups) == 1 else names
            partial = members[0].get("partial", [])
            partial = partial["then"] if isinstance(partial, dict) else partial
            over = ["edp"] if "dispatch" in members[0] else [*self.data, *(axis for axis in partial if axis not in self.data)]
            if average and (partial or over != self.data):
                for axis in over:
                    after.append(self.step("all_reduce", params=params, over=axis, reduce="avg" if axis in self.data else None))
                if "dispatch" in members[0]:
                    after.append(self.step("scale", params=params, by=f"1/({denominator})"))
            else:
                after += self.reduction(params, over, average)
            if members[0].get("stage") == "all":
                after.append(self.step("all_reduce", params=params, over="pp"))
            if "tied" in members[0]:
                after.append(self.step("all_reduce", params=params, over={"pp": ["first", "last"]}))
        after += [] if early else scale
        if self.chance(0.25):
            after.append(self.step("norm", over=list(dict.fromkeys([*self.data, *(axis for axis in self.axes if axis in ("tp", "pp"))])), count=self.one_of(None, None, "rank.tp == 0", "rank.dp == 0")))
        steps = [self.step("zero")] if self.chance(0.7) or self.batch.get("steps", 1) > 1 else []
        return steps + [{"name": "each", "op": "each", "steps": body}, *after]

    # What an adversary does

    def somewhere(self, steps, step):
        """Puts a step anywhere behind backward."""
        first = next(i for i, one in enumerate(steps) if one["op"] == "each")
        if self.chance(0.1):
            steps[first]["steps"].append(step)
            return
        steps.insert(self.random.randint(first + 1, len(steps)), step)

    def under(self, step, condition, ranks):
        """The step under a condition, which is said in one of the ways that the language has."""
        if not ranks and self.framework and self.chance(0.6):
            return {"if": condition, "then": step}
        if not ranks and self.framework and self.chance(0.3) and step["op"] == "scale":
            return {**step, "by": {"if": condition, "then": step["by"], "else": "1"}}
        return {**step, "when": condition}

    def some_params(self):
        names = [parameter["name"] for parameter in self.model]
        choices = [None, None, None, [self.random.choice(names)], [self.random.choice(names)], ["!" + self.random.choice(names)]]
        choices += [["*"]]
        for key, selector in (("tags", "tag:q"), ("shard", "shard:*"), ("tied", "tied:*")):
            if any(key in parameter for parameter in self.model):
                choices.append([selector])
        if self.framework:  # elsewhere one that chooses nothing is an error
            choices.append([f"numel{self.one_of('>', '<', '==', '<=')}{self.random.choice((*SMALL, 1000, LARGE // self.speller.number()))}"])
        return self.random.choice(choices)

    def at_coordinates(self, axis, steps, numbers):
        """The steps on the ranks with these coordinates alone; a framework has them where there are such ranks."""
        found = []
        for step, number in zip(steps, numbers, strict=True):
            step = {**step, "only": {axis: self.one_of(number, [number])}}
            needed = number + 1 if number >= 0 else -number
            found.append({"if": f"{axis} >= {needed}", "then": step} if self.framework and needed > 1 else step)
        return found

    def attack(self, steps):
        """Changes the steps in one of many ways."""
        speller = self.speller
        way = self.random.randrange(21)
        by = self.one_of("2", "3/2", "dp", "1/3", "0", "micro_batches", "5")
        if way < 5:
            ranks = way >= 3
            one, other = speller.pair_of_ranks() if ranks else speller.pair_of_sizes()
            params = self.some_params()
            twice, half = self.step("scale", by="2", params=params), self.step("scale", by="1/2", params=params)
            if ranks and self.chance(0.4):
                axis = self.random.choice(self.axes)
                one, other = None, None
                numbers = self.coordinate(axis), self.coordinate(axis)
                if self.framework:
                    numbers = self.one_of((0, -1), (1, -1), (1, -2), (speller.number(), -1), (speller.number(), -speller.number()), (2, 2), (-2, -2))
                twice, half = self.at_coordinates(axis, (twice, half), numbers)
            steps_of = [self.under(step, condition, ranks) if condition else step for step, condition in ((twice, one), (half, other))]
            self.random.shuffle(steps_of)
            for step in steps_of:
                self.somewhere(steps, step)
        elif way < 8:
            ranks = way == 7
            condition = speller.of_ranks() if ranks else speller.of_sizes()
            self.somewhere(steps, self.under(self.step("scale", by=by, params=self.some_params()), condition, ranks))
        elif way < 10:
            self.somewhere(steps, self.step("scale", by=speller.factor(), params=self.some_params()))
        elif way == 10:  # a step of the right ones under a condition
            at = self.random.randrange(len(steps))
            if "op" in steps[at] and steps[at]["op"] not in ("each", "zero"):
                steps[at] = self.under(steps[at], speller.of_sizes(), False)
        elif way == 11 and self.framework:  # another op, other axes or another cut at some sizes
            for step in steps:
                if step.get("op") in ("all_reduce", "reduce_scatter") and isinstance(step.get("over"), (list, str)):
                    condition = speller.of_sizes()
                    other = self.one_of("op", "over", "geometry", "reduce")
                    if other == "op" and "on" not in step:
                        step["op"] = {"if": condition, "then": step["op"], "else": "all_reduce"}
                        step["geometry"] = {"if": condition, "then": step["geometry"]} if "geometry" in step else None
                        if step["geometry"] is None:
                            step.pop("geometry")
                    elif other == "over":
                        step["over"] = {"if": condition, "then": step["over"], "else": self.one_of(self.data[0], self.data, [*self.data, "pp"][:1])}
                    elif other == "reduce":
                        step["reduce"] = {"if": condition, "then": step.get("reduce", "sum"), "else": self.one_of("sum", "avg")}
                    elif step["op"] == "reduce_scatter":
                        step["geometry"] = {"if": condition, "then": step.get("geometry", {"kind": "parameter"}), "else": self.geometry()}
                    break
        elif way == 12:  # cuts that meet
            axis = self.one_of(self.data, self.data[0])
            self.somewhere(steps, self.step(self.one_of("own", "own", "reduce_scatter"), over=axis, geometry=self.geometry(), params=self.some_params()))
        elif way == 13:
            axis = self.random.choice(self.axes)
            root = self.one_of(0, max(self.coordinate(axis), 0), {axis: self.coordinate(axis)})
            op = self.one_of("broadcast", "broadcast", "reduce")
            over = axis
            if isinstance(root, int) and self.chance(0.4):
                over, root = list(self.data), self.random.randrange(len(self.data))
            self.somewhere(steps, self.step(op, over=over, root=root, params=self.some_params()))
        elif way == 14:
            axis = self.random.choice(self.axes)
            picks = self.one_of([0, -1], ["first", "last"], [0, self.coordinate(axis)], [self.coordinate(axis), -1])
            self.somewhere(steps, self.step("all_reduce", over={axis: picks}, reduce=self.one_of("avg", "sum"), params=self.some_params()))
        elif way == 15:
            self.somewhere(steps, self.step("norm", over=self.one_of(self.axes, self.data, [self.axes[0]], []), count=self.one_of(None, speller.of_ranks(), speller.of_sizes())))
        elif way == 16:
            leftover = self.step("leftover", what="noise", per=self.one_of(None, "rank"), by=self.one_of(None, speller.factor() + " - 1"))
            self.somewhere(steps, self.under(leftover, speller.of_sizes() if self.chance(0.7) else speller.of_ranks(), True))
        elif way == 17:  # a collective of some ranks of the other axes
            others = [axis for axis in self.axes if axis not in self.data] or self.axes
            step = self.step("all_reduce", over=self.one_of(self.data[0], self.data), reduce="avg", params=self.some_params())
            axis = self.random.choice(others)
            self.somewhere(steps, {**step, "when": speller.coordinate(axis, self.one_of(0, 1, -1, -2, speller.number()))})
        elif way == 18:  # something in flight, and a wait that comes at some sizes
            at = self.random.randrange(len(steps))
            step = steps[at]
            if step.get("op") in ("all_reduce", "reduce_scatter", "broadcast", "scale"):
                wait = {"op": "wait", "for": step["name"]}
                step["async"] = True
                if self.chance(0.5):
                    wait = self.under(wait, speller.of_sizes() if self.chance(0.7) else speller.of_ranks(), not self.framework)
                steps.insert(self.random.randint(at + 1, min(at + 2, len(steps))), wait)
        elif way == 19:
            edits = [{"set": step["name"], "when": self.one_of(speller.of_ranks(), speller.plain_of_sizes())} for step in steps if step.get("op") == "scale"]
            edits += [{"insert": self.step("scale", by=self.one_of("2", "dp / dp")), "after": step["name"]} for step in steps if "op" in step and step["op"] != "wait"]
            edits += [{"drop": step["name"]} for step in steps if step.get("op") in ("scale", "zero", "all_reduce")]
            self.edits += [self.random.choice(edits)] if edits else []
        else:
            self.somewhere(steps, self.step(self.one_of("copy", "accumulate"), **{"from": "grad", "to": self.one_of("main", "grad")}, params=self.some_params(), when=self.one_of(None, speller.of_sizes())))


def key_of(parameter):
    """Parameters of one key are reduced together."""
    return sorted(parameter.get("shard", {})), parameter.get("partial", []), "dispatch" in parameter, parameter.get("tied"), parameter.get("stage", 0) == "all"
