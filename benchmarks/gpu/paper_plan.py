#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""benchmarks/gpu/paper_plan.py LOCKSTEP [--write]: the tables of docs/gpu.md on several GPUs, computed and not measured.

Groups, buckets and parameters are those that `lockstep show -f json` prints; ranks are shared out to GPUs as the engines do
(src/device/folding.h); what a collective sends is what a ring sends, and what it takes is what the bandwidths below allow.
--write puts the tables into docs/gpu.md."""

import argparse
import collections
import json
import subprocess
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = ROOT / "docs" / "gpu.md"
BEGIN, END = "<!-- printed by benchmarks/gpu/paper_plan.py -->", "<!-- end of what is printed -->"

# What is assumed, in bytes a second, in one direction, per GPU. docs/gpu.md says where the published figures are from.
NVLINK = 450e9       # 900 GB/s in both directions together
INFINIBAND = 50e9    # 400 Gb/s
MEMORY = 3.35e12
REACHED = 0.80       # of a link, as bus bandwidth
REACHED_MEMORY = 0.85  # of the memory's, the goal of tools/bench-gpu
HOST = 8             # GPUs that NVLink joins
BLOCK = 4 << 30      # in which blocks are counted; with more than 64 buffers that meet on a GPU the engine takes more

MICRO_BATCHES = 16
SCENARIOS = {"tp 8 × pp 16 × dp 128": {"tp": 8, "pp": 16, "dp": 128},
             "tp 8 × cp 16 × pp 16 × dp 8": {"tp": 8, "cp": 16, "pp": 16, "dp": 8}}
GPUS = [8, 128, 2048, 16384]
BYTES = {"float32": 4, "float64": 8, "bfloat16": 2, "float16": 2}


def factor(op, n):
    """Bytes that each of n ranks of a ring sends, for each byte of the whole buffer; nccl-tests' factor of the bus bandwidth."""
    return {"all_reduce": 2 * (n - 1) / n, "reduce_scatter": (n - 1) / n, "all_gather": (n - 1) / n, "broadcast": 1, "reduce": 1}[op]


def process_of(rank, ranks, processes):
    """Contiguous, and as evenly as can be."""
    return ((rank + 1) * processes - 1) // ranks


def show(program, layout):
    document = {"lockstep": 1, "name": "405b", "layout": {**layout, "sequence_parallel": True}, "model": {"preset": "llama3-405b"},
                "batch": {"micro_batches": MICRO_BATCHES},
                "schedule": {"framework": "megatron", "options": {"use_distributed_optimizer": True, "overlap_grad_reduce": True}}}
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(document, file)
        file.flush()
        return json.loads(subprocess.run([program, "show", "-f", "json", file.name], capture_output=True, text=True, check=True).stdout)


