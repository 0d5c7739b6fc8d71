# SPDX-License-Identifier: Apache-2.0
"""Training scripts, extracted or really run, in processes that are forked from one that has loaded torch: a worker of forked.py.

    extract SETTINGS FILE   what `lockstep extract` starts a Python for, with the same settings; the extraction goes to the file
    run PORT SCRIPT …       a rank of gloo's, as torchrun would start it; it leaves its capture in FOLDER/run (extracted.py)
"""

import os
import runpy
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "python"))

import torch
import torch.distributed.fsdp
import torch.distributed.tensor.parallel

from lockstep.extracting import __main__ as extracting, playing


def main():
    folder, rank, world, kind, *arguments = sys.argv[1:]
    if kind == "extract":
        settings, file = arguments
        sys.exit(extracting.main(settings, os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)))
    port, script, *sys.argv[1:] = arguments
    os.environ.update(playing.environment(int(rank), int(world), 8), MASTER_PORT=port, CAPTURE=os.path.join(folder, "run"))
    sys.argv[0] = script
    sys.path[0] = os.path.dirname(script)
    torch.set_num_threads(1)
    runpy.run_path(script, run_name="__main__")
