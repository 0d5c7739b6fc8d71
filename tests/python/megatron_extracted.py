# SPDX-License-Identifier: Apache-2.0
"""A Megatron-core training script as people write it, for `lockstep extract`: megatron_extracted.py TP PP [CASE]: a GPTModel of PP layers with
sequence parallelism, 1F1B, tied embeddings and the distributed optimizer. CASE is "whole", without sequence parallelism, "queries", which has norms of each
rank's queries and keys beside, "experts", with experts on two ranks, or a mistake (MISTAKES).
"""

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
from megatron.core.transformer.transformer_config import TransformerConfig

LENGTH, VOCABULARY, MICRO_BATCHES = 8, 64, 2
FINALIZE = sys.modules["megatron.core.distributed.finalize_model_grads"]


def named(model, end):
    return [tensor for name, tensor in model.named_parameters() if name.endswith(end)]


def flag(end, attribute, value):
    def change(model):
        for tensor in named(model, end):
            setattr(tensor, attribute, value)
    return change


def nothing_summed_over_tp(model):
    FINALIZE._allreduce_non_tensor_model_parallel_grads = lambda *_, **__: None


def norms_summed_over_tp(model):
    """As of sequence parallelism, where each rank has the whole gradient."""
    def finalize(chunks, *arguments, **keys):
        for tensor in named(chunks[0], "layernorm.weight"):
            dist.all_reduce(tensor.main_grad, group=parallel_state.get_tensor_model_parallel_group())
        finalize_model_grads(chunks, *arguments, **keys)
    model.config.finalize_model_grads_func = finalize


def experts_as_dense(model):
    """Experts are reduced with other experts."""
    for name, tensor in model.named_parameters():
        if ".experts." in name:
            tensor.allreduce = True


def router_not_summed(model):
    for tensor in named(model, "router.weight"):
        tensor.sequence_parallel = False


# By name: with sequence parallelism or without, and what is done with the model.
MISTAKES = {
    "nothing-summed": (True, nothing_summed_over_tp),
    "norm-left-out": (True, flag("final_layernorm.weight", "sequence_parallel", False)),
    "bias-left-out": (True, flag("linear_fc2.bias", "sequence_parallel", False)),
    "norm-averaged": (True, flag("final_layernorm.weight", "average_gradients_across_tp_domain", True)),
    "embedding-summed": (True, flag("position_embeddings.weight", "sequence_parallel", True)),
    "norms-summed": (False, norms_summed_over_tp),
    "experts-as-dense": (True, experts_as_dense),
    "experts-router": (True, router_not_summed),
}


def main(tp, pp, case="sequences", distributed_optimizer=True, layers=None, **reduction):
    """`reduction`: of DistributedDataParallelConfig."""
    sequences, change = MISTAKES.get(case, (case in ("sequences", "experts"), lambda model: None))  # else a right one
    experts = {"num_moe_experts": 4, "moe_router_topk": 2, "moe_ffn_hidden_size": 16, "moe_token_dispatcher_type": "alltoall",
               "moe_router_load_balancing_type": "none", "add_bias_linear": False, "expert_model_parallel_size": 2} if case.startswith("experts") else {}
    dist.init_process_group("nccl")
    parallel_state.initialize_model_parallel(tensor_model_parallel_size=tp, pipeline_model_parallel_size=pp,
                                             expert_model_parallel_size=experts.get("expert_model_parallel_size", 1), create_gloo_process_groups=False)
    torch.manual_seed(3)
    config = TransformerConfig(
        num_layers=layers or pp, hidden_size=8 * tp, num_attention_heads=tp, ffn_hidden_size=8 * tp, use_cpu_initialization=True, attention_dropout=0.0,
        hidden_dropout=0.0, masked_softmax_fusion=False, bias_dropout_fusion=False, persist_layer_norm=False, tensor_model_parallel_size=tp,
        pipeline_model_parallel_size=pp, sequence_parallel=sequences and tp > 1, qk_layernorm=case == "queries", gradient_accumulation_fusion=False, finalize_model_grads_func=finalize_model_grads,
        **experts,
        **({"pipeline_dtype": torch.float32, "batch_p2p_comm": False} if pp > 1 else {}))
    model = GPTModel(config, get_gpt_layer_local_spec(num_experts=experts.get("num_moe_experts"), qk_layernorm=case == "queries"), vocab_size=VOCABULARY, max_sequence_length=LENGTH, position_embedding_type="learned_absolute",
                     pre_process=parallel_state.is_pipeline_first_stage(), post_process=parallel_state.is_pipeline_last_stage(),
                     share_embeddings_and_output_weights=True)
    change(model)
    model = DistributedDataParallel(config, DistributedDataParallelConfig(use_distributed_optimizer=distributed_optimizer, grad_reduce_in_fp32=True, **reduction), model)
    optimizer = get_megatron_optimizer(OptimizerConfig(optimizer="adam", lr=0.01, clip_grad=0.1, use_distributed_optimizer=distributed_optimizer), [model],
                                       use_gloo_process_groups=False)

    def forward_step(iterator, model):
        next(iterator)
        tokens = torch.randint(0, VOCABULARY, (1, LENGTH))
        output = model(tokens, torch.arange(LENGTH).view(1, -1), None, labels=tokens.roll(1, 1))
        return output, lambda output: (output.float().mean(), {})

    while True:
        model.zero_grad_buffer()
        optimizer.zero_grad()
        get_forward_backward_func()(forward_step_func=forward_step, data_iterator=iter(range(MICRO_BATCHES)), model=model, num_microbatches=MICRO_BATCHES,
                                    seq_length=LENGTH, micro_batch_size=1)
        optimizer.step()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])
