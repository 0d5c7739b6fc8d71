# SPDX-License-Identifier: Apache-2.0
"""A training script whose options are those of the files in frameworks/, for `lockstep extract`: expected_extracted.py FRAMEWORK [OPTION=VALUE …]. What a
framework file says of these options is held against what the code does with them (test_expected.py).
"""

import contextlib
import json
import sys

import torch
import torch.distributed as dist
from torch import nn

MICRO_BATCHES = 2


def model():
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(8, 12), nn.Tanh(), nn.LayerNorm(12), nn.Linear(12, 6))


def train(module, optimizer, options, held_back=contextlib.nullcontext, before=lambda is_last: None):
    parts = MICRO_BATCHES if options.get("gradient_accumulation", "mean") == "mean" else 1
    optimizer.zero_grad()
    for micro in range(MICRO_BATCHES):
        is_last = micro + 1 == MICRO_BATCHES
        before(is_last)
        with contextlib.nullcontext() if is_last else held_back():
            (module(torch.randn(5, 8)).square().mean() / parts).backward()
    if options.get("max_norm", 0):
        nn.utils.clip_grad_norm_(module.parameters(), options["max_norm"])
    optimizer.step()


def ddp(options):
    from torch.distributed.algorithms.ddp_comm_hooks import debugging_hooks, default_hooks

    kept = {name: options[name] for name in ("find_unused_parameters", "static_graph", "gradient_as_bucket_view", "bucket_cap_mb") if name in options}
    module = nn.parallel.DistributedDataParallel(model(), **kept)
    hook = options.get("comm_hook", "none")
    if hook != "none":
        module.register_comm_hook(None, getattr(debugging_hooks if hook == "noop_hook" else default_hooks, hook))
    train(module, torch.optim.SGD(module.parameters(), lr=0.1), options, module.no_sync if options.get("no_sync") else contextlib.nullcontext)


def fsdp2(options):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    module, world, replicas = model(), dist.get_world_size(), options.get("dp_replicate", 1)
    mesh = init_device_mesh("cpu", (replicas, world // replicas), mesh_dim_names=("dp_replicate", "dp_shard")) if replicas > 1 \
        else init_device_mesh("cpu", (world,), mesh_dim_names=("dp",))
    policy = MixedPrecisionPolicy(reduce_dtype=getattr(torch, options["reduce_dtype"]) if "reduce_dtype" in options else None)
    for layer in (module[0], module[3], module):
        fully_shard(layer, mesh=mesh, mp_policy=policy, reshard_after_forward=options.get("reshard_after_forward", True))
    for layer in (module[0], module[3], module):
        if options.get("gradient_divide_factor"):
            layer.set_gradient_divide_factor(options["gradient_divide_factor"])
        layer.set_force_sum_reduction_for_comms(options.get("force_sum_reduction_for_comms", False))

    def before(is_last):
        if not options.get("requires_gradient_sync", True):
            module.set_requires_gradient_sync(is_last)
        if not options.get("requires_all_reduce", True):
            module.set_requires_all_reduce(is_last)
    train(module, torch.optim.SGD(module.parameters(), lr=0.1), options, before=before)


def accelerate(options):
    from accelerate import Accelerator, DistributedDataParallelKwargs, FullyShardedDataParallelPlugin
    from accelerate.utils import GradientAccumulationPlugin

    plugin = None
    if options.get("distributed_type") == "FSDP":
        plugin = FullyShardedDataParallelPlugin(fsdp_version=options.get("fsdp_version", 1), auto_wrap_policy="no_wrap", cpu_ram_efficient_loading=False)
    accumulation = GradientAccumulationPlugin(num_steps=MICRO_BATCHES, sync_each_batch=options.get("sync_each_batch", False))
    kept = [DistributedDataParallelKwargs(comm_hook=options["comm_hook"])] if "comm_hook" in options else []
    accelerator = Accelerator(gradient_accumulation_plugin=accumulation, fsdp_plugin=plugin, kwargs_handlers=kept)
    module = model()
    module, optimizer = accelerator.prepare(module, torch.optim.SGD(module.parameters(), lr=0.1))
    for _ in range(MICRO_BATCHES):
        with accelerator.accumulate(module):
            accelerator.backward(module(torch.randn(5, 8)).square().mean())
            if accelerator.sync_gradients and options.get("max_norm", 0):
                accelerator.clip_grad_norm_(module.parameters(), options["max_norm"])
            optimizer.step()
            optimizer.zero_grad()


def deepspeed(options):
    import deepspeed as library

    zero = {name: options[name] for name in ("reduce_scatter", "overlap_comm", "contiguous_gradients", "reduce_bucket_size") if name in options}
    config = {"train_micro_batch_size_per_gpu": 5, "gradient_accumulation_steps": MICRO_BATCHES,
              "zero_optimization": dict(zero, stage=options.get("zero_stage", 0)), "gradient_clipping": options.get("gradient_clipping", 1.0)}
    for name in ("prescale_gradients", "gradient_predivide_factor"):
        if name in options:
            config[name] = options[name]
    if options.get("bf16"):
        config["bf16"] = {"enabled": True}
    if options.get("grad_accum_dtype"):
        config["data_types"] = {"grad_accum_dtype": options["grad_accum_dtype"]}
    module = model()
    engine, *_ = library.initialize(model=module, optimizer=torch.optim.AdamW(module.parameters(), lr=0.01), config=config)
    dtype = next(module.parameters()).dtype
    for _ in range(MICRO_BATCHES):
        engine.backward(engine(torch.randn(5, 8, dtype=dtype)).float().square().mean())
        engine.step()


def megatron(options):
    import megatron_extracted

    reduction = {"overlap_grad_reduce": options.get("overlap_grad_reduce", False), "average_in_collective": options.get("ddp_average_in_collective", False)}
    if options.get("ddp_bucket_size"):
        reduction["bucket_size"] = options["ddp_bucket_size"]
    megatron_extracted.main(options.get("tp", 1), options.get("pp", 1), options.get("case", "sequences"), options.get("use_distributed_optimizer", False),
                            options.get("layers"), **reduction)


def main(framework, *options):
    values = {}
    for option in options:
        name, value = option.split("=")
        try:
            values[name] = json.loads(value)
        except ValueError:
            values[name] = value
    torch.set_num_threads(1)
    if framework in (ddp, fsdp2):
        dist.init_process_group("gloo")
    framework(values)


if __name__ == "__main__":
    main({"ddp": ddp, "fsdp2": fsdp2, "accelerate": accelerate, "deepspeed": deepspeed, "megatron": megatron}[sys.argv[1]], *sys.argv[2:])
