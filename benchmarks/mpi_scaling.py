#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""benchmarks/mpi_scaling.py LOCKSTEP: weak scaling of the mpi engine from 1 to 8 processes, as the table of docs/mpi.md.

One process per rank, ranks along dp, each with the same buffers of 16 Mi elements in float32 and 4 micro-batches, so that
the work of a rank does not grow with their number. Once with a reduce-scatter, after which a rank compares what it owns,
and once with an all-reduce, after which it compares everything. The best of three runs. The seconds are those of the
engine ("mpi_s" of the report); the memory is the largest that any process had.
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

ELEMENTS = 1 << 24
RUNS = 3


def scenario(ranks, op):
    return {
        "lockstep": 1, "name": f"weak-scaling-{op}-{ranks}", "layout": {"dp": ranks},
        "model": {"parameters": [{"name": "weight", "shape": [ELEMENTS]}]},
        "batch": {"micro_batches": 4, "tokens": "even"},
        "schedule": {"steps": [{"name": "micro_batches", "op": "each", "steps": [{"name": "backward", "op": "backward"}]},
                               {"name": "mean", "op": op, "over": "dp", "reduce": "avg"},
                               {"name": "micro_batch_mean", "op": "scale", "by": "1/micro_batches"}]},
    }


def measure(program, ranks, path):
    """Seconds of the engine and the largest memory of a process in MiB. In a process of its own, which counts no other."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        done = subprocess.run([program, "check", "-f", "json", "--engine", "mpi", "--ranks", str(ranks), path], capture_output=True,
                              text=True)
        report = json.loads(done.stdout)
        memory = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
        os.write(writing, json.dumps([report["engines"]["mpi"], report["time"]["mpi_s"], memory]).encode())
        os._exit(0)
    os.close(writing)
    text = os.read(reading, 1000)
    os.close(reading)
    os.waitpid(child, 0)
    verdict, seconds, memory = json.loads(text)
    assert verdict == "match", verdict  # and not sampled, which would be an object
    return seconds, memory


def main():
    program = sys.argv[1] if len(sys.argv) == 2 else sys.exit(__doc__)
    print("| step | processes | seconds | seconds × min(cores, processes) / processes | MiB of a process |")
    print("|---|---|---|---|---|")
    cores = os.cpu_count()
    with tempfile.TemporaryDirectory() as folder:
        for op in ("reduce_scatter", "all_reduce"):
            for ranks in (1, 2, 4, 8):
                path = Path(folder) / f"{op}-{ranks}.json"
                path.write_text(json.dumps(scenario(ranks, op)))
                runs = [measure(program, ranks, path) for _ in range(RUNS)]
                seconds, memory = min(run[0] for run in runs), max(run[1] for run in runs)
                print(f"| {op} | {ranks} | {seconds:.3f} | {seconds * min(cores, ranks) / ranks:.3f} | {memory:.0f} |", flush=True)


if __name__ == "__main__":
    main()
