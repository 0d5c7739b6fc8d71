# SPDX-License-Identifier: Apache-2.0
"""Writes extractions in plain Python, event by event, as docs/extract.md defines them."""

import json


class Program:
    """The program of some ranks, [first, end) intervals; of them `played` were run, or all."""

    def __init__(self, *ranks, played=None):
        self.ranks = [list(interval) for interval in ranks]
        self.played = played or [rank for first, end in ranks for rank in range(first, end)]
        self.events, self.sources, self.parameters = [], 0, {}

    def add(self, event, **keys):
        self.events.append({"event": event, **keys})
        return self

    def parameter(self, name, *shape, pieces=None, **more):
        count = 1
        for size in shape:
            count *= size
        self.parameters[name] = len(self.parameters), count
        return self.add("parameter", id=self.parameters[name][0], name=name, shape=list(shape), dtype="float32", frozen=False,
                        pieces=pieces or [{"range": [0, count]}], **more)

    def source(self):
        self.sources += 1
        return self.sources - 1

    def contribution(self, name, step=0, micro_batch=0, piece=0, elements=None, **more):
        """Returns its source."""
        number, count = self.parameters[name]
        source = self.source()
        self.add("contribution", step=step, micro_batch=micro_batch, parameter=number, piece=piece, source=source,
                 elements=count if elements is None else elements, **more)
        return source

    def call(self, op, elements, content=None, output=None, step=0, group=None, **more):
        """Returns the source that it defines: `output` elements; None where it defines none."""
        keys = {"op": op, "elements": elements, "dtype": "float32", "step": step, "micro_batch": None, "reduce": None}
        if op not in ("send", "recv"):
            keys["group"] = group or {"axes": ["dp"]}
        keys.update(more)
        if content is not None:
            keys["input"] = content
        source = None
        if output is not None:
            source = self.source()
            keys["output"] = {"source": source, "elements": output}
        self.add("collective", **keys)
        return source

    def result(self, name, content, step=0, piece=0, **more):
        return self.add("result", step=step, parameter=self.parameters[name][0], piece=piece, content=content, **more)

    def square(self, name, step=0):
        """Returns its source."""
        source = self.source()
        self.add("square", step=step, parameter=self.parameters[name][0], source=source, elements=1)
        return source

    def norm(self, *terms, names=None, step=0, call="train.py:20 in main"):
        """Its square, a sum of terms, [coefficient, source, offset]."""
        numbers = [number for name, (number, _) in self.parameters.items() if names is None or name in names]
        return self.add("norm", step=step, parameters=numbers, content=[[0, 1, list(terms)]], call=call)

    def step(self, step=0, micro_batches=1, tokens=None, **more):
        return self.add("step", step=step, micro_batches=micro_batches, tokens=tokens or [None] * micro_batches, **more)

    def end(self, **more):
        return self.add("end", steps=sum(event["event"] == "step" for event in self.events), **more)


def extraction(*programs, axes=None, data_axes=None, loss="local_mean", **more):
    axes = axes or {"dp": sum(end - first for program in programs for first, end in program.ranks)}
    world = 1
    for size in axes.values():
        world *= size
    return {"lockstep_extract": 1, "versions": {"lockstep": "0.1.0"}, "command": ["train.py"], "adapter": "by hand",
            "world": world, "mesh": {"axes": list(axes), "sizes": list(axes.values())},
            "data_axes": data_axes or [axis for axis in axes if axis.startswith("dp")], "loss": loss,
            "programs": [{"ranks": program.ranks, "played": program.played, "events": program.events}
                         for program in programs], **more}


def write(path, *programs, **more):
    path.write_text(json.dumps(extraction(*programs, **more), indent=1))
    return str(path)


def ddp(*ranks, factor="1/2", names=("weight", "bias"), count=8, micro_batches=1, played=None, call="train.py:9 in main"):
    """Contributions of all micro-batches added up, all-reduced as a sum in one bucket, times a factor."""
    program = Program(*ranks, played=played)
    for name in names:
        program.parameter(name, count)
    content = []
    for place, name in enumerate(names):
        terms = [["1", program.contribution(name, micro_batch=number), 0] for number in range(micro_batches)]
        content.append([place * count, count, terms])
    reduced = program.call("all_reduce", count * len(names), content, count * len(names), reduce="sum", call=call,
                           **{"async": True, "parameters": list(range(len(names)))})
    for place, name in enumerate(names):
        program.result(name, [[0, count, [[factor, reduced, place * count]]]])
    return program.step(micro_batches=micro_batches).end()
