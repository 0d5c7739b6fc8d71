#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures what a capture costs, and prints the rows of the first table of docs/capture.md ("What it costs").

tools/measure_capture.py; needs torch (tools/install-torch: build/torch/bin/python). One rank under DistributedDataParallel with gloo, on
one core; each figure is the process's CPU time of the quickest of four steps after one that is not counted, in a process of its own.
"""

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

SIZES = ((64, 2, 4, 32), (256, 4, 8, 128), (512, 4, 8, 256))  # width, layers, sequences and their length
VOCABULARY = 1000
STEPS = 5
MODES = ("without", "without collectives", "captured")


def train(width, layers, sequences, length, mode, folder):
    """Prints the elements and the number of the parameters, the seconds of a step and the bytes of files for one."""
    import contextlib
    import time

    import torch
    import torch.distributed as distributed

    sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "python"))
    import lockstep

    torch.set_num_threads(1)
    torch.manual_seed(0)
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    block = torch.nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0, batch_first=True)
    model = torch.nn.Sequential(torch.nn.Embedding(VOCABULARY, width), torch.nn.TransformerEncoder(block, layers, enable_nested_tensor=False),
                                torch.nn.Linear(width, VOCABULARY))
    wrapped = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(wrapped.parameters())
    tokens = torch.randint(VOCABULARY, (sequences, length))
    seconds = []
    captured = contextlib.nullcontext() if mode == "without" else lockstep.capture(
        wrapped, optimizer, out=folder, loss="mean", collectives=mode == "captured", report=False)
    with captured:
        for _ in range(STEPS):
            begin = time.process_time()
            loss = torch.nn.functional.cross_entropy(wrapped(tokens).flatten(0, 1), tokens.flatten())
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            seconds.append(time.process_time() - begin)
    written = sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())
    parameters = list(model.parameters())
    print(sum(parameter.numel() for parameter in parameters), len(parameters), min(seconds[1:]), written // STEPS)
    distributed.destroy_process_group()


def main():
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    if importlib.util.find_spec("torch") is None:
        sys.exit(f"lockstep: {sys.executable} has no torch; tools/install-torch makes build/torch/bin/python, which has")
    script = "import json, sys, measure_capture; measure_capture.train(*json.loads(sys.argv[1]))"
    for size in SIZES:
        seconds = []
        for mode in MODES:
            with tempfile.TemporaryDirectory() as folder:
                done = subprocess.run([sys.executable, "-c", script, json.dumps([*size, mode, folder])], stdout=subprocess.PIPE, text=True,
                                      check=True, env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).resolve().parent)})
            elements, parameters, step, written = done.stdout.split()
            seconds.append(float(step))
        width, layers, sequences, length = size
        print(f"| {width}, {layers}, {sequences} × {length} | {float(elements) / 1e6:.3g} million, {parameters} | "
              + " | ".join(f"{one:.2g} s" for one in seconds) + f" | {float(written) / 1000:.0f} KB |")


if __name__ == "__main__":
    main()
