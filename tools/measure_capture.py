#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures what a capture costs, and prints the rows of the tables of docs/capture.md ("What it costs").

tools/measure_capture.py [--device cuda]; needs torch (tools/install-torch: build/torch/bin/python). One rank under DistributedDataParallel. On the
processor: with gloo, on one core; each figure is the process's CPU time of the quickest of four steps after one that is not counted, in a
process of its own. On a GPU: with NCCL, a process for each row; the time of the clock until the GPU has done the step.
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
SIZES_OF_A_GPU = (*SIZES[1:], (1024, 8, 8, 512))
VOCABULARY = 1000
STEPS = 5
MODES = ("without", "without collectives", "captured", "sampled")


def train(width, layers, sequences, length, modes, folder, device):
    """Prints a line for each mode: the elements and the number of the parameters, the seconds of a step and the bytes of files for one."""
    import torch
    import torch.distributed as distributed

    torch.set_num_threads(1)
    distributed.init_process_group("nccl" if device == "cuda" else "gloo", store=distributed.HashStore(), rank=0, world_size=1)
    if device == "cuda":
        measure(width, layers, sequences, length, "without", folder, device)  # what libraries keep from then on is no capture's
    for mode in modes:
        print(*measure(width, layers, sequences, length, mode, os.path.join(folder, mode.replace(" ", "-")), device), flush=True)
    distributed.destroy_process_group()


def measure(width, layers, sequences, length, mode, folder, device):
    import contextlib
    import gc
    import time

    import torch

    sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "python"))
    import lockstep

    def now():
        if device == "cpu":
            return time.process_time()
        torch.cuda.synchronize()
        return time.perf_counter()

    torch.manual_seed(0)
    gc.collect()  # of the mode before
    block = torch.nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0, batch_first=True)
    model = torch.nn.Sequential(torch.nn.Embedding(VOCABULARY, width), torch.nn.TransformerEncoder(block, layers, enable_nested_tensor=False),
                                torch.nn.Linear(width, VOCABULARY)).to(device)
    wrapped = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(wrapped.parameters())
    tokens = torch.randint(VOCABULARY, (sequences, length), device=device)
    seconds = []
    captured = contextlib.nullcontext() if mode == "without" else lockstep.capture(
        wrapped, optimizer, out=folder, loss="local_mean", collectives=mode != "without collectives", report=False, sums=64,  # as on two ranks
        sample="1/16" if mode == "sampled" else None)
    with captured:
        for _ in range(STEPS):
            begin = now()
            loss = torch.nn.functional.cross_entropy(wrapped(tokens).flatten(0, 1), tokens.flatten())
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            seconds.append(now() - begin)
    written = sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())
    parameters = list(model.parameters())
    return (sum(parameter.numel() for parameter in parameters), len(parameters), min(seconds[1:]), written // STEPS)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    device = parser.parse_args().device
    if importlib.util.find_spec("torch") is None:
        sys.exit(f"lockstep: {sys.executable} has no torch; tools/install-torch makes build/torch/bin/python, which has")
    script = "import json, sys, measure_capture; measure_capture.train(*json.loads(sys.argv[1]))"
    for size in SIZES_OF_A_GPU if device == "cuda" else SIZES:
        seconds = []
        for modes in [MODES] if device == "cuda" else [[mode] for mode in MODES]:
            with tempfile.TemporaryDirectory() as folder:
                done = subprocess.run([sys.executable, "-c", script, json.dumps([*size, modes, folder, device])], stdout=subprocess.PIPE, text=True,
                                      check=True, env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).resolve().parent)})
            for line in done.stdout.splitlines():
                elements, parameters, step, written = line.split()
                seconds.append(float(step))
        width, layers, sequences, length = size
        print(f"| {width}, {layers}, {sequences} × {length} | {float(elements) / 1e6:.3g} million, {parameters} | "
              + " | ".join([f"{seconds[0]:.2g} s"] + [f"{one:.2g} s, +{one / seconds[0] - 1:.0%}" for one in seconds[1:]])
              + f" | {float(written) / 1000:.0f} KB |", flush=True)


if __name__ == "__main__":
    main()
