# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed alone on gloo, two ranks with one sequence (Ulysses): what the gradient of each rank's part counts in the update, by ZeRO stage.
unit: DeepSpeed's own unit, parallel_state_sp, as UlyssesSPAttentionHF hands it over; gathered: as well, with the mean of all ranks' losses, as the ALST tutorial
has it; mesh: sequence_parallel_size in the configuration. Each rank's loss picks an element of the weight of its own, so what SGD with learning rate 1 subtracts from zeros there is its coefficient."""

import importlib
import os
import sys

os.environ.update(DS_ACCELERATOR="cpu", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(20000 + os.getpid() % 10000), WORLD_SIZE="2", OMP_NUM_THREADS="1")

import deepspeed
import torch
from torch.distributed.nn.functional import all_gather

# Stage, reduce_scatter, contiguous_gradients, gradient_predivide_factor.
CASES = [(0, False, True, 1), (1, True, True, 1), (2, True, True, 1), (1, False, True, 2), (1, False, False, 2), (2, False, True, 2), (2, False, False, 2),
         (1, False, True, 4), (3, True, True, 1), (3, True, False, 1), (3, False, True, 1), (3, False, False, 1)]


class Picked(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(16))

    def forward(self, picks):
        return (self.weight * picks).sum()


def coefficients(rank, kind, unit, zero, factor):
    model = Picked()
    config = {"train_micro_batch_size_per_gpu": 1, "zero_allow_untested_optimizer": True, "zero_force_ds_cpu_optimizer": False, "gradient_clipping": 0.0,
              "gradient_predivide_factor": factor, "zero_optimization": zero, **({"sequence_parallel_size": 2, "data_parallel_size": 1} if unit is None else {})}
    engine, *_ = deepspeed.initialize(model=model, optimizer=torch.optim.SGD(model.parameters(), lr=1.0), config=config, mpu=unit)
    loss = engine(torch.eye(16)[rank])
    engine.backward(sum(all_gather(loss, group=unit.get_sequence_parallel_group())) / 2 if kind == "gathered" else loss)
    engine.step()
    with deepspeed.zero.GatheredParameters([engine.module.weight], enabled=zero["stage"] == 3):
        return " ".join("%g" % one for one in (-engine.module.weight.detach()[:2]).tolist())


def main(rank, kind):
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank))
    deepspeed.utils.logger.setLevel("ERROR")
    sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None  # gloo alone, without what would have to be compiled
    deepspeed.init_distributed(dist_backend="gloo", verbose=False)
    unit = importlib.import_module("deepspeed.runtime.sequence_parallel.parallel_state_sp") if kind != "mesh" else None
    if unit:
        unit.initialize_sequence_parallel(2)
    for stage, scatters, contiguous, factor in CASES:
        found = coefficients(rank, kind, unit, {"stage": stage, "reduce_scatter": scatters, "contiguous_gradients": contiguous}, factor)
        options = "".join([", reduce_scatter False"] * (not scatters) + [", contiguous_gradients False"] * (not contiguous)
                          + [", gradient_predivide_factor %g" % factor] * (factor != 1))
        if rank == 0 or kind == "mesh":
            print("%s, ZeRO %d%s, rank %d holds: %s" % (kind, stage, options, rank, found), flush=True)


if __name__ == "__main__":
    torch.multiprocessing.start_processes(main, (sys.argv[1],), nprocs=2, start_method="fork")
