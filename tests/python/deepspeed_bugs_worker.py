# SPDX-License-Identifier: Apache-2.0
"""One rank of runs of DeepSpeed with a real bug: deepspeed_bugs_worker.py FOLDER RANK WORLD CASE…, as bugs_worker.py has them for torch. The bug is
an option, a line of the script, or a line of the installed DeepSpeed that is put back to what it was."""

import contextlib
import logging
import os
import sys
import warnings

os.environ["DS_ACCELERATOR"] = "cpu"

import torch
import torch.distributed as dist
import worker  # finds lockstep
from torch import nn
from worker import Small, seeded
from worker import variant as case

import lockstep

logging.disable(logging.WARNING)
import deepspeed
from deepspeed.runtime.sequence_parallel import parallel_state_sp
from deepspeed.runtime.zero.muon import muon_optimizer  # noqa: F401  (what each rank would load at its first engine, for a second)
from deepspeed.sequence import layer as ulysses_layer

# It would be compiled now, in the user's cache, and a process that was killed meanwhile leaves a lock for which all others wait.
deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False


def nothing(*_):
    pass


def trained(out, model, inputs, loss_of, stage=1, micro_batches=2, steps=1, kind="mean", mesh=None, data_axes=None, mpu=None, boundary=None,
            accumulation=None, after_initialize=nothing, tokens=None, step_at_last=False, decayed=None, **config):
    """Trains under an engine. `accumulation`: how many micro-batches the engine believes in; `boundary`: what the script tells it of each;
    `decayed`: which parameters are of a group with weight decay, the others being of one without."""
    zero = {"stage": stage, "stage3_param_persistence_threshold": 0, **config.pop("zero", {})}
    settings = {"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": accumulation or micro_batches, "zero_allow_untested_optimizer": True,
                "zero_force_ds_cpu_optimizer": False, "zero_optimization": zero, **config}
    parameters = list(model.parameters())
    if decayed:
        parameters = [{"params": list(filter(decayed, parameters))},
                      {"params": [one for one in parameters if not decayed(one)], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(parameters, lr=0.01)
    engine, _, _, _ = deepspeed.initialize(model=model, optimizer=optimizer, config=settings, mpu=mpu, dist_init_required=False)
    after_initialize(engine)
    run = lockstep.attach(engine, out=out, mesh=mesh, data_axes=data_axes, loss=kind, report=False)
    for step in range(steps):
        for micro_batch in range(micro_batches):
            run.micro_batch(tokens=tokens)
            if boundary:
                engine.set_gradient_accumulation_boundary(boundary(micro_batch == micro_batches - 1))
            value = loss_of(engine(inputs(step, micro_batch).to(next(engine.module.parameters()).dtype)))
            engine.backward(value)
            if not step_at_last or micro_batch == micro_batches - 1:
                engine.step()
    run.close()


def zero(out, **changed):
    seeded(0)

    def inputs(step, micro_batch):
        seeded(dist.get_rank(), step, micro_batch)
        return torch.randn(6, 8)
    trained(out, Small(), inputs, lambda output: output.float().square().mean(), tokens=6, **changed)


class Attention(nn.Module):
    """A transformer's attention under Ulysses: each rank has a part of every sequence, and in the attention a part of the heads."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(8, 8)
        self.norm = nn.LayerNorm(8)
        self.q_proj, self.k_proj, self.v_proj = (nn.Linear(8, 8, bias=False) for _ in range(3))
        self.o_proj = nn.Linear(8, 8)
        self.head = nn.Linear(8, 6, bias=False)
        self.attention = None

    def forward(self, inputs):
        hidden = self.embed(inputs)
        normed = self.norm(hidden)
        q, k, v = (projection(normed).unflatten(-1, (4, 2)) for projection in (self.q_proj, self.k_proj, self.v_proj))
        mixed = self.attention(q, k, v, 0)
        return self.head(hidden + self.o_proj(mixed.flatten(-2)))


def attend(q, k, v):
    q, k, v = (one.transpose(1, 2) for one in (q, k, v))
    return nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)


def ulysses(out, divided=True, sp=2, **changed):
    """Sequences are cut over sp ranks. `divided`: each rank's loss is its part of the mean over the sequence, not the mean over its own part."""
    world = dist.get_world_size()
    sp = min(sp, world)
    seeded(0)
    model = Attention()
    if sp > 1:
        if parallel_state_sp._SEQUENCE_PARALLEL_GROUP is None:
            parallel_state_sp.initialize_sequence_parallel(sp)
        model.attention = ulysses_layer.DistributedAttention(attend, parallel_state_sp.get_sequence_parallel_group(), scatter_idx=2, gather_idx=1)
    else:
        model.attention = lambda q, k, v, _: attend(q, k, v)
    place = dist.get_rank() % sp

    def inputs(step, micro_batch):
        found = []
        for data_rank in range(2) if world == 1 else [dist.get_rank() // sp]:
            seeded(data_rank, step, micro_batch)
            found.append(torch.randn(2, 8, 8))
        return torch.cat(found).chunk(sp, 1)[place]
    trained(out, model, inputs, lambda output: output.square().mean() / (sp if divided else 1), mesh={"dp": world // sp, "sp": sp},
            data_axes=["dp"] if divided else None, mpu=parallel_state_sp if sp > 1 else None, **changed)


@contextlib.contextmanager
def patched(owner, name, value):
    kept = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, kept)


def ulysses_with_wrong_backward(out, **changed):
    """The backward of the all-to-all divides by the ranks among which it exchanges."""
    kept = ulysses_layer._SeqAllToAll.backward

    def backward(ctx, *gradients):
        result = kept(ctx, *gradients)
        return (result[0], result[1] / dist.get_world_size(ctx.group), *result[2:])
    with patched(ulysses_layer._SeqAllToAll, "backward", staticmethod(backward)):
        ulysses(out, **changed)


def without_sp(engine):
    """PR 5555 not applied: the division is by all ranks."""
    engine.sequence_parallel_size = 1


# Parameters in bfloat16 whose gradients are added up in float32: BF16_Optimizer.
IN_FLOAT32 = {"bf16": {"enabled": True, "immediate_grad_update": False}, "data_types": {"grad_accum_dtype": "fp32"}}


def added_after_the_reduction(engine):
    """As before PR 7985: the micro-batch at the boundary is added to the sum when that was reduced."""
    reduce, add = engine.allreduce_gradients, engine.optimizer.backward_epilogue

    def reduce_and_add(*arguments, **keys):
        reduce(*arguments, **keys)
        add()
    engine.allreduce_gradients, engine.optimizer.backward_epilogue = reduce_and_add, nothing


case("zero-0-right", 2, zero, stage=0)
case("zero-1-right", 2, zero)
case("zero-2-right", 2, zero, stage=2)
case("zero-3-right", 2, zero, stage=3)
case("zero-last", 2, zero, stage=2, micro_batches=3, boundary=lambda last: True, step_at_last=True)
case("zero-boundary-right", 2, zero, stage=2, micro_batches=3, boundary=lambda last: last)
case("zero-predivided", 4, zero, stage=3, zero={"reduce_scatter": False}, gradient_predivide_factor=4.0)
case("zero-predivided-right", 4, zero, stage=3, zero={"reduce_scatter": False}, gradient_predivide_factor=2.0)
case("zero-not-zeroed", 2, zero, stage=0, micro_batches=1, steps=2, after_initialize=lambda engine: setattr(engine, "zero_grad", nothing))
case("bf16-right", 2, zero, micro_batches=4, **IN_FLOAT32)
case("bf16-late", 2, zero, micro_batches=4, after_initialize=added_after_the_reduction, **IN_FLOAT32)
case("zero-gas", 2, zero, stage=1, kind="token_mean", accumulation=1, boundary=lambda last: last)
case("zero-groups-right", 4, zero, stage=2, zero={"use_multi_rank_bucket_allreduce": False}, decayed=lambda parameter: parameter.dim() > 1)
case("ulysses-right", 4, ulysses)
case("ulysses-local-mean", 4, ulysses, divided=False)
case("ulysses-world", 4, ulysses, stage=0, after_initialize=without_sp)
case("ulysses-predivided", 4, ulysses, zero={"reduce_scatter": False}, gradient_predivide_factor=4.0)
case("ulysses-single", 1, ulysses)
case("ulysses-backward", 4, ulysses_with_wrong_backward, reference="ulysses-single")


def main():
    warnings.simplefilter("ignore")
    worker.tell_frameworks()
    worker.main()


if __name__ == "__main__":
    main()
