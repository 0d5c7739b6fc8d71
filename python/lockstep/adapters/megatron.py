# SPDX-License-Identifier: Apache-2.0
"""Megatron-core: its DistributedDataParallel, one chunk or several, with Megatron's optimizers, distributed or not.

Megatron adds each micro-batch to main_grad in buffers of its own, reduces these, and copies what a rank owns to its optimizer's parameters.
Which gradients a rank holds of a parameter follows from the parameter's tensor-parallel attributes, from where its experts stand, and from
the optimizer's equal parts of each bucket, whatever their collectives then do. Attributes that only say what Megatron is to reduce, such as
sequence_parallel, are not believed: they may be the mistake.
"""

import itertools
import json
import sys
import types

import torch
import torch.distributed as dist

from lockstep.adapters.plain import Plain
from lockstep.collectives import run_uncompiled
from lockstep.cuts import Cut
from lockstep.errors import CaptureError
from lockstep.losses import Told
from lockstep.optimizers import Replaced
from lockstep.parameters import Parameters

OPTIMIZERS = ("DistributedOptimizer", "Float16OptimizerWithFloat16Params", "FP32Optimizer")
# Options with which gradients do not come from autograd's passes, or not one pass for each micro-batch.
UNKNOWN = ("delay_wgrad_compute", "defer_embedding_wgrad_compute", "overlap_moe_expert_parallel_comm", "enable_cuda_graph",
           "external_cuda_graph")

exchanges = itertools.count()


def mesh():
    """What lockstep.capture takes as mesh: Megatron's dense grid, read off the strides of this rank's groups."""
    from megatron.core import parallel_state as state

    if not state.model_parallel_is_initialized():
        raise CaptureError("megatron.core.parallel_state is not initialized, from which captures know the mesh: call initialize_model_parallel"
                           " first")
    groups = {"pp": state.get_pipeline_model_parallel_group(), "dp": state.get_data_parallel_group(),
              "cp": state.get_context_parallel_group(), "tp": state.get_tensor_model_parallel_group()}
    ranks = {axis: dist.get_process_group_ranks(group) for axis, group in groups.items()}
    axes = sorted((axis for axis in ranks if len(ranks[axis]) > 1), key=lambda axis: ranks[axis][0] - ranks[axis][1])
    stride = 1
    for axis in reversed(axes):
        if any(after - before != stride for before, after in zip(ranks[axis], ranks[axis][1:])):
            raise CaptureError("the ranks %s of group %s are no axis of a grid: say mesh={…}, the last axis varies fastest"
                               % (ranks[axis], axis))
        stride *= len(ranks[axis])
    return {axis: len(ranks[axis]) for axis in axes} or {"dp": 1}


def leaves(optimizer):
    """Megatron's optimizers that have parameters themselves, below those that chain several."""
    names = {kind.__name__ for kind in type(optimizer).__mro__}
    if hasattr(optimizer, "chained_optimizers"):
        return [leaf for one in optimizer.chained_optimizers for leaf in leaves(one)]
    if names.isdisjoint(OPTIMIZERS):
        raise CaptureError("optimizer is a %s: expected what megatron.core.optimizer.get_megatron_optimizer returns"
                           % type(optimizer).__name__)
    return [optimizer]


def inner(chunk):
    """The model below Megatron's wrappers, so that its names are those of the model."""
    while type(chunk).__name__ in ("DistributedDataParallel", "Float16Module"):
        chunk = chunk.module
    return chunk


def has_compiled_functions():
    """Whether Megatron's modules have functions that torch compiles: its jit_fuser makes them as they are imported."""
    dynamo = sys.modules.get("torch._dynamo")
    if dynamo is None or dynamo.config.disable:
        return False
    modules = [module for name, module in list(sys.modules.items()) if name.startswith("megatron.core") and module is not None]
    functions = [value for module in modules for value in list(vars(module).values()) if isinstance(value, types.FunctionType)]
    return any("_is_torch_compile" in vars(function) for function in functions)


