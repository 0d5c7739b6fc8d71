# SPDX-License-Identifier: Apache-2.0
"""What Megatron-core needs of a GPU, done on the CPU (shims.py). Kernels are replaced by what they compute; none of it touches a gradient behind backward."""

import contextlib
import sys
import types

import torch

from lockstep.extracting import shims


class LayerNorm:
    """Apex's kernel."""

    @staticmethod
    def forward(inputs, weight, bias, shape, epsilon):
        return torch.nn.functional.layer_norm(inputs, shape, weight, bias, epsilon)

    apply = forward


class NoStates:
    """Megatron's states of CUDA's random numbers: none are drawn here."""

    @staticmethod
    def fork(*_):
        return contextlib.nullcontext()

    @staticmethod
    def is_initialized():
        return False

    @staticmethod
    def get_states():
        return {}

    @staticmethod
    def set_states(states):
        pass

    @staticmethod
    def add(*_):
        pass

    reset = add


def add_to_main_grad(inputs, gradient, main_grad):
    main_grad.add_(gradient.t().matmul(inputs))


def install():
    """Before anything of Megatron is imported."""
    if "fused_weight_gradient_mlp_cuda" not in sys.modules:
        sys.modules["fused_weight_gradient_mlp_cuda"] = types.SimpleNamespace(
            wgrad_gemm_accum_fp32=add_to_main_grad, wgrad_gemm_accum_fp16=add_to_main_grad)
    type_of = torch.Tensor.type

    def type_here(tensor, *arguments, **keys):
        """Megatron sorts gradients by the names of CUDA's types."""
        name = type_of(tensor, *arguments, **keys)
        asks = sys._getframe(1).f_globals.get("__name__", "").startswith("megatron.") and not arguments and not keys
        return name.replace("torch.", "torch.cuda.") if asks and isinstance(name, str) else name
    torch.Tensor.type = type_here


@shims.of("megatron.core.fusions.fused_layer_norm")
def layer_norm(module):
    module.HAVE_FUSED_LAYER_NORM, module.FusedLayerNormAffineFunction = True, LayerNorm


@shims.of("megatron.core.models.backends")
def norm_of_backends(module):
    from megatron.core.fusions.fused_layer_norm import FusedLayerNorm

    module.HAVE_APEX, module.LNImpl = True, FusedLayerNorm


@shims.of("megatron.core.transformer.transformer_block")
def norm_of_blocks(module):
    from megatron.core.fusions.fused_layer_norm import FusedLayerNorm

    module.LayerNormImpl = FusedLayerNorm


@shims.of("megatron.core.tensor_parallel.random")
@shims.of("megatron.core.tensor_parallel.layers")
@shims.of("megatron.core.tensor_parallel")
def no_states(module):
    module.get_cuda_rng_tracker = lambda *_, **__: NoStates
    if hasattr(module, "_get_cuda_rng_state"):
        module._get_cuda_rng_state, module._set_cuda_rng_state = lambda **_: None, lambda *_, **__: None
    if hasattr(module, "model_parallel_cuda_manual_seed"):
        module.model_parallel_cuda_manual_seed = lambda *_, **__: None


@shims.of("megatron.core.transformer.moe.token_dispatcher")
def on_cpu_already(module):
    module.maybe_move_tensor_to_cpu = lambda tensor, as_numpy=False, **_: tensor.numpy() if as_numpy and tensor is not None else tensor


@shims.of("megatron.core.transformer.moe.moe_utils")
def no_transformer_engine(module):
    module.te_general_gemm = None  # looked for where there is no Transformer Engine as well


@shims.of("megatron.core.optimizer")
def begin_with_the_optimizer(module):
    """The capture begins when Megatron's optimizer is there: it knows the model's chunks."""
    original = module.get_megatron_optimizer

    def get_megatron_optimizer(config, model_chunks, *arguments, **keys):
        optimizer = original(config, model_chunks, *arguments, **keys)
        shims.optimizer_made(list(model_chunks), optimizer)
        return optimizer
    module.get_megatron_optimizer = get_megatron_optimizer
