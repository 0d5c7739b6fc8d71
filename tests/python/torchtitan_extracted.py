# SPDX-License-Identifier: Apache-2.0
"""torchtitan's models as its own parallelize functions cut them, for `lockstep extract`: torchtitan_extracted.py MODEL [KEY=NUMBER …] [MISTAKE], where MODEL
is llama3 or deepseek_v3 and a key is replicate, tp, ep, steps, accumulate or clip. What is left of the ranks is FSDP2's. The loop is that of torchtitan's
`train_step`: the sum of the loss is divided by the tokens of all before backward. A mistake is made in a copy of the parallelize function (MISTAKES).
"""

import inspect
import os
import sys
import types

import torch
import torch.distributed as dist


def without_triton():
    """torchtitan imports kernels that it calls on GPUs alone: where triton is missing, as beside torch's build for the CPU, they are only defined."""
    def kept(function=None, **_):
        return function if function is not None else kept

    import torch._inductor.codecache  # noqa: F401  which asks for triton as well, and is to find none

    triton, language = types.ModuleType("triton"), types.ModuleType("triton.language")
    triton.language, triton.jit, triton.autotune, triton.Config = language, kept, lambda *_, **__: kept, dict
    for name in ("bfloat16", "float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "constexpr"):
        setattr(language, name, object)
    language.pointer_type = lambda _: object
    stubs = {"triton": triton, "triton.language": language}
    sys.modules.update(stubs)
    import torchtitan.distributed.minimal_async_ep  # noqa: F401
    for name in stubs:
        del sys.modules[name]


try:
    import triton  # noqa: F401
except ImportError:
    without_triton()

from torchtitan.config import CompileConfig, ParallelismConfig, TrainingConfig  # noqa: E402
from torchtitan.distributed import ParallelDims, utils  # noqa: E402
from torchtitan.models.common.attention import ScaledDotProductAttention  # noqa: E402

# By name: what stands in torchtitan's function, and what stands in the copy.
MISTAKES = {
    "replicas-forgotten": ('["dp_replicate", "fsdp"] if parallel_dims.dp_replicate_enabled else ["fsdp"]', '["fsdp"]'),
    "replicas-of-experts-forgotten": ('["dp_replicate", "efsdp"]', '["efsdp"]'),
    "divided": ("return model", "[m.set_gradient_divide_factor(None) for m in model.modules() if hasattr(m, 'set_gradient_divide_factor')]\n    return model"),
    "last-layer-not-reduced": ("return model", "model.layers['1'].set_requires_gradient_sync(False)\n    return model"),
}
VOCABULARY, LENGTH, BATCH = 64, 16, 2


def llama3():
    from torchtitan.models import llama3 as family
    from torchtitan.models.common import ComplexRoPE, Embedding, Linear, RMSNorm

    dim, heads = 32, 8
    return family.parallelize_llama, family.Llama3Model.Config(
        dim=dim, vocab_size=VOCABULARY,
        tok_embeddings=Embedding.Config(num_embeddings=VOCABULARY, embedding_dim=dim, param_init=family._EMBEDDING_INIT),
        norm=RMSNorm.Config(normalized_shape=dim, param_init=family._NORM_INIT),
        lm_head=Linear.Config(in_features=dim, out_features=VOCABULARY, param_init=family._output_linear_init(dim)),
        layers=family._build_llama3_layers(n_layers=2, dim=dim, n_heads=heads, hidden_dim=64, attn_backend="flex",
                                           rope=ComplexRoPE.Config(dim=dim // heads, max_seq_len=LENGTH, theta=500000, scaling="llama")))


def deepseek_v3():
    from torchtitan.models import deepseek_v3 as family
    from torchtitan.models.common import ComplexRoPE, Embedding, Linear, RMSNorm

    dim, heads = 32, 8
    layers = family._build_dsv3_layers(
        n_layers=2, n_dense_layers=1, dim=dim, n_heads=heads, q_lora_rank=0, kv_lora_rank=16, qk_nope_head_dim=4, qk_rope_head_dim=4, v_head_dim=4,
        mscale=0.7, dense_hidden_dim=64, moe_hidden_dim=16, num_experts=8, num_shared_experts=1, router_top_k=2, router_score_func="softmax",
        attn_backend="flex", moe_comm_backend="standard", non_blocking_capacity_factor=None,
        rope=ComplexRoPE.Config(dim=4, max_seq_len=LENGTH, theta=10000.0, scaling="none"))
    return family.parallelize_deepseekv3, family.DeepSeekV3Model.Config(
        dim=dim, vocab_size=VOCABULARY,
        tok_embeddings=Embedding.Config(num_embeddings=VOCABULARY, embedding_dim=dim, param_init=family._EMBEDDING_INIT),
        norm=RMSNorm.Config(normalized_shape=dim, param_init=family._NORM_INIT),
        lm_head=Linear.Config(in_features=dim, out_features=VOCABULARY, param_init=family._output_linear_init(dim)), layers=layers)


def shard(config, parallelism):
    """What `update_from_config` does of it, which imports the whole trainer first, with data sets."""
    from torchtitan.models.deepseek_v3.sharding import set_deepseek_v3_sharding_config
    from torchtitan.models.llama3.sharding import set_llama3_sharding_config

    if "llama3" in type(config).__module__:
        set_llama3_sharding_config(config, enable_sp=parallelism.enable_sequence_parallel)
    else:
        set_deepseek_v3_sharding_config(config, enable_sp=parallelism.enable_sequence_parallel, enable_ep=parallelism.expert_parallel_degree > 1)


def with_mistake(function, mistake):
    text, (right, wrong) = inspect.getsource(function), MISTAKES[mistake]
    assert text.count(right) == 1, "torchtitan has other code: " + right
    names = dict(vars(sys.modules[function.__module__]))
    exec(compile(text.replace(right, wrong), "parallelize.py", "exec"), names)  # noqa: S102
    return names[function.__name__]


def main(name, options, mistakes):
    dist.init_process_group("gloo")
    backend = "partial_dtensor"  # of torchtitan's others torch 2.13's fully_shard takes no parameters
    parallelism = ParallelismConfig(data_parallel_replicate_degree=options.get("replicate", 1), tensor_parallel_degree=options.get("tp", 1),
                                    expert_parallel_degree=options.get("ep", 1), spmd_backend=backend)
    training = TrainingConfig(local_batch_size=BATCH, seq_len=LENGTH, mixed_precision_param="float32", mixed_precision_reduce="float32")
    dims = ParallelDims.from_config(parallelism, dist.get_world_size())
    dims.build_mesh()
    utils.set_spmd_backend(backend)
    parallelize, config = {"llama3": llama3, "deepseek_v3": deepseek_v3}[name]()
    for mistake in mistakes:
        parallelize = with_mistake(parallelize, mistake)
    for layer in config.layers:
        layer.attention.inner_attention = ScaledDotProductAttention.Config()  # the others have no kernels for CPUs
    shard(config, parallelism)
    torch.manual_seed(1)
    with torch.device("meta"):
        model = config.build()
    model = parallelize(model, parallel_dims=dims, training=training, parallelism=parallelism, compile_config=CompileConfig(enable=False), ac_config=None,
                        dump_folder=os.devnull)
    model.to_empty(device="cpu")
    with torch.no_grad():
        model.init_weights(buffer_device=None)
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=True)
    train(model, optimizer, dims, options)
    dist.destroy_process_group()


def train(model, optimizer, dims, options):
    batch = dims.get_optional_mesh("batch")
    context = utils.get_spmd_context(parallel_dims=dims)
    for step in range(options.get("steps", 1)):
        optimizer.zero_grad()
        torch.manual_seed(1000 * step + (batch.get_local_rank() if batch is not None else 0))
        for _ in range(options.get("accumulate", 1)):
            tokens = torch.randint(VOCABULARY, (BATCH, LENGTH + 1))
            with context():
                predicted = model(tokens[:, :-1])
                full = predicted.full_tensor() if hasattr(predicted, "full_tensor") else predicted
                loss = torch.nn.functional.cross_entropy(full.flatten(0, 1).float(), tokens[:, 1:].flatten(), reduction="sum")
                (loss / (BATCH * LENGTH * (batch.size() if batch is not None else 1))).backward()
        utils.clip_grad_norm_(list(model.parameters()), options.get("clip", 1.0), foreach=True, ep_enabled=dims.ep_enabled)
        optimizer.step()


if __name__ == "__main__":
    words = [one.split("=") for one in sys.argv[2:]]
    main(sys.argv[1], {word[0]: int(word[1]) for word in words if len(word) == 2}, [word[0] for word in words if len(word) == 1])
