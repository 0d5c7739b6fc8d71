# SPDX-License-Identifier: Apache-2.0
"""A scenario, with a framework and a model file where it has them, drawn from a seed: right, or nearly, or at some sizes."""

import random

from conditions import Speller
from schedules import EXTENTS, LARGE, SMALL, Maker

ORDERS = ("tp-cp-sp-ep-dp-pp", "tp-cp-sp-dp-ep-pp", "dp-tp-cp-sp-ep-pp", "pp-tp-cp-sp-ep-dp", "cp-tp-sp-ep-pp-dp", "tp-dp-pp-cp-sp-ep", "sp-cp-dp-ep-tp-pp")
LOSSES = ("token_mean", "token_mean", "micro_batch_mean", "local_mean", "local_mean", "sum", "sum")


class Draw:
    def __init__(self, seed, unnamed=False):
        """`unnamed`: the layout names some of the axes that the schedule speaks of, and none is "any"."""
        self.random = random.Random(f"lockstep attack {seed}")
        self.hidden = random.Random(f"lockstep attack, what a layout does not name {seed}")
        self.unnamed = unnamed
        self.name = f"s{seed}"
        self.framework = self.chance(0.6)
        self.has_model_file = self.chance(0.25)
        self.layout, self.axes = self.layout_and_axes()
        self.speller = Speller(self.random, self.axes, self.framework)
        self.parameters = self.draw_parameters()
        self.batch = self.draw_batch()
        maker = Maker(self, self.speller, self.axes, self.parameters, self.batch, self.framework)
        steps = maker.right()
        for _ in range(self.random.choice((0, 1, 1, 1, 2, 2, 3))):
            maker.attack(steps)
        self.steps, self.edits = steps, maker.edits

    def chance(self, probability):
        return self.random.random() < probability

    def one_of(self, *choices):
        return self.random.choice(choices)

    def layout_and_axes(self):
        """The layout as written, and the axes that the schedule speaks of."""
        style = self.random.choice(("dense", "dense", "dense", "dense", "parts", "experts"))
        if style == "parts":
            axes = ["dp_shard", "dp_replicate", *(axis for axis in ("tp", "cp", "pp") if self.chance(0.25))]
        elif style == "experts":
            axes = ["dp", "ep", *(axis for axis in ("tp", "pp") if self.chance(0.3))]
        else:
            axes = [axis for axis, probability in (("dp", 0.9), ("tp", 0.3), ("pp", 0.35), ("cp", 0.3), ("sp", 0.15)) if self.chance(probability)] or ["dp"]
        self.random.shuffle(axes)
        given = self.chance(0.75) and not self.unnamed  # else all that it names is open
        layout = {axis: "any" if given and (axis != "ep" or self.chance(0.7)) else self.one_of(2, 2, 3, 4, 6, 8, 14) for axis in axes}
        if not given and "ep" in layout:
            layout["dp"] = layout["ep"] * self.one_of(1, 2)
        if given and "ep" in layout and layout["ep"] != "any":
            layout["dp"] = layout["ep"] * 2
        if given and len(axes) > 1 and self.chance(0.3) and "ep" not in layout:
            layout[self.random.choice(axes)] = self.one_of(2, 3, 4, 8)  # the others stay as they are
        if "ep" in layout and "tp" in layout:
            layout["etp"] = layout["tp"]
        if self.chance(0.15):
            layout["order"] = self.random.choice(ORDERS)
        if self.chance(0.1):
            layout["sequence_parallel"] = True
        if "dp_shard" in layout and self.chance(0.2):  # an expert mesh that only conditions speak of
            layout["ep"] = layout["dp_replicate"] = self.one_of(2, 3, 4, 16)
        if "pp" in layout and self.chance(0.1):
            layout["virtual_stages"] = 2
        if not given:
            self.hide(layout)
        return layout, axes

    def hide(self, layout):
        """Leaves axes out of a layout, but one."""
        may = [axis for axis in ("tp", "cp", "sp", "ep", "pp", *(() if "ep" in layout else ("dp", "dp_shard", "dp_replicate"))) if axis in layout]
        if not self.unnamed and self.hidden.random() < 0.5:
            return
        self.hidden.shuffle(may)
        for axis in may[: self.hidden.randrange(1, len(may)) if len(may) > 1 else 0]:
            for key in {"tp": ("tp", "etp"), "pp": ("pp", "virtual_stages")}.get(axis, (axis,)):
                layout.pop(key, None)

    def coordinate(self, axis):
        """A coordinate that the layout as written has; a few of an open axis."""
        size = self.layout.get(axis, 1)
        return self.one_of(0, -1) if size == "any" else self.one_of(0, -1, self.random.randrange(size), -1 - self.random.randrange(size))

    def draw_parameters(self):
        parameters = []
        for number in range(self.one_of(1, 1, 2, 2, 3)):
            shape = [LARGE] if self.chance(0.5) else self.one_of([self.random.choice(SMALL)], [self.random.choice(EXTENTS)], [LARGE, 3], [3, LARGE], [])
            parameter = {"name": self.one_of("w", "layers.{}.w".format(number), "norm") + str(number), "shape": shape}
            if "tp" in self.axes and shape and shape[0] == LARGE and self.chance(0.4):
                parameter["shard"] = {"tp": 0}
            elif self.chance(0.3) and set(self.axes) & {"tp", "cp"}:
                parameter["partial"] = [axis for axis in ("tp", "cp") if axis in self.axes][:1]
            if "tp" in self.axes and shape and "shard" not in parameter and "partial" not in parameter and self.chance(0.06):
                parameter["shard"] = {"tp": {"dim": 0, "uneven": True}}
            if "pp" in self.axes:
                stage = self.one_of(0, 0, -1, -1, "all", self.coordinate("pp"))
                if stage:
                    parameter["stage"] = stage
            if self.chance(0.2):
                parameter["tags"] = ["q"]
            if self.chance(0.1):
                parameter["dtype"] = "bfloat16"
            if self.chance(0.05):
                parameter["micro_batches"] = [0]
            if self.chance(0.05):
                axis = self.random.choice(self.axes)
                parameter["only"] = {axis: [0, self.coordinate(axis)]}
            parameters.append(parameter)
        if "pp" in self.axes and self.chance(0.25):
            for number, stage in ((8, 0), (9, -1)):
                parameters.append({"name": f"embedding{number}", "shape": [LARGE], "stage": stage, "tied": "e"})
        if "ep" in self.axes:
            expert = {"name": "expert", "shape": [LARGE], "shard": {"ep": 0}, "dispatch": ["ep"], "tags": ["expert"]}
            parameters.append(expert)
        return parameters

    def draw_batch(self):
        batch = {"micro_batches": self.one_of(1, 1, 2, 2, 3, "any"), "tokens": self.one_of("even", "even", "uneven"), "loss": self.random.choice(LOSSES)}
        if self.chance(0.1):
            batch["steps"] = 2
        if self.chance(0.1):
            batch["loss"] = {"weight": self.one_of("1/3", "1/(dp*micro_batches)", "dp", "world", "1/tokens", self.plain(self.speller.factor))}
        return batch

    def model_file(self):
        """The parameters as a model file, some of them with what depends on sizes."""
        parameters = []
        for parameter in self.parameters:
            parameter = dict(parameter)
            way = self.random.randrange(14)
            condition = self.plain(self.speller.of_sizes)
            if way == 0 and "partial" in parameter:
                parameter["partial"] = {"if": condition, "then": parameter["partial"]}
            elif way == 1:
                parameter["tags"] = [{"if": condition, "then": "q"}]
            elif way == 2:
                parameter["when"] = condition
            elif way == 3 and parameter["shape"]:
                extent = self.one_of(f"{LARGE} * tp", "64 * tp * ceil(1000 / (64 * tp))", "k * ceil(50257 / k)", f"{LARGE} * min(dp, 4)", "1000 * dp", f"ceil(50257 / (128 * tp)) * 128 * tp * {LARGE}")
                parameter["shape"] = [extent, *parameter["shape"][1:]]
            elif way == 4 and "pp" in self.axes:
                parameter["stage"] = self.one_of("floor(pp / 2)", "pp - 1", "min(pp, 5) - 1", "floor(3 * pp / 4)")
            elif way == 5:
                parameter["tags"] = [self.one_of("q{dp}", "q{k}", "t{micro_batches}")]
            elif way == 6 and "shard" in parameter and "dispatch" not in parameter:
                parameter["shard"] = {"if": condition, "then": parameter["shard"]}
            parameters.append(parameter)
        if "pp" in self.axes and self.chance(0.4):
            blocks = {"name": "block.{i}", "shape": [LARGE], "stage": "stage", "chunk": "chunk"}
            deal = {"for": {"i": "layers", "stage": "pp", "chunk": "virtual_stages"}, "when": self.one_of("floor(i * blocks / layers) == chunk * pp + stage",
                    "floor(i * blocks / layers) == chunk * pp + stage", "i == stage", "floor(i / ceil(layers / pp)) == stage and chunk == 0"), "parameters": [blocks]}
            parameters.append(deal)
        return {"lockstep_model": 1, "name": "own", "sizes": {"layers": {"default": self.one_of(4, 12, 13, 60)}, "k": {"default": self.one_of(1, 4, 128)}},
                "let": {"blocks": "pp * virtual_stages"}, "parameters": parameters}

    def plain(self, spell):
        """Spelled without names of the framework's file."""
        framework, self.speller.framework = self.speller.framework, False
        text = spell()
        self.speller.framework = framework
        return text

    def rules(self):
        """Rules that refuse some sizes, some of them only together."""
        rules = []
        while self.chance(0.15):
            axis, other, number = self.random.choice(self.axes), self.random.choice(self.axes), self.speller.number()
            refuse = self.one_of(f"{axis} == {number}", f"{axis} > {number}", f"{axis} < {number} and {other} < {self.speller.number()}", f"{axis} == 1 and {other} < 4",
                                 f"{axis} * {other} > {number * 4}", f"micro_batches < {axis}", f"{axis} / {number} != floor({axis} / {number})", self.speller.of_sizes())
            rules.append({"refuse": refuse, "because": "These sizes are refused."})
        return rules

    def files(self):
        """{name: document}; the scenario is the first."""
        scenario = {"lockstep": 1, "layout": self.layout, "model": {"parameters": self.parameters}, "batch": self.batch, "schedule": {"steps": self.steps}}
        found = {f"{self.name}.json": scenario}
        if self.has_model_file:
            found[f"{self.name}.model.jsonc"] = self.model_file()
            scenario["model"] = {"preset": f"./{self.name}.model.jsonc"}
        if self.edits:
            scenario["schedule"]["edits"] = self.edits
        if not self.framework:
            return found
        own = {"lockstep_framework": 1, "name": "own"}
        rules = self.rules()  # which may speak of options and names
        options = {name: {"type": "integer", "default": value if self.chance(0.6) else 1} for name, value in self.speller.options.items()}
        given = {name: value for name, value in self.speller.options.items() if options[name]["default"] != value}
        own.update({"options": options} if options else {})
        own.update({"let": self.speller.lets} if self.speller.lets else {})
        own.update({"rules": rules} if rules else {})
        if self.chance(0.1) and isinstance(self.batch.get("loss"), str):
            own["batch"] = {"loss": {"if": self.plain(self.speller.of_sizes), "then": self.batch.pop("loss"), "else": self.random.choice(LOSSES)}}
        own["steps"] = self.steps
        found[f"{self.name}.framework.jsonc"] = own
        scenario["schedule"] = {"framework": f"./{self.name}.framework.jsonc", **({"options": given} if given else {}), **({"edits": self.edits} if self.edits else {})}
        return found
