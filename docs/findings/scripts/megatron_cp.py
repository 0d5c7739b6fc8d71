# SPDX-License-Identifier: Apache-2.0
"""Megatron-core alone on gloo, four ranks: what each rank's gradient counts in that of its DistributedDataParallel, with context parallelism of 1, 2 and 4.
Where it asks for CUDA it gets the CPU. Averaged over the four ranks each counts 1/4."""

import multiprocessing
import os
import sys
import types

os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(20000 + os.getpid() % 10000), WORLD_SIZE="4", OMP_NUM_THREADS="1")

import packaging.version
import torch

sys.modules.setdefault("pkg_resources", types.SimpleNamespace(packaging=packaging))  # where older releases look for it
torch.cuda.current_device = lambda: torch.device("cpu")
torch.cuda.current_stream = lambda *_: types.SimpleNamespace(wait_event=lambda *_: None, wait_stream=lambda *_: None)

import megatron.core
from megatron.core import parallel_state
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
from megatron.core.transformer.transformer_config import TransformerConfig


class Picked(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(4))

    def forward(self, picks):
        return (self.weight * picks).sum()


def coefficients(rank, cp):
    parallel_state.destroy_model_parallel()
    parallel_state.initialize_model_parallel(context_parallel_size=cp)
    config = TransformerConfig(num_layers=1, hidden_size=4, num_attention_heads=1, use_cpu_initialization=True, context_parallel_size=cp)
    model = DistributedDataParallel(config, DistributedDataParallelConfig(), Picked())
    model.zero_grad_buffer()
    model(torch.eye(4)[rank]).backward()
    model.finish_grad_sync()
    return " ".join("%g" % one for one in model.module.weight.main_grad.tolist())


def main(rank):
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank))
    torch.distributed.init_process_group("gloo")
    for cp in (1, 2, 4):
        found = coefficients(rank, cp)
        if rank == 0:
            print("megatron-core %s, cp %d of 4 ranks: %s" % (megatron.core.__version__, cp, found), flush=True)


if __name__ == "__main__":
    ranks = [multiprocessing.get_context("fork").Process(target=main, args=(rank,)) for rank in range(4)]
    for one in ranks:
        one.start()
    for one in ranks:
        one.join()
    raise SystemExit(max(abs(one.exitcode) for one in ranks))
