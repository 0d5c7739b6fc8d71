# SPDX-License-Identifier: Apache-2.0
"""The files that are broken, and the right scripts with which they are run."""

import importlib
import os
from dataclasses import dataclass, field
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parent / "scripts"


class Framework:
    name, modules, files, cases = "", (), (), {}
    losses = {}  # of cases whose backward is no gradient of a mean
    in_parts = ()  # words of cases in which the optimizer below the framework's steps twice for a step of that: with one part of the parameters, and with the other

    def load(self):
        """Once, before ranks are forked."""
        for module in self.modules:
            importlib.import_module(module)

    def before_running(self):
        """In each rank that really runs."""


class Fsdp2(Framework):
    name = "fsdp2"
    modules = ("torch.distributed.fsdp", "torch.distributed.tensor.parallel")
    files = ("torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py", "torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py")
    cases = {"accumulated": 4, "each": 4, "replicated": 4, "mixed": 4, "divided": 4, "accumulated_mixed": 4, "replicated_mixed": 4, "sometimes": 4, "prefetched": 4,
             "copies": 4, "grouped": 4}


class OnCpu(Framework):
    """What knows nothing but CUDA and NCCL gets the CPU and gloo."""

    def before_running(self):
        import torch.distributed as dist
        from lockstep.extracting import cuda

        cuda.install()
        for owner in (dist, dist.distributed_c10d):
            begin, group = dist.distributed_c10d.init_process_group, dist.distributed_c10d.new_group
            owner.init_process_group = lambda *_, begin=begin, **__: begin("gloo")
            owner.new_group = lambda ranks=None, group=group, **_: group(ranks, backend="gloo")


class Megatron(OnCpu):
    name = "megatron"
    modules = ("megatron.core.distributed", "megatron.core.models.gpt", "megatron.core.models.gpt.gpt_layer_specs", "megatron.core.optimizer",
               "megatron.core.pipeline_parallel.schedules")
    files = ("megatron/core/distributed/finalize_model_grads.py", "megatron/core/distributed/param_and_grad_buffer.py",
             "megatron/core/distributed/distributed_data_parallel.py")
    losses = {"tokens": "token_sum"}
    cases = {"pipeline": 8, "stages": 4, "sequences": 4, "overlap": 4, "tokens": 4, "average": 4, "alone": 4, "padded": 4, "instances": 4, "exact": 4, "mixed": 4, "chunks": 4,
             "experts": 4, "biased": 4}

    def load(self):
        os.environ["TORCH_COMPILE_DISABLE"] = "1"  # as the script does, but torch is loaded
        importlib.import_module("torch._dynamo.config").disable = True
        super().load()


class DeepSpeed(Framework):
    name = "deepspeed"
    in_parts = ("groups", "parts")
    modules = ("deepspeed", "deepspeed.runtime.zero.muon.muon_optimizer")
    files = ("deepspeed/runtime/zero/stage_1_and_2.py", "deepspeed/runtime/zero/stage3.py", "deepspeed/runtime/engine.py")
    cases = {"0": 4, "1": 4, "2": 4, "2 overlap_comm bf16": 4, "2 no-contiguous_gradients no-reduce_scatter": 4, "0 prescaled": 4, "3": 4,
             "3 contiguous_gradients overlap_comm": 4, "3 no-reduce_scatter parts threes": 4, "3 persistent groups bf16": 4, "0 prescaled divided": 4, "0 threes fp32": 4,
             "1 groups": 4, "1 round_robin_gradients threes": 4, "2 contiguous_gradients ones": 4, "2 fp32 bf16 groups": 4}

    def load(self):
        os.environ["DS_ACCELERATOR"] = "cpu"
        super().load()


FRAMEWORKS = {one.name: one for one in (Fsdp2(), Megatron(), DeepSpeed())}


@dataclass
class Case:
    framework: Framework
    name: str
    ranks: int
    script: str = field(init=False)
    arguments: tuple = field(init=False)
    calls: int = field(init=False)  # of optimizers' steps, for each step

    def __post_init__(self):
        self.script, self.arguments = str(SCRIPTS / (self.framework.name + "_step.py")), tuple(self.name.split())
        self.calls = 2 if any(word in self.framework.in_parts for word in self.arguments) else 1


def cases_of(framework):
    return [Case(framework, name, ranks) for name, ranks in framework.cases.items()]
