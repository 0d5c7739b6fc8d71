# SPDX-License-Identifier: Apache-2.0
"""One rank of runs of Megatron-core: megatron_worker.py FOLDER RANK WORLD CASE…. A case is a layout with options, and the one line, flag or
call of it that is another; those that are called right have none.

What runs is Megatron's: GPTModel with its parallel layers, DistributedDataParallel with its buckets, its pipeline schedules,
finalize_model_grads, its optimizers. Where it asks for CUDA it gets the CPU (tools/measure_megatron.py), and two kernels of Apex are replaced
by what they compute. There is no attention under context parallelism, which needs Transformer Engine: those models have none.
"""

import contextlib
import logging
import os
import sys
import types
import warnings
from unittest.mock import patch

os.environ["TORCH_COMPILE_DISABLE"] = "1"
warnings.simplefilter("ignore")
logging.disable(logging.WARNING)
sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tools"))

import measure_megatron
import torch
import torch.distributed as dist
import worker  # finds lockstep
from worker import CASES, seeded

import lockstep
from lockstep.extracting import megatron, shims  # noqa: F401 (what an extraction has done on the CPU as well)

measure_megatron.without_cuda()
torch.cuda.Stream.record_event = lambda *_: types.SimpleNamespace(synchronize=lambda: None)
shims.install()
# What a fused kernel of Apex adds to main_grad itself.
sys.modules["fused_weight_gradient_mlp_cuda"] = types.SimpleNamespace(
    wgrad_gemm_accum_fp32=lambda inputs, gradient, main_grad: main_grad.add_(gradient.t().matmul(inputs)))

from megatron.core import parallel_state
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
from megatron.core.distributed.finalize_model_grads import finalize_model_grads
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
from megatron.core.pipeline_parallel.schedules import get_forward_backward_func
from megatron.core.process_groups_config import ProcessGroupCollection
from megatron.core.tensor_parallel import layers
from megatron.core.transformer.identity_op import IdentityFuncOp, IdentityOp
from megatron.core.transformer.module import Float16Module
from megatron.core.transformer.transformer_config import TransformerConfig

FINALIZE = sys.modules["megatron.core.distributed.finalize_model_grads"]
LENGTH = 16


