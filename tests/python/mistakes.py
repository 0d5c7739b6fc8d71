# SPDX-License-Identifier: Apache-2.0
"""For test_mistakes.py, on a Python with torch: prints what each mistake of a user is answered with, as JSON."""

import json
import os
import sys
from types import SimpleNamespace
from unittest.mock import patch

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "python"))

import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module

import lockstep
from lockstep.adapters import mesh_of_all, plain


def with_older_torch(action):
    """One under which a dispatch mode ends what is compiled."""
    with patch.object(plain, "run_uncompiled", lambda: True):
        action()


def parallel(**options):
    """A model with a DTensor on a mesh of one rank."""
    model = torch.nn.Linear(2, 2)
    parallelize_module(model, init_device_mesh("cpu", (1,), **options), ColwiseParallel())
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


def on_part_of_the_ranks():
    with patch.object(torch.distributed, "get_world_size", lambda: 2):
        lockstep.capture(*parallel(mesh_dim_names=("tp",)))


def on_different_axes():
    meshes = [SimpleNamespace(mesh=torch.arange(2), mesh_dim_names=(name,)) for name in ("tp", "pp")]
    with patch.object(torch.distributed, "get_world_size", lambda: 2):
        mesh_of_all(meshes, False)


def trains(rank, world):
    """For lockstep.run, which does not come to it."""


def before_the_process_group():
    with patch.dict(os.environ, WORLD_SIZE="2"), patch.object(torch.distributed, "is_initialized", lambda: False):
        lockstep.capture(torch.nn.Linear(2, 2))


def main():
    folder = sys.argv[1]
    torch.distributed.init_process_group("gloo", init_method="file://" + os.path.abspath(os.path.join(folder, "store")), rank=0, world_size=1)
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    other = torch.optim.SGD(torch.nn.Linear(2, 2).parameters(), lr=0.1)
    whole = torch.nn.Linear(2, 2, dtype=torch.complex64)
    open(os.path.join(folder, "rank-00003.jsonl"), "w").close()
    started = lockstep.attach(model, optimizer, out=os.path.join(folder, "a"), report=False)

    mistakes = {
        "loss": lambda: lockstep.capture(model, optimizer, loss="avg"),
        "sums": lambda: lockstep.capture(model, optimizer, sums=100),
        "seed": lambda: lockstep.capture(model, optimizer, seed=-1),
        "mesh": lambda: lockstep.capture(model, optimizer, mesh="dp"),
        "mesh size": lambda: lockstep.capture(model, optimizer, mesh={"dp": 2}),
        "axis": lambda: lockstep.capture(model, optimizer, mesh={"rows": 1}),
        "data axis": lambda: lockstep.capture(model, optimizer, mesh={"dp": 1, "tp": 1}, data_axes=["dpp"]),
        "model": lambda: lockstep.capture([1], optimizer),
        "no parameters": lambda: lockstep.capture(torch.nn.ReLU(), optimizer),
        "dtype": lambda: lockstep.capture(whole, torch.optim.SGD(whole.parameters(), lr=0.1)),
        "no optimizer": lambda: lockstep.capture(model),
        "not an optimizer": lambda: lockstep.capture(model, 3),
        "other optimizer": lambda: lockstep.capture(model, other),
        "folder": lambda: lockstep.attach(model, optimizer, out=folder),
        "tokens": lambda: started.micro_batch(tokens=-1),
        "twice": lambda: started.start(),
        "not started": lambda: lockstep.capture(model, optimizer).micro_batch(),
        "compiled": lambda: with_older_torch(lambda: lockstep.capture(torch.compile(model), optimizer)),
        "mesh without names": lambda: lockstep.capture(*parallel()),
        "mesh without a name": lambda: lockstep.capture(model, optimizer, mesh=init_device_mesh("cpu", (1,))),
        "another run": lambda: lockstep.attach(model, optimizer, out=os.path.join(folder, "a")),
        "mesh of part": on_part_of_the_ranks,
        "different meshes": on_different_axes,
        "loss in verify": lambda: lockstep.verify(folder, loss="token_meen"),
        "loss in run": lambda: lockstep.run(parallel, loss="avg"),
        "out is None": lambda: lockstep.capture(model, optimizer, out=None),
        "out is a file": lambda: lockstep.attach(model, optimizer, out=os.path.join(folder, "rank-00003.jsonl")),
        "out below a file": lambda: lockstep.attach(model, optimizer, out=os.path.join(folder, "rank-00003.jsonl", "run")),
        "out is not there": lambda: lockstep.attach(model, optimizer, out="/proc/nowhere/run"),
        "out is no path": lambda: lockstep.attach(model, optimizer, out=folder + "/a\0b"),
        "out of run": lambda: lockstep.run(trains, out=3),
        "out of run is a file": lambda: lockstep.run(trains, out=os.path.join(folder, "rank-00003.jsonl")),
        "data_axes": lambda: lockstep.capture(model, optimizer, data_axes=3),
        "data_axes of numbers": lambda: lockstep.capture(model, optimizer, data_axes=[0]),
        "several tokens": lambda: started.micro_batch(tokens=torch.ones(100, 3)),
        "tokens of text": lambda: started.micro_batch(tokens="many"),
        "tokens without end": lambda: started.micro_batch(tokens=float("inf")),
        "ranks": lambda: lockstep.capture(model, optimizer, mesh={"axes": ["dp"], "sizes": [1], "ranks": ["a"]}),
        "ranks are one": lambda: lockstep.capture(model, optimizer, mesh={"axes": ["dp"], "sizes": [1], "ranks": 0}),
        "axes are numbers": lambda: lockstep.capture(model, optimizer, mesh={0: 1}),
        "parameters": lambda: lockstep.verify(folder, parameters=3),
        "parameters of numbers": lambda: lockstep.verify(folder, parameters=[3]),
        "folder of verify": lambda: lockstep.verify(None),
        "reference": lambda: lockstep.verify(folder, reference=3),
        "no process group": before_the_process_group,
        "sample": lambda: lockstep.capture(model, optimizer, sample="1/0"),
        "sample is a number": lambda: lockstep.capture(model, optimizer, sample=0.1),
        "shards": lambda: lockstep.capture(model, optimizer, shards=["weight"]),
        "shards without an axis": lambda: lockstep.capture(model, optimizer, shards={"weight": 0}),
        "shards along no axis": lambda: lockstep.capture(model, optimizer, mesh={"dp": 1, "tp": 1}, shards={"weight": {"tpp": 0}}),
        "shards of nothing": lambda: lockstep.capture(model, optimizer, shards={"wieght": {"dp": 0}}),
        "shards of no dimension": lambda: lockstep.capture(model, optimizer, shards={"bias": {"dp": 1}}),
        "no shape": lambda: lockstep.capture(torch.nn.LazyLinear(2), optimizer),
    }
    said = {}
    for name, mistake in mistakes.items():
        try:
            mistake()
            said[name] = None
        except (lockstep.CaptureError, lockstep.VerifyError, lockstep.RanksError) as error:
            said[name] = str(error)
    print(json.dumps(said))


if __name__ == "__main__":
    main()