class Megatron(Plain):
    name, averages = "megatron", None
    in_grad = False
    holds_plain = False

    def __init__(self, model, optimizer, run):
        from megatron.core import parallel_state

        self.run, self.state = run, parallel_state
        self.chunks = list(model) if isinstance(model, (list, tuple)) else [model]
        if optimizer is None:
            raise CaptureError("a capture of Megatron-core needs its optimizer: lockstep.capture(model, optimizer, …)")
        self.optimizers = [leaf for one in (optimizer if isinstance(optimizer, (list, tuple)) else [optimizer]) for leaf in leaves(one)]
        self.refuse()
        self.modules = torch.nn.ModuleList([inner(chunk) for chunk in self.chunks])
        self.renames = dict(self.renamed_modules())
        self.borders = {id(tensor): borders for tensor, borders in self.owners_borders()}
        self.chunk_of = {id(tensor): number for number, module in enumerate(self.modules) for tensor in module.parameters()}
        self.numbered = {id(tensor) for name, tensor in self.modules.named_parameters() if ".local_experts." in name}
        shared = self.join_shared_embeddings()
        self.check_owned()
        self.cuts = {}
        self.parameters = Parameters(self.modules, run.contribute, lambda tensor: self.cut_of(tensor).pieces,
                                     lambda tensor: self.cut_of(tensor).shape, self.renamed)
        for parameter in self.parameters.all:
            parameter.chunk = self.chunk_of[id(parameter.held)]
            # What is cut has several pieces; of the rest ranks have shares or the same, which only the bits tell.
            parameter.placed = ["tp"] if run.bits_tell or getattr(parameter.held, "tensor_model_parallel", False) else []
        for tensor, names in shared:
            parameter = self.parameters.by_tensor[id(tensor)]
            parameter.aliases += [name for name in names if name != parameter.name and name not in parameter.aliases]
        self.stages_send_parts_along = ["tp"] if any(getattr(chunk.config, "sequence_parallel", False) for chunk in self.chunks) else []
        self.fused = any(getattr(chunk.config, "gradient_accumulation_fusion", False) for chunk in self.chunks)
        self.before, self.step = {}, None

    def told_loss(self):
        if any(getattr(chunk.config, "calculate_per_token_loss", False) for chunk in self.chunks):
            return Told("token_sum", "Megatron-core's calculate_per_token_loss divides by the tokens of all after the last backward pass", divides=True)
        return Told("local_mean", "Megatron-core's schedules divide a micro-batch's loss by the micro-batches, and by its tokens where they are told them", divides=True)

    def watch_calls(self, roots):
        return []

    def refuse(self):
        for chunk in self.chunks:
            if type(chunk).__name__ != "DistributedDataParallel":
                raise CaptureError("the model has a %s among its chunks: captures know those in megatron.core's DistributedDataParallel"
                                   % type(chunk).__name__)
            for config in (chunk.config, chunk.ddp_config):
                for option in UNKNOWN:
                    if getattr(config, option, False):
                        raise CaptureError("with %s, Megatron-core's gradients do not come from one backward pass for each micro-batch:"
                                           " turn it off for the capture" % option)
            if getattr(chunk.config, "cuda_graph_impl", "none") != "none":
                raise CaptureError("with cuda_graph_impl, Megatron-core's gradients come from no backward pass: turn it off for the capture")
        if self.run.with_collectives and run_uncompiled() and has_compiled_functions():
            raise CaptureError("Megatron-core's own functions are compiled, and while collectives are recorded torch %s would run them uncompiled,"
                               " with other numbers: give collectives=False, or set TORCH_COMPILE_DISABLE=1 for the whole run" % torch.__version__)

    def versions(self):
        import megatron.core

        return {"megatron-core": megatron.core.__version__}

    # Names and pieces.

    def renamed_modules(self):
        """Modules whose number counts a rank's own layers or experts: (their path, the number in the whole model)."""
        for path, module in self.modules.named_modules():
            number = path.rsplit(".", 1)[-1]
            if number.isdigit() and "." in path and isinstance(getattr(module, "layer_number", None), int):
                yield path, module.layer_number - 1
            if hasattr(module, "local_experts"):
                count = len(module.local_experts)
                for one in range(count):
                    yield "%s.local_experts.%d" % (path, one), self.state.get_expert_model_parallel_rank() * count + one

    def renamed(self, name):
        parts = name.split(".")
        after = [str(self.renames.get(".".join(parts[:place + 1]), part)) for place, part in enumerate(parts)]
        return ".".join(after[1:])  # the first one is the chunk's number

    def owners_borders(self):
        """(parameter, local places between parts that different ranks of the distributed optimizer own)."""
        for chunk in self.chunks:
            for buffer in chunk.buffers + chunk.expert_parallel_buffers if chunk.ddp_config.use_distributed_optimizer else []:
                for tensor, (begin, end, number) in buffer.param_index_map.items():
                    bucket = buffer.buckets[number]
                    size = bucket.grad_data.numel() // buffer.data_parallel_group.size()
                    first = bucket.offset + -(-(begin - bucket.offset) // size) * size
                    yield tensor, [border - begin for border in range(first, end, size) if border > begin]

    def check_owned(self):
        """Refuses what the pieces cannot say."""
        for optimizer in self.optimizers:
            for tensor in getattr(optimizer, "model_param_gbuf_map", {}):
                owned = optimizer._get_model_param_range_map(tensor)["param"]
                if not {owned.start, owned.end} <= {0, tensor.numel(), *self.borders.get(id(tensor), [])}:
                    name = next(name for name, other in self.modules.named_parameters() if other is tensor)
                    raise CaptureError("the distributed optimizer owns the elements [%d, %d) of %s, and the reduce-scatter of its bucket gives"
                                       " other parts to the ranks: they must be the same" % (owned.start, owned.end, self.renamed(name)))

    def join_shared_embeddings(self):
        """(tensor, names of it on all stages) of the word embedding that several stages have, whose borders become those of all of them:
        each stage's distributed optimizer cuts its copy as its own buckets are."""
        # Releases before 0.13 have no `check_initialized`, and refuse where there is no group.
        group = getattr(self.state, "_EMBEDDING_GROUP", None)
        ranks = dist.get_process_group_ranks(group) if group is not None else []
        if len(ranks) < 2 or dist.get_rank() not in ranks:
            return []
        own = {}
        for number, module in enumerate(self.modules):
            if getattr(module, "share_embeddings_and_output_weights", False) or getattr(self.chunks[number].config, "mtp_num_layers", None):
                tensor = module.shared_embedding_or_output_weight()
                names = [name for name, other in module.named_parameters() if other is tensor]
                own.update({self.renamed("%d.%s" % (number, name)): tensor for name in names})
        # The store that made the process groups: no collective of a capture's own comes between those of the training.
        store, place = dist.distributed_c10d._get_default_store(), "lockstep/embeddings/%d/" % next(exchanges)
        # Ranks of a stage cut it in the same way: where not all are there, one says it for all (an extraction, each of whose programs names parts of its own).
        keys = [place + str(rank if self.run.bits_tell else number) for number, rank in enumerate(ranks)]
        store.set(keys[ranks.index(dist.get_rank())], json.dumps({name: self.borders.get(id(tensor), []) for name, tensor in own.items()}))
        everybody = {}
        for key in keys:
            everybody.update(json.loads(store.get(key)))
        for tensor in own.values():
            self.borders[id(tensor)] = sorted({border for borders in everybody.values() for border in borders})
        return [(tensor, sorted(everybody)) for tensor in own.values()]

    def cut_of(self, tensor):
        """How the ranks cut the whole parameter of which `tensor` is this rank's part."""
        if id(tensor) not in self.cuts:
            state, expert = self.state, not getattr(tensor, "allreduce", True)
            tp = (state.get_expert_tensor_parallel_rank(), state.get_expert_tensor_parallel_world_size()) if expert else \
                (state.get_tensor_model_parallel_rank(), state.get_tensor_model_parallel_world_size())
            sharded = getattr(tensor, "tensor_model_parallel", False)
            stacked = (state.get_expert_model_parallel_rank(), state.get_expert_model_parallel_world_size())
            self.cuts[id(tensor)] = Cut(tensor.shape, getattr(tensor, "partition_dim", 0) if sharded else None,
                                        getattr(tensor, "partition_stride", 1), tp if sharded else (0, 1),
                                        stacked if expert and id(tensor) not in self.numbered else (0, 1), self.borders.get(id(tensor), []))
        return self.cuts[id(tensor)]

    # What is recorded.

    def contribution(self, parameter, gradient):
        self.count(parameter)
        if self.fused:
            gradient = self.with_fused(parameter.held, gradient)
            self.run.carries(parameter.held.main_grad, parameter)
        return self.cut_of(parameter.held).parts_of(gradient.reshape(-1), 0), []

    def results(self, optimizer):
        for tensor, gradient, begin in given(optimizer):
            parameter = self.parameters.by_tensor.get(id(tensor))
            if parameter is None or parameter.frozen:
                continue
            yield (parameter, None, []) if gradient is None else (parameter, self.cut_of(tensor).parts_of(gradient.reshape(-1), begin), [])

    def owned_by(self, optimizer):
        found = (self.parameters.by_tensor.get(id(tensor)) for tensor, _, _ in given(optimizer))
        return [parameter for parameter in found if parameter is not None]

    def owned(self, parameter):
        for optimizer in self.optimizers:
            if hasattr(optimizer, "model_float16_groups") and parameter.held in optimizer.model_param_gbuf_map:
                owned = optimizer._get_model_param_range_map(parameter.held)["param"]
                return self.cut_of(parameter.held).between(owned.start, owned.end)
        return self.cut_of(parameter.held).between(0, parameter.held.numel())

    # When.

    def install(self):
        from megatron.core.pipeline_parallel import schedules

        # Before 0.14 the loss is computed within the forward step.
        losses = Replaced(schedules, "forward_step_calc_loss", self.around_loss) if hasattr(schedules, "forward_step_calc_loss") else \
            Replaced(schedules, "forward_step", self.around_forward)
        replaced = [Replaced(schedules, "backward_step", self.around_pass), losses, Replaced(torch.autograd, "backward", self.around_pass)]
        for optimizer in self.optimizers:
            if hasattr(optimizer, "_copy_model_grads_to_main_grads"):  # before they are unscaled
                replaced.append(Replaced(optimizer, "_copy_model_grads_to_main_grads",
                                         after(lambda one=optimizer: self.run.take_results([one]))))
            replaced.append(Replaced(optimizer, "prepare_grads", after(lambda one=optimizer: self.prepared(one))))
        return replaced

    def prepared(self, optimizer):
        self.run.tokens = [int(tokens) if isinstance(tokens, torch.Tensor) else tokens for tokens in self.run.tokens]
        self.run.before_step(optimizer)

    def new_step(self):
        """Schedules run forward passes of later micro-batches before the backward passes of earlier ones, and of each chunk by itself: the
        micro-batches are counted by chunk."""
        if self.run.taken and self.run.active():
            self.run.finish_step()
        if self.step != self.run.step:
            self.step, self.forwards, self.backwards, self.last = self.run.step, {}, {}, {}
            self.passes = 0

    def around_loss(self, original):
        def forward_step_calc_loss(model, output_tensor, loss_func, *arguments, **keys):
            seen = []

            def loss(*inputs, **options):
                seen.append(loss_func(*inputs, **options))
                return seen[-1]

            result = original(model, output_tensor, loss if loss_func else loss_func, *arguments, **keys)
            self.has_computed_loss(model, seen)
            return result
        return forward_step_calc_loss

    def around_forward(self, original):
        def forward_step(forward_step_func, data_iterator, model, *arguments, **keys):
            seen = []

            def step(*inputs, **options):
                output, loss_func = forward_step_func(*inputs, **options)

                def loss(*outputs, **more):
                    seen.append(loss_func(*outputs, **more))
                    return seen[-1]

                return output, loss if loss_func else loss_func

            result = original(step, data_iterator, model, *arguments, **keys)
            self.has_computed_loss(model, seen)
            return result
        return forward_step

    def has_computed_loss(self, model, seen):
        """A micro-batch of a chunk has gone forward; `seen`: what its loss function has returned, with the number of tokens in the middle of three."""
        if not self.run.active() or not torch.is_grad_enabled():
            return
        self.new_step()
        self.run.told = True
        micro = self.forwards[id(model)] = self.forwards.get(id(model), -1) + 1
        if micro == len(self.run.tokens):
            self.run.tokens.append(None)
        if seen and isinstance(seen[-1], tuple) and len(seen[-1]) == 3:
            tokens = seen[-1][1]
            self.run.tokens[micro] = tokens.detach().clone() if isinstance(tokens, torch.Tensor) else tokens

    def around_pass(self, original):
        passing = self.run.around_backward(original) if original.__name__ == "backward_step" else original

        def call(*arguments, **keys):
            if self.run.active() and not self.run.in_backward():
                self.new_step()
                self.passes += 1
                if self.fused:
                    self.before = {id(buffer): buffer.grad_data.clone() for chunk in self.chunks
                                   for buffer in chunk.buffers + chunk.expert_parallel_buffers}
            return passing(*arguments, **keys)
        return call

    def count(self, parameter):
        """Says which micro-batch the pass is of that yields something for the parameter."""
        if not self.run.told or self.step != self.run.step or not self.forwards:
            return
        chunk = self.chunk_of[id(parameter.held)]
        if self.last.get(chunk) != self.passes:
            self.last[chunk] = self.passes
            self.backwards[chunk] = self.backwards.get(chunk, -1) + 1
        self.run.micro = self.backwards[chunk]

    def with_fused(self, tensor, gradient):
        """What the pass yields where a fused kernel may have added it to main_grad: then autograd gets a placeholder."""
        for buffer in [buffer for chunk in self.chunks for buffer in chunk.buffers + chunk.expert_parallel_buffers]:
            if tensor in buffer.param_index_map and id(buffer) in self.before:
                begin, end, _ = buffer.param_index_map[tensor]
                before = self.before[id(buffer)][begin:end].view(tensor.shape)
                is_added = not tensor.grad_added_to_main_grad or getattr(tensor, "zero_out_wgrad", False)
                fused = tensor.main_grad - before
                before.copy_(tensor.main_grad)
                if is_added:
                    before.add_(gradient)
                return gradient if not tensor.grad_added_to_main_grad else fused + gradient if is_added else fused
        return gradient


def is_precision_aware(config):
    """Whether the optimizer's own parameters are the model's. Releases before 0.13 have the shorter name, and those before 0.11 neither."""
    return getattr(config, "use_precision_aware_optimizer_no_fp8_or_ds_fp8", getattr(config, "use_precision_aware_optimizer", False))


def given(optimizer):
    """(model's parameter, gradient that the optimizer gets of it or None, place in the parameter where that begins) of a Megatron optimizer."""
    if getattr(optimizer, "is_stub_optimizer", False):
        return
    gradient = "grad"
    if hasattr(optimizer, "model_float16_groups"):
        shards = optimizer.shard_fp32_from_float16_groups
        if is_precision_aware(optimizer.config):
            gradient, shards = "decoupled_grad", optimizer.shard_float16_groups
        groups = itertools.chain(zip(optimizer.model_float16_groups, shards), zip(optimizer.model_fp32_groups, optimizer.shard_fp32_groups))
    elif hasattr(optimizer, "float16_groups"):
        groups = itertools.chain(zip(optimizer.float16_groups, optimizer.fp32_from_float16_groups),
                                 zip(optimizer.fp32_from_fp32_groups, optimizer.fp32_from_fp32_groups))
    else:
        groups = ((group["params"], group["params"]) for group in optimizer.optimizer.param_groups)
    for models, mains in groups:
        for model, main in zip(models, mains):
            begin = optimizer._get_model_param_range_map(model)["param"].start if hasattr(optimizer, "model_float16_groups") else 0
            yield model, getattr(main, gradient, None), begin


def after(action):
    """Makes a function that calls the original and then action()."""
    def make(original):
        def call(*arguments, **keys):
            result = original(*arguments, **keys)
            action()
            return result
        return call
    return make