class Job:
    """Model, optimizer and loop of one case."""

    def __init__(self, layout, options):
        self.layout, self.options = dict({"tp": 1, "pp": 1, "cp": 1, "ep": 1, "chunks": 1}, **layout), options
        sizes = self.layout
        parallel_state.initialize_model_parallel(
            tensor_model_parallel_size=sizes["tp"], pipeline_model_parallel_size=sizes["pp"], context_parallel_size=sizes["cp"],
            expert_model_parallel_size=sizes["ep"], create_gloo_process_groups=False,
            virtual_pipeline_model_parallel_size=sizes["chunks"] if sizes["chunks"] > 1 else None)
        keys = {}
        if sizes["pp"] > 1:
            keys = {"pipeline_dtype": torch.float32, "batch_p2p_comm": False}
        if sizes["ep"] > 1:
            keys.update(num_moe_experts=2 * sizes["ep"], moe_router_topk=2, moe_ffn_hidden_size=16, moe_token_dispatcher_type="alltoall",
                        moe_router_load_balancing_type="none", add_bias_linear=False)
        if options.get("bf16"):
            keys.update(bf16=True, params_dtype=torch.bfloat16)
        self.config = TransformerConfig(
            num_layers=2 * sizes["chunks"], hidden_size=8, num_attention_heads=2, ffn_hidden_size=16, use_cpu_initialization=True,
            attention_dropout=0.0, hidden_dropout=0.0, masked_softmax_fusion=False, bias_dropout_fusion=False, persist_layer_norm=False,
            tensor_model_parallel_size=sizes["tp"], pipeline_model_parallel_size=sizes["pp"], context_parallel_size=sizes["cp"],
            expert_model_parallel_size=sizes["ep"], sequence_parallel=sizes["tp"] > 1, gated_linear_unit=options.get("gated", False),
            virtual_pipeline_model_parallel_size=sizes["chunks"] if sizes["chunks"] > 1 else None,
            calculate_per_token_loss=options.get("per_token", False), gradient_accumulation_fusion=options.get("fused", False),
            deallocate_pipeline_outputs=sizes["pp"] > 1, recompute_granularity="full" if options.get("recompute") else None,
            recompute_method="uniform" if options.get("recompute") else None, recompute_num_layers=1 if options.get("recompute") else None,
            **keys)
        self.config.finalize_model_grads_func = options.get("finalize", finalize_model_grads)
        spec = get_gpt_layer_local_spec(num_experts=self.config.num_moe_experts)
        if sizes["cp"] > 1:
            for name, other in (("self_attention", IdentityOp), ("self_attn_bda", IdentityFuncOp), ("input_layernorm", IdentityOp)):
                setattr(spec.submodules, name, other)
        self.chunks = [self.wrapped(spec, chunk) for chunk in range(sizes["chunks"])]
        if options.get("overlap"):
            self.config.no_sync_func = self.chunks[0].no_sync
        self.optimizer = get_megatron_optimizer(
            OptimizerConfig(optimizer="adam", lr=0.01, clip_grad=0.1, bf16=options.get("bf16", False),
                            use_distributed_optimizer=options.get("distributed", False)),
            self.chunks, use_gloo_process_groups=False)

    def wrapped(self, spec, chunk):
        virtual = chunk if self.layout["chunks"] > 1 else None
        seeded(3)
        model = GPTModel(self.config, spec, vocab_size=self.options.get("vocabulary", 32), max_sequence_length=LENGTH,
                         position_embedding_type="learned_absolute",
                         pre_process=parallel_state.is_pipeline_first_stage(ignore_virtual=virtual is None, vp_stage=virtual),
                         post_process=parallel_state.is_pipeline_last_stage(ignore_virtual=virtual is None, vp_stage=virtual),
                         share_embeddings_and_output_weights=self.options.get("tied", True), vp_stage=virtual)
        if self.options.get("bf16"):
            model = Float16Module(self.config, model)
        if "model" in self.options:
            self.options["model"](model)
        ddp_config = DistributedDataParallelConfig(
            use_distributed_optimizer=self.options.get("distributed", False), overlap_grad_reduce=self.options.get("overlap", False),
            bucket_size=300 if self.options.get("overlap") else None, average_in_collective=self.options.get("average", False),
            grad_reduce_in_fp32=True)
        ddp = DistributedDataParallel(self.config, ddp_config, model, disable_bucketing=chunk > 0)
        if "ddp" in self.options:
            self.options["ddp"](ddp)
        return ddp

    def forward_step(self, iterator, model):
        micro_batch = next(iterator)
        if "before_forward" in self.options:
            self.options["before_forward"](model, micro_batch)
        data = dist.get_group_rank(parallel_state.get_data_parallel_group(with_context_parallel=True), dist.get_rank())
        seeded(data, self.step, micro_batch)
        length = LENGTH // self.layout["cp"]
        tokens = torch.randint(0, 32, (1, length))
        counted = self.options.get("tokens", lambda data, micro: length)(data, micro_batch)
        output = model(tokens, torch.arange(length).view(1, -1), None, labels=tokens.roll(1, 1))

        def loss(output):
            total = output.flatten()[:counted].float().sum()
            return total, torch.tensor(counted, dtype=torch.int), {}
        return output, loss

    def train(self, out, loss, capture, steps=2, micro_batches=2):
        told = lockstep.capture(self.chunks if len(self.chunks) > 1 else self.chunks[0], self.optimizer, out=out, loss=loss,
                                report=False) if capture else contextlib.nullcontext()
        with told:
            for self.step in range(steps):
                for ddp in self.chunks:
                    ddp.zero_grad_buffer()
                self.optimizer.zero_grad()
                iterators = [iter(range(micro_batches)) for _ in self.chunks]
                get_forward_backward_func()(
                    forward_step_func=self.forward_step, data_iterator=iterators if len(iterators) > 1 else iterators[0],
                    model=self.chunks if len(self.chunks) > 1 else self.chunks[0], num_microbatches=micro_batches,
                    seq_length=LENGTH, micro_batch_size=1)
                self.optimizer.step()
        return torch.cat([tensor.detach().float().flatten() for ddp in self.chunks for tensor in ddp.parameters()])


