# SPDX-License-Identifier: Apache-2.0
"""One case of a worker whose ranks really run, for `lockstep extract`: measured_extracted.py WORKER CASE OUT."""

import importlib
import sys

import torch
import torch.distributed as dist

_, worker, case, out = sys.argv
dist.init_process_group("gloo")
torch.set_num_threads(1)
if worker.startswith("deepspeed"):
    import deepspeed

    deepspeed.init_distributed("gloo")  # its own groups know nothing else
module = importlib.import_module(worker)
sys.modules["worker"].CASES[case][1](out)
dist.destroy_process_group()
