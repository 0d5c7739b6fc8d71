# SPDX-License-Identifier: Apache-2.0
"""Writes captured runs in plain Python, with the sketch and the hash as docs/sketch.md and docs/hash.md define them."""

import json
import random
import struct
from fractions import Fraction
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs"


def definitions(document):
    """The Python code of a document, run."""
    names = {}
    text = (DOCS / document).read_text(encoding="utf-8")
    exec(text.split("```python\n")[1].split("```")[0], names)  # the documents' own definitions, which tests hold against C++
    return names


SKETCH = definitions("sketch.md")["sketch"]
HASH = definitions("hash.md")["gradient_hash"]


class CapturedRun:
    """A run of data-parallel ranks that all own every parameter."""

    def __init__(self, folder, world=2, loss="local_mean", sums=64):
        self.folder, self.world, self.sums = Path(folder), world, sums
        self.folder.mkdir(parents=True, exist_ok=True)
        self.rows = [{} for _ in range(world)]
        self.lines = [[{"event": "run", "lockstep_capture": 1, "rank": rank, "world": world, "adapter": "by hand",
                        "versions": {"lockstep": "0.1.0"}, "sums": sums, "seed": 0,
                        "mesh": {"axes": ["dp"], "sizes": [world], "ranks": list(range(world))}, "data_axes": ["dp"],
                        "loss": loss}] for rank in range(world)]

    def parameter(self, identity, name, count):
        for lines in self.lines:
            lines.append({"event": "parameter", "id": identity, "name": name, "shape": [count], "dtype": "float32",
                          "frozen": False, "aliases": [], "pieces": [{"range": [0, count]}]})

    def tensor(self, rank, event, step, identity, values, **more):
        rows = self.rows[rank].setdefault(step, [])
        rows.append(SKETCH([float(value) for value in values], sums=self.sums))
        self.lines[rank].append({"event": event, "step": step, **more, "parameter": identity, "piece": 0,
                                 "row": len(rows) - 1, "hash": HASH("float32", [float(value) for value in values]),
                                 "dtype": "float32", "nonfinite": 0})

    def step(self, rank, step, micro_batches, tokens=None):
        self.lines[rank].append({"event": "step", "step": step, "micro_batches": micro_batches,
                                 "tokens": tokens or [None] * micro_batches})

    def write(self):
        for rank, lines in enumerate(self.lines):
            lines = [*lines, {"event": "end", "steps": len(self.rows[rank]), "seconds": 0.5, "overhead": 0.1}]
            text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
            (self.folder / f"rank-{rank:05}.jsonl").write_text(text)
            for step, rows in self.rows[rank].items():
                data = b"".join(struct.pack("<d", value) for row in rows for value in row)
                header = json.dumps({"sketches": {"dtype": "F64", "shape": [len(rows), self.sums],
                                                  "data_offsets": [0, len(data)]}}).encode()
                header += b" " * (-len(header) % 8)
                (self.folder / f"rank-{rank:05}.step-{step:05}.safetensors").write_bytes(
                    struct.pack("<Q", len(header)) + header + data)


def whole_numbers(seed, count):
    """Small whole numbers, so that halves and quarters of their sums are float32 exactly."""
    generator = random.Random(seed)
    return [generator.randint(-512, 511) for _ in range(count)]


def simple_run(folder, coefficient, parameters=(("embedding.weight", 200), ("layers.0.norm.weight", 96), ("layers.1.norm.weight", 96)),
               micro_batches=2, noise=lambda element: 0, **settings):
    """Two ranks, one optimizer step; `coefficient(name, rank, micro_batch)` is a Fraction, and `noise` the relative error of a result's element."""
    run = CapturedRun(folder, **settings)
    for identity, (name, count) in enumerate(parameters):
        run.parameter(identity, name, count)
    for identity, (name, count) in enumerate(parameters):
        gradients = {(rank, m): whole_numbers(f"{name} {rank} {m}", count) for rank in range(run.world) for m in range(micro_batches)}
        for (rank, m), values in gradients.items():
            run.tensor(rank, "contribution", 0, identity, values, micro_batch=m)
        total = [sum(Fraction(coefficient(name, rank, m)) * values[i] for (rank, m), values in gradients.items()) * (1 + noise(i)) for i in range(count)]
        for rank in range(run.world):
            run.tensor(rank, "result", 0, identity, total)
    for rank in range(run.world):
        run.step(rank, 0, micro_batches)
    run.write()
    return run