def case(name, world, layout=None, loss="local_mean", around=contextlib.nullcontext, steps=2, micro_batches=2, unchanged=False, **options):
    def run(out):
        def trained(capture):
            try:
                with around():
                    return Job(layout or {}, options).train(out, loss, capture, steps, micro_batches)
            finally:
                parallel_state.destroy_model_parallel()
        captured = trained(True)
        if unchanged:
            assert torch.equal(captured, trained(False)), "the capture has changed the numbers of the training"
    CASES[name] = (world, run)


def named(model, end):
    found = [tensor for name, tensor in model.named_parameters() if name.endswith(end)]
    assert len(found) == 1, (end, [name for name, _ in model.named_parameters()])
    return found[0]


# Data parallelism.

def scaled_by(factor):
    def change(ddp):
        for group in ddp.bucket_groups + ddp.expert_parallel_bucket_groups:
            for bucket in group.buckets:
                bucket.gradient_scaling_factor = factor(ddp)
    return change


def zero_first(model, micro_batch):
    model.zero_grad_buffer()


def reduce_first(model, micro_batch):
    if micro_batch == 1:
        model.finish_grad_sync()


def uneven(data, micro_batch):
    return ((3, 5), (2, 10))[data % 2][micro_batch]


case("megatron-right", 2, unchanged=True)
case("megatron-distributed-right", 2, unchanged=True, distributed=True)
case("megatron-overlap-right", 2, unchanged=True, distributed=True, overlap=True)
case("megatron-average-right", 2, average=True, distributed=True)
case("megatron-bf16-right", 2, bf16=True)
case("megatron-bf16-distributed-right", 2, bf16=True, distributed=True)
case("megatron-fused-right", 2, unchanged=True, fused=True)
case("megatron-recompute-right", 2, recompute=True, tied=False)
case("megatron-tokens-right", 2, loss="token_sum", per_token=True, tokens=uneven, distributed=True)
case("megatron-never", 2, finalize=lambda *_, **__: None)
case("megatron-average", 2, average=True, ddp=scaled_by(lambda ddp: 1 / ddp.dp_cp_group.size()))
case("megatron-zeroed", 2, before_forward=zero_first)
case("megatron-early", 2, before_forward=reduce_first, finalize=lambda *_, **__: None)
case("megatron-every", 2, before_forward=reduce_first, distributed=True)
case("megatron-tokens", 2, loss="token_mean", tokens=uneven)


# Tensor parallelism with sequence parallelism.

def flag(end, **attributes):
    def change(model):
        for name, value in attributes.items():
            setattr(named(model, end), name, value)
    return change


case("megatron-sp-right", 2, {"tp": 2}, unchanged=True)
case("megatron-sp-gated-right", 2, {"tp": 2}, gated=True, tied=False)
case("megatron-norm", 2, {"tp": 2}, model=flag("final_layernorm.weight", sequence_parallel=False))
case("megatron-norm-average", 2, {"tp": 2}, model=flag("final_layernorm.weight", average_gradients_across_tp_domain=True))
case("megatron-flag", 2, {"tp": 2}, model=flag("position_embeddings.weight", sequence_parallel=True))
case("megatron-tp-dp-right", 4, {"tp": 2}, distributed=True)


# Pipelines with a tied embedding.

def not_alone(model):
    if hasattr(model, "shared_embedding_or_output_weight"):
        model.shared_embedding_or_output_weight().shared_embedding = False


case("megatron-pp-right", 4, {"pp": 2}, unchanged=True)
case("megatron-pp-distributed-right", 4, {"pp": 2}, distributed=True)
case("megatron-interleaved-right", 2, {"pp": 2, "chunks": 2})
# So many that each stage cuts its copy, and at another place.
case("megatron-844", 4, {"pp": 2}, distributed=True, micro_batches=1, model=not_alone, vocabulary=160)
case("megatron-656", 4, {"pp": 2}, distributed=True, overlap=True, model=not_alone)
case("megatron-tied", 4, {"pp": 2}, around=lambda: patch.object(FINALIZE, "_allreduce_word_embedding_grads", lambda *_, **__: None))


