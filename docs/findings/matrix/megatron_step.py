# SPDX-License-Identifier: Apache-2.0
"""A training script with Megatron-core: megatron_step.py CP NAME=VALUE…, where NAME is a key of DistributedDataParallelConfig. The model is a module of
Megatron's with two layers; context parallelism gives each of CP ranks a part of each sequence, and its loss is the mean
over that part: it returns a sum and a count, by which Megatron divides."""

import json
import logging
import os
import sys
import warnings

os.environ["TORCH_COMPILE_DISABLE"] = "1"
warnings.simplefilter("ignore")
logging.disable(logging.WARNING)

import torch
import torch.distributed as dist
from megatron.core import parallel_state
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
from megatron.core.distributed.finalize_model_grads import finalize_model_grads
from megatron.core.enums import ModelType
from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
from megatron.core.pipeline_parallel.schedules import get_forward_backward_func
from megatron.core.transformer.module import MegatronModule
from megatron.core.transformer.transformer_config import TransformerConfig

MICRO_BATCHES = 2


class Small(MegatronModule):
    def __init__(self, config):
        super().__init__(config)
        self.model_type = ModelType.encoder_or_decoder
        self.up, self.down = torch.nn.Linear(8, 12), torch.nn.Linear(12, 8)

    def set_input_tensor(self, tensor):
        """Of a pipeline's stage before this one: there is none."""

    def forward(self, batch):
        return self.down(torch.tanh(self.up(batch)))


def main(cp, *given):
    options = {name: json.loads(value) for name, _, value in (one.partition("=") for one in given)}
    dist.init_process_group("nccl")
    parallel_state.initialize_model_parallel(context_parallel_size=int(cp))
    torch.manual_seed(3)
    config = TransformerConfig(num_layers=1, hidden_size=8, num_attention_heads=1, use_cpu_initialization=True, gradient_accumulation_fusion=False,
                               context_parallel_size=int(cp), finalize_model_grads_func=finalize_model_grads)
    model = DistributedDataParallel(config, DistributedDataParallelConfig(grad_reduce_in_fp32=True, **options), Small(config).cuda())
    optimizer = get_megatron_optimizer(OptimizerConfig(optimizer="adam", lr=0.01, clip_grad=0.0, use_distributed_optimizer=options.get("use_distributed_optimizer", False)), [model])

    def forward_step(iterator, model):
        batch = next(iterator)
        return model(batch), lambda output: ((output - batch).square().sum(), torch.tensor(batch.numel(), dtype=torch.int), {})

    number = 0
    while True:
        model.zero_grad_buffer()
        optimizer.zero_grad()
        torch.manual_seed(100 * dist.get_rank() + number)
        get_forward_backward_func()(forward_step_func=forward_step, data_iterator=iter([torch.randn(4, 2, 8, device="cuda") for _ in range(MICRO_BATCHES)]), model=model,
                                    num_microbatches=MICRO_BATCHES, seq_length=4, micro_batch_size=2)
        optimizer.step()
        number += 1


if __name__ == "__main__":
    main(*sys.argv[1:])