class Plan:
    """The collectives of a scenario: (op, ranks, bytes of the whole buffer on a rank), and the elements of each rank."""

    def __init__(self, shown):
        self.world = shown["layout"]["world"]
        self.collectives, self.rank_bytes = [], collections.Counter()
        stage_of = {rank: stage for group in shown["groups"]["axes"]["pp"] for stage, rank in enumerate(group)}
        cut = set()
        for entry in shown["geometry"]:
            cut.add(entry["step"])
            size = sum((bucket["end"] - bucket["begin"]) * BYTES[bucket["dtype"]] for bucket in entry["buckets"])
            for group in entry["groups"]:
                self.collectives.append(("reduce_scatter", group, size))
                for rank in group:
                    self.rank_bytes[rank] += size
        complete = collections.Counter()  # of parameters that every tp rank holds whole, by stage
        for parameter in shown["parameters"]:
            if set(parameter["tags"]) & {"norm", "replicated"}:
                numel = 1
                for extent in parameter["shape"]:
                    numel *= extent
                complete[parameter["stage"]] += numel * BYTES[parameter["dtype"]]
        for step in shown["steps"]:
            if step["op"] in ("zero", "each", "scale", "wait", "norm") or step["name"] in cut:
                continue
            if step["op"] != "all_reduce" or step["params"] != ["tag:norm", "tag:replicated"]:
                raise ValueError(f"a step that this plan does not know: {step}")
            for group in shown["groups"]["steps"][step["name"]]:
                self.collectives.append(("all_reduce", group, complete[stage_of[group[0]]]))

    def on(self, gpus):
        """(bytes that the busiest GPU sends, its seconds on the wire, bytes of the gradients that one GPU holds)."""
        sent, seconds, held = collections.Counter(), collections.Counter(), collections.Counter()
        for op, ranks, size in self.collectives:
            members = {process_of(rank, self.world, gpus) for rank in ranks}
            if len(members) == 1:
                continue  # within a GPU
            moved = size * factor(op, len(members))
            link = NVLINK if len({gpu // HOST for gpu in members}) == 1 else INFINIBAND
            for gpu in members:
                sent[gpu] += moved
                seconds[gpu] += moved / (link * REACHED)
        for rank, size in self.rank_bytes.items():
            held[process_of(rank, self.world, gpus)] += size
        return max(sent.values(), default=0), max(seconds.values(), default=0), max(held.values())


def memory_seconds(held):
    """zero writes; backward of a micro-batch and the scale read and write; the collective reads; what is owned is small."""
    return held * (1 + 2 * MICRO_BATCHES + 2 + 1) / (MEMORY * REACHED_MEMORY)


def readable(value, units):
    for factor_of, unit in units:
        if value >= factor_of:
            return f"{value / factor_of:.3g} {unit}"
    return f"{value:g}"


def size_text(value):
    return readable(value, [(1e12, "TB"), (1e9, "GB"), (1e6, "MB")])


def time_text(value):
    return readable(value, [(60, "min"), (1, "s"), (1e-3, "ms"), (1e-6, "µs")])


def rows(plan):
    for gpus in GPUS:
        sent, seconds, held = plan.on(gpus)
        yield (f"| {gpus:,} | {plan.world // gpus:,} | {size_text(sent)} | {time_text(seconds)} | {size_text(held)} | "
               f"{-(-held // BLOCK):,} | {time_text(memory_seconds(held))} |")


def tables(program):
    sizes = (2, 8, 128)
    lines = ["| collective | bytes that a rank sends | " + " | ".join(f"n = {n}" for n in sizes) + " | bus bandwidth |",
             "|---|---|" + "---|" * len(sizes) + "---|"]
    formulas = {"all_reduce": "2(n−1)/n · S", "reduce_scatter": "(n−1)/n · S", "all_gather": "(n−1)/n · S", "broadcast": "S", "reduce": "S"}
    for op, formula in formulas.items():
        bus = formula.replace("S", "S/t")
        lines.append(f"| {op} | {formula} | " + " | ".join(f"{factor(op, n):.3f} S" for n in sizes) + f" | {bus} |")
    by_rows = {}  # scenarios that give the same rows share a table
    for name, layout in SCENARIOS.items():
        by_rows.setdefault(tuple(rows(Plan(show(program, layout)))), []).append(name)
    for found, names in by_rows.items():
        lines += ["", f"{' and '.join(names)}, {MICRO_BATCHES} micro-batches:", "",
                  "| GPUs | ranks on each | sent by a GPU | time on the wire | gradients on a GPU | blocks of 4 GiB | time in its memory |",
                  "|---|---|---|---|---|---|---|", *found]
    return "\n".join(lines) + "\n"


def replaced(text, printed):
    before, rest = text.split(BEGIN)
    return f"{before}{BEGIN}\n{printed}{END}{rest.split(END)[1]}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", metavar="LOCKSTEP", help="the program")
    parser.add_argument("--write", action="store_true", help="write the tables into docs/gpu.md")
    arguments = parser.parse_args()
    printed = tables(arguments.program)
    if arguments.write:
        DOCUMENT.write_text(replaced(DOCUMENT.read_text(encoding="utf-8"), printed), encoding="utf-8")
    else:
        print(printed, end="")


if __name__ == "__main__":
    main()
