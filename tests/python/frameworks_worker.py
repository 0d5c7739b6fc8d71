# SPDX-License-Identifier: Apache-2.0
"""One rank of runs of other frameworks: frameworks_worker.py FOLDER RANK WORLD CASE…; a case is zero-STAGE (DeepSpeed) or accelerate."""

import contextlib
import importlib
import logging
import os
import warnings

import torch
import worker  # finds lockstep

os.environ.update(DS_ACCELERATOR="cpu", ACCELERATE_USE_CPU="true")
for name in ("deepspeed.runtime.zero.muon.muon_optimizer", "accelerate"):  # what there is of them, before ranks are forked
    with contextlib.suppress(ImportError):
        importlib.import_module(name)


def trained(out, stage, capture):
    import deepspeed

    # It would be compiled now, in the user's cache, and a process that was killed meanwhile leaves a lock for which all others wait.
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False

    import lockstep

    worker.seeded(0)
    model = worker.Tied()
    model.scale = torch.nn.Parameter(torch.ones(1))
    config = {"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 2, "zero_allow_untested_optimizer": True,
              "zero_force_ds_cpu_optimizer": False, "gradient_clipping": 0.1,
              "zero_optimization": {"stage": stage, "stage3_param_persistence_threshold": 0}}
    optimizer = torch.optim.AdamW([tensor for tensor in model.parameters() if tensor.requires_grad], lr=0.01)
    engine, _, _, _ = deepspeed.initialize(model=model, optimizer=optimizer, config=config, dist_init_required=False)
    run = lockstep.attach(engine, out=out, loss="local_mean", report=False) if capture else None
    losses = []
    for step in range(2):
        for micro_batch in range(2):
            loss = worker.lost(engine, worker.tokens_of(torch.distributed.get_rank(), step, micro_batch))
            engine.backward(loss)
            engine.step()
            losses.append(loss.detach())
    if run:
        run.close()
    return torch.stack(losses)


def zero(stage):
    def case(out):
        assert torch.equal(trained(out, stage, False), trained(out, stage, True)), "the capture has changed the numbers of the training"
    return case


def accelerated(out, capture):
    from accelerate import Accelerator, DistributedDataParallelKwargs

    import lockstep

    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2,
                              kwargs_handlers=[DistributedDataParallelKwargs(find_unused_parameters=True)])
    worker.seeded(0)
    model = worker.Tied()
    model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=0.01))
    run = lockstep.attach(model, optimizer, out=out, loss="local_mean", report=False) if capture else None
    losses = []
    for step in range(2):
        for micro_batch in range(2):
            with accelerator.accumulate(model):
                loss = worker.lost(model, worker.tokens_of(accelerator.process_index, step, micro_batch))
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 0.1)
                optimizer.step()
                optimizer.zero_grad()
                losses.append(loss.detach())
    if run:
        run.close()
    return torch.stack(losses)


def accelerate(out):
    assert torch.equal(accelerated(out, False), accelerated(out, True)), "the capture has changed the numbers of the training"


def main():
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    worker.CASES["accelerate"] = (2, accelerate)
    worker.CASES.update({"zero-%d" % stage: (2, zero(stage)) for stage in range(4)})
    worker.tell_frameworks()
    worker.main()


if __name__ == "__main__":
    main()
