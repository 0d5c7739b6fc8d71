# SPDX-License-Identifier: Apache-2.0
"""One rank of runs of Hugging Face accelerate with a real bug: accelerate_bugs_worker.py FOLDER RANK WORLD CASE…, as bugs_worker.py has them for torch."""

import contextlib
import os
import warnings

os.environ["ACCELERATE_USE_CPU"] = "true"

import torch
import worker  # finds lockstep
from worker import Small, seeded
from worker import variant as case

import lockstep


def accelerated(out, fsdp=False, divisor=1, loss="local_mean", first_alone=False, micro_batches=2, data_ranks=None):
    """`divisor`: by what the script divides its loss before Accelerator.backward does. `first_alone`: the script decides when gradients are
    synchronized, and takes the first micro-batch for the last."""
    from accelerate import Accelerator, DistributedType, FullyShardedDataParallelPlugin
    from accelerate.state import AcceleratorState

    AcceleratorState._reset_state()  # the case before may have had another plugin
    plugin = FullyShardedDataParallelPlugin(fsdp_version=2, auto_wrap_policy="no_wrap", cpu_ram_efficient_loading=False) if fsdp else None
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=micro_batches, fsdp_plugin=plugin)
    if fsdp:  # on CPUs the state of accelerate 1.15 passes over the plugin; this is what it does on GPUs
        accelerator.state.distributed_type, accelerator.state.fsdp_plugin = DistributedType.FSDP, plugin
    seeded(0)
    model = Small()
    model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=0.01))
    places = data_ranks or [accelerator.process_index]
    with lockstep.capture(model, optimizer, out=out, loss=loss, report=False) as run:
        for micro_batch in range(micro_batches):
            found = []
            for data_rank in places:
                seeded(data_rank, 0, micro_batch)
                found.append(torch.randn(6, 8))
            run.micro_batch(tokens=6 * len(places))
            if first_alone:
                if fsdp:  # which Accelerator.no_sync leaves as it is
                    model.set_requires_gradient_sync(micro_batch == 0)
                with contextlib.nullcontext() if fsdp or micro_batch == 0 else accelerator.no_sync(model):
                    (model(torch.cat(found)).square().mean() / micro_batches).backward()
                continue
            with accelerator.accumulate(model):
                accelerator.backward(model(torch.cat(found)).square().mean() / divisor)
                optimizer.step()
                optimizer.zero_grad()
        if first_alone:
            optimizer.step()


case("accelerate-right", 2, accelerated, reference="accelerate-single")
case("accelerate-single", 1, accelerated, data_ranks=[0, 1])
case("accelerate-divided-twice", 2, accelerated, divisor=2, reference="accelerate-single")
case("accelerate-fsdp-right", 2, accelerated, fsdp=True, reference="accelerate-single")
case("accelerate-fsdp-divided-twice", 2, accelerated, fsdp=True, divisor=2, reference="accelerate-single")
case("accelerate-boundary", 2, accelerated, first_alone=True)
case("accelerate-fsdp-boundary", 2, accelerated, fsdp=True, first_alone=True)


def main():
    warnings.simplefilter("ignore")
    worker.tell_frameworks()
    worker.main()


if __name__ == "__main__":
    main()