# Context parallelism.

def over_dp(model, tokens=None, pg_collection=None, **keys):
    """The count of tokens over dp without cp, as of 0.7.0 to 0.12.0."""
    groups = ProcessGroupCollection()
    for name in ("tp", "pp", "embd", "pos_embd"):
        setattr(groups, name, getattr(pg_collection, name))
    groups.dp_cp = parallel_state.get_data_parallel_group()
    finalize_model_grads(model, tokens, pg_collection=groups, **keys)


case("megatron-cp-right", 2, {"cp": 2}, loss="token_sum", per_token=True, tokens=uneven)
case("megatron-cp-tokens", 2, {"cp": 2}, loss="token_sum", per_token=True, tokens=uneven, finalize=over_dp)
case("megatron-cp-scale", 4, {"cp": 2}, ddp=scaled_by(lambda ddp: 1 / ddp.dp_group.size()))


# Experts.

def dense_group(model):
    for name, tensor in model.named_parameters():
        if ".local_experts." in name:
            tensor.allreduce = True


case("megatron-ep-right", 2, {"ep": 2}, distributed=True)
case("megatron-ep-dp-right", 4, {"ep": 2}, distributed=True)
case("megatron-ep-factor", 4, {"ep": 2}, average=True, ddp=scaled_by(lambda ddp: 1.0))
case("megatron-ep-dense", 2, {"ep": 2}, model=dense_group)


def refused(out):
    """What cannot be captured, with a word of the sentence that says so."""
    job = Job({}, {"distributed": True})
    ddp, optimizer = job.chunks[0], job.optimizer

    class FullyShardedDataParallel(torch.nn.Linear):
        """By its name and package Megatron's."""

    FullyShardedDataParallel.__module__ = "megatron.core.distributed.fsdp.mcore_fsdp_adapter"

    def delayed():
        with patch.object(ddp.ddp_config, "delay_wgrad_compute", True):
            lockstep.capture(ddp, optimizer, out=out)

    def owned_elsewhere():
        owned = {"param": types.SimpleNamespace(start=1, end=2)}
        with patch.object(optimizer.chained_optimizers[0], "_get_model_param_range_map", lambda tensor: owned):
            lockstep.capture(ddp, optimizer, out=out)

    def compiled():
        def function():
            """By its attribute one that torch.compile has made."""
        function._is_torch_compile = True
        with patch.object(torch._dynamo.config, "disable", False), patch.object(layers, "compiled", function, create=True), \
                patch("lockstep.adapters.megatron.run_uncompiled", lambda: True):  # an older torch
            lockstep.capture(ddp, optimizer, out=out, collectives=False)
            lockstep.capture(ddp, optimizer, out=out)

    for refuse, word in ((lambda: lockstep.capture(ddp, torch.optim.SGD(ddp.parameters()), out=out), "get_megatron_optimizer"),
                         (lambda: lockstep.capture(ddp, out=out), "needs its optimizer"),
                         (lambda: lockstep.capture([ddp, torch.nn.Linear(1, 1)], optimizer, out=out), "a Linear among its chunks"),
                         (lambda: lockstep.capture(FullyShardedDataParallel(1, 1), optimizer, out=out), "FullyShardedDataParallel"),
                         (delayed, "delay_wgrad_compute"), (owned_elsewhere, "[1, 2)"), (compiled, "collectives=False")):
        try:
            refuse()
        except lockstep.CaptureError as error:
            assert word in str(error), (word, str(error))
        else:
            raise AssertionError("captured, where a sentence with %s was expected" % word)
    parallel_state.destroy_model_parallel()
    try:
        lockstep.capture(ddp, optimizer, out=out)
    except lockstep.CaptureError as error:
        assert "parallel_state is not initialized" in str(error)
    else:
        raise AssertionError("captured without a mesh")


CASES["refused"] = (2, refused)


def main():
    measure_megatron.one_group_for_each_set_of_ranks()
    worker.main()


if __name__ == "__main__":
    main()
