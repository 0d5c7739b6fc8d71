# SPDX-License-Identifier: Apache-2.0
"""A right training script with Megatron-core: megatron_step.py CASE: a GPTModel of a layer for each stage."""

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
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
from megatron.core.pipeline_parallel.schedules import get_forward_backward_func
from megatron.core.transformer.module import Float16Module
from megatron.core.transformer.transformer_config import TransformerConfig

LENGTH, VOCABULARY, MICRO_BATCHES = 8, 32, 2
# By name: sizes, and what is set of the wrapper.
CASES = {
    "pipeline": ({"tp": 2, "pp": 2}, {"use_distributed_optimizer": True}),
    "stages": ({"pp": 2}, {"use_distributed_optimizer": True}),
    "sequences": ({"tp": 2}, {}),
    "overlap": ({}, {"use_distributed_optimizer": True, "overlap_grad_reduce": True, "overlap_param_gather": True, "bucket_size": 300}),
    "tokens": ({"tp": 2, "tokens": True}, {}),
    "alone": ({}, {"overlap_grad_reduce": True, "bucket_size": 300}),
    "padded": ({}, {"use_distributed_optimizer": True, "overlap_grad_reduce": True, "bucket_size": 300, "pad_buckets_for_high_nccl_busbw": True,
                    "average_in_collective": True}),
    "instances": ({"instances": 2}, {"use_distributed_optimizer": True, "overlap_grad_reduce": True, "bucket_size": 300, "num_distributed_optimizer_instances": 2}),
    "exact": ({}, {"use_distributed_optimizer": True, "reduce_scatter_with_fp32_accumulation": True, "bucket_size": 300}),
    "mixed": ({"mixed": True}, {"use_distributed_optimizer": True, "overlap_grad_reduce": True, "overlap_param_gather": True, "bucket_size": 300}),
    "chunks": ({"pp": 2, "chunks": 2}, {"use_distributed_optimizer": True, "overlap_grad_reduce": True, "bucket_size": 300}),
    "experts": ({"ep": 2}, {"overlap_grad_reduce": True, "bucket_size": 300}),
    "biased": ({"ep": 2, "biased": True}, {"use_distributed_optimizer": True, "average_in_collective": True}),
    "average": ({}, {"average_in_collective": True, "use_distributed_optimizer": True, "bucket_size": 300}),
}


EXPERTS = {"num_moe_experts": 4, "moe_router_topk": 2, "moe_ffn_hidden_size": 16, "moe_token_dispatcher_type": "alltoall", "add_bias_linear": False,
           "moe_router_load_balancing_type": "none", "expert_model_parallel_size": 2}
BIASED = {"moe_router_enable_expert_bias": True, "moe_router_score_function": "sigmoid"}


def wrapped(config, options, chunk, chunks):
    """A part of the model: that of this stage, or of several the one with this number."""
    where = {"ignore_virtual": False, "vp_stage": chunk} if chunks > 1 else {}
    model = GPTModel(config, get_gpt_layer_local_spec(num_experts=config.num_moe_experts), vocab_size=VOCABULARY, max_sequence_length=LENGTH,
                     position_embedding_type="learned_absolute", pre_process=parallel_state.is_pipeline_first_stage(**where),
                     post_process=parallel_state.is_pipeline_last_stage(**where), share_embeddings_and_output_weights=True,
                     **({"vp_stage": chunk} if chunks > 1 else {}))
    if config.bf16:
        model = Float16Module(config, model)
    return DistributedDataParallel(config, DistributedDataParallelConfig(grad_reduce_in_fp32=True, **options), model, disable_bucketing=chunk > 0)


def main(case):
    sizes, options = CASES[case]
    tp, pp, tokens_count, chunks = sizes.get("tp", 1), sizes.get("pp", 1), sizes.get("tokens", False), sizes.get("chunks", 1)
    dist.init_process_group("nccl")
    parallel_state.initialize_model_parallel(tensor_model_parallel_size=tp, pipeline_model_parallel_size=pp, create_gloo_process_groups=False,
                                             virtual_pipeline_model_parallel_size=chunks if chunks > 1 else None,
                                             expert_model_parallel_size=sizes.get("ep", 1), num_distributed_optimizer_instances=sizes.get("instances", 1))
    torch.manual_seed(3)
    more = {"pipeline_dtype": torch.float32, "batch_p2p_comm": False} if pp > 1 else {}
    more |= {"virtual_pipeline_model_parallel_size": chunks} if chunks > 1 else {}
    more |= {**EXPERTS, **(BIASED if "biased" in sizes else {})} if "ep" in sizes else {}
    types = {"bf16": True, "params_dtype": torch.bfloat16} if "mixed" in sizes else {}
    config = TransformerConfig(
        num_layers=pp * chunks, hidden_size=8 * tp, num_attention_heads=tp, ffn_hidden_size=8 * tp, use_cpu_initialization=True, attention_dropout=0.0,
        hidden_dropout=0.0, masked_softmax_fusion=False, bias_dropout_fusion=False, persist_layer_norm=False, tensor_model_parallel_size=tp,
        pipeline_model_parallel_size=pp, sequence_parallel=tp > 1, gradient_accumulation_fusion=False,
        calculate_per_token_loss=tokens_count, finalize_model_grads_func=finalize_model_grads, **more, **types)
    models = [wrapped(config, options, chunk, chunks) for chunk in range(chunks)]
    if options.get("overlap_grad_reduce"):
        config.no_sync_func = [model.no_sync for model in models] if chunks > 1 else models[0].no_sync
    optimizer = get_megatron_optimizer(OptimizerConfig(optimizer="adam", lr=0.01, clip_grad=0.0, **types, overlap_param_gather=options.get("overlap_param_gather", False),
                                                       use_distributed_optimizer=options.get("use_distributed_optimizer", False)),
                                       models, use_gloo_process_groups=False)
    data = dist.get_group_rank(parallel_state.get_data_parallel_group(), dist.get_rank())

    def forward_step(iterator, model):
        torch.manual_seed(100 * data + next(iterator))
        tokens = torch.randint(0, VOCABULARY, (1, LENGTH))
        output = model(tokens, torch.arange(LENGTH).view(1, -1), None, labels=tokens.roll(1, 1))
        if tokens_count:
            return output, lambda output: (output.float().sum(), torch.tensor(LENGTH, dtype=torch.int), {})
        return output, lambda output: (output.float().mean(), {})

    for step in range(3):
        for model in models:
            model.zero_grad_buffer()
        optimizer.zero_grad()
        own = [iter(range(10 * step, 10 * step + MICRO_BATCHES)) for _ in models]
        get_forward_backward_func()(forward_step_func=forward_step, data_iterator=own if chunks > 1 else own[0], model=models,
                                    num_microbatches=MICRO_BATCHES, seq_length=LENGTH, micro_batch_size=1)
        optimizer.step()


if __name__ == "__main__":
    main(sys.argv[1])
