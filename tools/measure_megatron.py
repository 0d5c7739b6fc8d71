#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs Megatron-core on the CPU and writes what it computed to tests/frameworks/data/megatron.json.

tools/measure_megatron.py [OUTPUT [WORLD SIZES]]; needs torch and megatron-core (0.16.1 was measured, and Megatron-LM's main of August
2026 from a checkout on PYTHONPATH), and no GPU: gloo connects the ranks, calls of torch.cuda lead to the CPU. What runs
is Megatron's own: its process groups, pipeline schedules, loss scaling, DistributedDataParallel, finalize_model_grads,
distributed optimizer and gradient norm. The model is a stand-in that has parameters with Megatron's attributes and adds
up what a contribution picks of them; a case describes it as a scenario does.

Each contribution, of one rank in one micro-batch, alone feeds every so many-th element with 1, so that main_grad is its
coefficient there. A second step, in which everything feeds every element, gives the norm of each parameter alone.
"""

import contextlib
import itertools
import json
import os
import sys
import traceback
import types
from fractions import Fraction
from functools import reduce
from unittest.mock import MagicMock

import torch
import torch.multiprocessing as multiprocessing

DEVICE_FUNCTIONS = ("tensor", "zeros", "ones", "empty", "full", "rand", "randn", "as_tensor", "arange", "zeros_like", "ones_like",
                    "empty_like")


def without_cuda():
    """Leads what asks for a GPU to the CPU."""
    for name in DEVICE_FUNCTIONS:
        original = getattr(torch, name)

        def on_cpu(*arguments, original=original, **keys):
            if "device" in keys:
                keys["device"] = "cpu"
            return original(*arguments, **keys)

        setattr(torch, name, on_cpu)
    for name in ("synchronize", "set_device", "empty_cache", "manual_seed"):
        setattr(torch.cuda, name, lambda *_: None)
    torch.cuda.current_device = lambda: "cpu"
    torch.cuda.current_stream = lambda *_: MagicMock()
    torch.cuda.Stream = type("Stream", (), {"__init__": lambda *_, **__: None, "wait_stream": lambda *_: None})
    torch.cuda.stream = lambda *_: contextlib.nullcontext()
    type_of = torch.Tensor.type
    torch.Tensor.type = lambda tensor, *arguments, **keys: (
        type_of(tensor, *arguments, **keys) if arguments or keys else type_of(tensor).replace("torch.", "torch.cuda.")
    )
    torch.Tensor.cuda = lambda tensor, *_, **__: tensor
    from torch import _dynamo  # noqa: F401 (looks for Triton as well)

    # Some of Megatron's main is written for Triton; nothing of that runs here, and nothing is compiled.
    torch.compile = lambda function=None, **_: function if function else lambda other: other
    sys.modules["triton"] = sys.modules["triton.language"] = MagicMock(__version__="3.6.0")


class Gathered(torch.autograd.Function):
    """What all ranks of the group hold; backward adds up what all of them did with it, as an all-to-all of tokens does."""

    @staticmethod
    def forward(context, parameter, group):
        context.group, context.rank = group, group.rank()
        pieces = [torch.empty_like(parameter) for _ in range(group.size())]
        torch.distributed.all_gather(pieces, parameter.detach().contiguous(), group=group)
        return torch.stack(pieces)

    @staticmethod
    def backward(context, gradient):
        gradient = gradient.contiguous()
        torch.distributed.all_reduce(gradient, group=context.group)
        return gradient[context.rank], None


def one_group_for_each_set_of_ranks():
    """Megatron makes dozens of groups for each layout, each with threads of its own; here equal ones are one."""
    made, original = {}, torch.distributed.new_group

    def new_group(ranks=None, **keys):
        key = tuple(sorted(ranks if ranks is not None else range(torch.distributed.get_world_size())))
        if key not in made:
            made[key] = original(list(key), backend="gloo")
        del keys
        return made[key]

    torch.distributed.new_group = new_group


def local_shape(entry, sizes):
    shape = list(entry["shape"])
    for axis, dimension in entry.get("shard", {}).items():
        shape[dimension] //= sizes[axis]
    return shape


def held_here(entry, coordinates, sizes):
    """Whether a rank at these coordinates has the parameter in this chunk."""
    stage = entry.get("stage", 0)
    return stage == "all" or stage % sizes["pp"] == coordinates["pp"]


class Run:
    """One case on one rank."""

    def __init__(self, case, rank, world):
        from megatron.core import parallel_state as state

        self.case, self.rank, self.world, self.state = case, rank, world, state
        layout, self.options = case["layout"], case["options"]
        self.sizes = {axis: layout.get(axis, 1) for axis in ("tp", "cp", "dp", "pp", "ep")}
        self.sizes["etp"] = layout.get("etp", self.sizes["tp"])
        self.virtual_stages = layout.get("virtual_stages", 1)
        order = "tp-cp-ep-pp-dp" if self.options.get("use_tp_pp_dp_mapping") else "tp-cp-ep-dp-pp"
        state.initialize_model_parallel(
            tensor_model_parallel_size=self.sizes["tp"],
            pipeline_model_parallel_size=self.sizes["pp"],
            virtual_pipeline_model_parallel_size=self.virtual_stages if self.virtual_stages > 1 else None,
            context_parallel_size=self.sizes["cp"],
            expert_model_parallel_size=self.sizes["ep"],
            expert_tensor_parallel_size=self.sizes["etp"],
            num_distributed_optimizer_instances=self.options.get("num_distributed_optimizer_instances", 1),
            order=order,
            create_gloo_process_groups=False,
        )
        mine = {
            "tp": state.get_tensor_model_parallel_rank(), "cp": state.get_context_parallel_rank(),
            "dp": state.get_data_parallel_rank(), "pp": state.get_pipeline_model_parallel_rank(),
            "ep": state.get_expert_model_parallel_rank(), "etp": state.get_expert_tensor_parallel_rank(),
            "edp": state.get_expert_data_parallel_rank(),
        }  # fmt: skip
        self.coordinates = [None] * world
        torch.distributed.all_gather_object(self.coordinates, mine)
        self.mine = mine
        self.micro_batches = case["micro_batches"]
        # (rank, micro-batch, whether the second use of a tied parameter)
        uses = (False, True) if any(entry.get("second_use") for entry in case["model"]) and self.sizes["pp"] == 1 else (False,)
        self.terms = list(itertools.product(range(world), range(self.micro_batches), uses))
        self.build()

    def build(self):
        from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig, finalize_model_grads
        from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
        from megatron.core.transformer.transformer_config import TransformerConfig

        options = self.options
        keys = {}
        if self.sizes["pp"] > 1:
            keys = {"pipeline_dtype": torch.float32, "batch_p2p_comm": False}
        self.config = TransformerConfig(
            num_layers=self.sizes["pp"] * self.virtual_stages, hidden_size=4 * self.sizes["tp"],
            num_attention_heads=2 * self.sizes["tp"],
            tensor_model_parallel_size=self.sizes["tp"], pipeline_model_parallel_size=self.sizes["pp"],
            virtual_pipeline_model_parallel_size=self.virtual_stages if self.virtual_stages > 1 else None,
            context_parallel_size=self.sizes["cp"],
            sequence_parallel=self.case["layout"].get("sequence_parallel", False),
            calculate_per_token_loss=options.get("calculate_per_token_loss", False),
            qk_layernorm=any("layernorm" in entry["name"] for entry in self.case["model"]),
            **keys,
        )  # fmt: skip
        # What the stand-in has no layers for.
        self.config.expert_model_parallel_size = self.sizes["ep"]
        self.config.hidden_size = 1
        self.config.has_cond_embedder = options.get("has_cond_embedder", False)
        ddp_config = DistributedDataParallelConfig(
            use_distributed_optimizer=options.get("use_distributed_optimizer", False),
            num_distributed_optimizer_instances=options.get("num_distributed_optimizer_instances", 1),
            overlap_grad_reduce=options.get("overlap_grad_reduce", False),
            bucket_size=options.get("ddp_bucket_size") or None,
            pad_buckets_for_high_nccl_busbw=options.get("ddp_pad_buckets_for_high_nccl_busbw", False),
            average_in_collective=options.get("ddp_average_in_collective", False),
            reduce_scatter_with_fp32_accumulation=options.get("ddp_reduce_scatter_with_fp32_accumulation", False),
            grad_reduce_in_fp32=True,
        )
        self.chunks = []
        for chunk in range(self.virtual_stages):
            module = stand_in()(self, chunk)
            ddp = DistributedDataParallel(self.config, ddp_config, module, disable_bucketing=chunk > 0)
            self.chunks.append(ddp)
        if options.get("overlap_grad_reduce"):
            no_sync = [ddp.no_sync for ddp in self.chunks]
            self.config.no_sync_func = no_sync if len(no_sync) > 1 else no_sync[0]

        def finalize(*arguments, **keys):
            if options.get("force_all_reduce"):
                keys["force_all_reduce"] = True
            finalize_model_grads(*arguments, **keys)

        self.config.finalize_model_grads_func = finalize
        self.optimizer = get_megatron_optimizer(
            OptimizerConfig(
                optimizer="adam", lr=1.0, clip_grad=1.0, fp16=False, bf16=False,
                use_distributed_optimizer=options.get("use_distributed_optimizer", False),
            ),
            self.chunks,
            use_gloo_process_groups=False,
        )  # fmt: skip

    def tokens(self, micro_batch):
        tokens = self.case.get("tokens")
        if not tokens:
            return 1
        return tokens[micro_batch][self.mine["dp"]][self.mine["cp"]][0]

    def picked(self, entry, parameter, micro_batch):
        """1 in each element that this rank feeds in the micro-batch, else 0: element e belongs to the term e mod their number."""
        fed = [not self.alone or self.feeds(entry, micro_batch, term) for term in self.terms]
        pattern = torch.tensor([float(one) for one in fed])
        return pattern.repeat(parameter.numel() // len(fed) + 1)[: parameter.numel()].view(parameter.shape)

    def feeds(self, entry, micro_batch, term):
        """Whether this rank's part of the term goes to the parameter."""
        source, at, second_use = term
        if micro_batch != at or (self.sizes["pp"] == 1 and entry.get("second_use", False) != second_use):
            return False
        theirs = self.coordinates[source]
        if theirs["pp"] != self.mine["pp"]:
            return False
        replicated = "tp" not in entry.get("shard", {}) and "tp" not in entry.get("partial", []) and "dispatch" not in entry
        if replicated:
            # Every rank of tp computes the same, and the first of them gives it its name.
            return theirs["tp"] == 0 and all(theirs[axis] == self.mine[axis] for axis in ("cp", "dp"))
        return source == self.rank

    def group_of(self, axes):
        if sorted(axes) == ["ep", "etp"]:
            return self.state.get_expert_tensor_and_model_parallel_group()
        return self.state.get_expert_model_parallel_group()

    def step(self, alone):
        """One training step up to the gradients: each term alone in its elements, or everything in all of them."""
        from megatron.core.pipeline_parallel.schedules import get_forward_backward_func

        self.alone = alone
        for ddp in self.chunks:
            ddp.zero_grad_buffer()
        self.optimizer.zero_grad()
        self.config.grad_scale_func = None
        iterators = [iter(range(self.micro_batches)) for _ in self.chunks]
        get_forward_backward_func()(
            forward_step_func=self.forward_step,
            data_iterator=iterators if len(iterators) > 1 else iterators[0],
            model=self.chunks if len(self.chunks) > 1 else self.chunks[0],
            num_microbatches=self.micro_batches,
            seq_length=self.sizes["cp"] * (self.sizes["tp"] if self.config.sequence_parallel else 1),
            micro_batch_size=1,
        )

    def forward_step(self, iterator, model):
        micro_batch = next(iterator)
        output = model(micro_batch)

        def loss(output):
            kind, tokens = self.options.get("loss_func", "sum_and_tokens"), self.tokens(micro_batch)
            total = output.sum()
            if kind == "local_mean":
                return total / tokens, {}
            if kind == "mean_over_cp":
                count = torch.tensor(float(tokens))
                torch.distributed.all_reduce(count, group=self.state.get_context_parallel_group())
                return total / count, {}
            return total, torch.tensor(tokens, dtype=torch.int), {}

        return output, loss

    def owned(self, parameter):
        if not self.options.get("use_distributed_optimizer"):
            return [0, parameter.numel()]
        for optimizer in getattr(self.optimizer, "chained_optimizers", [self.optimizer]):
            if parameter in getattr(optimizer, "model_param_gbuf_map", {}):
                found = optimizer._get_model_param_range_map(parameter)
                return [found["param"].start, found["param"].end]
        return None

    def parameters(self):
        for chunk in self.chunks:
            for name, parameter in chunk.module.entries.items():
                yield name, parameter

    def measure(self):
        self.step(alone=True)
        result = {"parameters": {}, "norm": {}}
        for name, parameter in self.parameters():
            values = parameter.main_grad.detach().view(-1).tolist()
            result["parameters"][name] = {"owned": self.owned(parameter), "pieces": pieces_of(values, self.terms)}
        self.step(alone=False)
        whole = [(name, parameter, parameter.main_grad.detach().clone()) for name, parameter in self.parameters()]
        for entry in self.case["model"]:
            for _, parameter, _ in whole:
                parameter.main_grad.zero_()
            for name, parameter, gradient in whole:
                if name == entry["name"]:
                    parameter.main_grad.copy_(gradient)
            self.optimizer.prepare_grads()
            result["norm"][entry["name"]] = float(f"{self.optimizer.get_grad_norm():.6g}")
        return result


def pieces_of(values, terms):
    """[[begin, end, {term: coefficient}]]: runs of elements in which each term has one coefficient."""
    pieces, found = [], {}
    for element, value in enumerate(values):
        rank, micro_batch, second = terms[element % len(terms)]
        term = f"{rank}.{micro_batch}" + ("@second" if second else "")
        text = str(Fraction(value).limit_denominator(2000))
        if not pieces or found.get(term, text) != text:
            found = {}
            pieces.append([element, element, found])
        found[term] = text
        pieces[-1][1] = element + 1
    return pieces


def stand_in():
    from megatron.core.enums import ModelType
    from megatron.core.transformer.module import MegatronModule

    class StandIn(MegatronModule):
        """A model chunk: hands its input on, and what is fed of its own parameters."""

        def __init__(self, run, chunk):
            super().__init__(run.config)
            state = run.state
            self.run, self.chunk, self.entries, self.described = [run], chunk, {}, []
            last_chunk = run.virtual_stages - 1
            self.pre_process = run.mine["pp"] == 0 and chunk == 0
            self.post_process = run.mine["pp"] == run.sizes["pp"] - 1 and chunk == last_chunk
            self.vp_stage = chunk if run.virtual_stages > 1 else None
            self.share_embeddings_and_output_weights = any(entry.get("tied") for entry in run.case["model"])
            self.shared, self.input_tensor = None, None
            self.model_type = ModelType.encoder_or_decoder
            self.position_embeddings = types.SimpleNamespace(weight=None)
            alone = run.sizes["pp"] == 1
            experts_apart = run.sizes["ep"] > 1 or run.sizes["etp"] != run.sizes["tp"]
            for entry in run.case["model"]:
                if not held_here(entry, run.mine, run.sizes) or entry.get("chunk", 0) % run.virtual_stages != chunk:
                    continue
                tags = entry.get("tags", [])
                if alone and entry.get("second_use"):
                    self.entries[entry["name"]] = self.shared
                    self.described.append((entry, self.shared))
                    continue
                parameter = torch.nn.Parameter(torch.zeros(local_shape(entry, run.sizes)))
                # An underscore in place of each dot: names of modules have none.
                self.register_parameter(entry["name"].replace(".", "_"), parameter)
                parameter.tensor_model_parallel = "tp" in entry.get("shard", {}) or "expert" in tags
                parameter.partition_dim, parameter.partition_stride = 0, 1
                if {"norm", "router", "replicated"} & set(tags):
                    parameter.sequence_parallel = run.config.sequence_parallel
                for flag in ("pipeline_parallel", "average_gradients_across_tp_domain"):
                    if flag in tags:
                        setattr(parameter, flag, True)
                if "expert" in tags:
                    parameter.allreduce = not experts_apart
                if entry.get("tied"):
                    self.shared = parameter
                    if not alone:
                        parameter.shared_embedding = True
                        if not self.pre_process:
                            parameter.shared = True
                if "position" in tags:
                    self.position_embeddings.weight = parameter
                self.entries[entry["name"]] = parameter
                self.described.append((entry, parameter))
            del state

        def shared_embedding_or_output_weight(self):
            return self.shared

        def set_input_tensor(self, tensor):
            self.input_tensor = tensor[0] if isinstance(tensor, list) else tensor

        def forward(self, micro_batch):
            (run,) = self.run
            total = torch.zeros(1, 1, 1, requires_grad=True)
            if not self.pre_process and self.input_tensor is not None:
                total = self.input_tensor
            for entry, parameter in self.described:
                value = Gathered.apply(parameter, run.group_of(entry["dispatch"])) if "dispatch" in entry else parameter
                total = total + (value * run.picked(entry, parameter, micro_batch)).sum()
            return total

    return StandIn


def run_cases(rank, world, cases, port, queue):
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(world), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), LOCAL_RANK=str(rank))
    torch.set_num_threads(1)
    without_cuda()
    import logging
    import warnings

    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    torch.distributed.init_process_group("gloo", rank=rank, world_size=world)
    one_group_for_each_set_of_ranks()
    from megatron.core import parallel_state

    for number, case in enumerate(cases):
        if "TRACE" in os.environ and rank == 0:
            print(number, case["layout"], case["options"], flush=True)
        try:
            result = Run(case, rank, world).measure()
        except Exception as error:  # what Megatron says to refuse a combination
            result = {"error": f"{type(error).__name__}: {error}".splitlines()[0]}
            if not isinstance(error, (AssertionError, ValueError, RuntimeError)) or "TRACE" in os.environ:
                traceback.print_exc()
        queue.put((number, rank, result))
        torch.distributed.barrier()
        parallel_state.destroy_model_parallel()


def measure(world, cases, port):
    """The cases with what every rank found, from one set of processes."""
    context = multiprocessing.get_context("spawn")
    queue = context.SimpleQueue()
    spawned = multiprocessing.spawn(run_cases, (world, cases, port, queue), nprocs=world, join=False)
    results = {}
    for number, case in enumerate(cases):
        while any((number, rank) not in results for rank in range(world)):
            if queue.empty():
                # Raises what ended a process.
                spawned.join(0.1)
                continue
            done, rank, result = queue.get()
            results[done, rank] = result
        ranks = [results[number, rank] for rank in range(world)]
        errors = [rank["error"] for rank in ranks if "error" in rank]
        yield {**case, "error": errors[0]} if errors else {**case, "ranks": ranks}
    for process in spawned.processes:
        process.kill()


def world_of(case):
    return reduce(lambda product, axis: product * case["layout"].get(axis, 1), ("tp", "cp", "dp", "pp"), 1)


# The models of the cases, in the words of a scenario.
SHARED = {"tied": "word_embeddings"}
DENSE = [{"name": "w", "shape": [150]}, {"name": "v", "shape": [70]}, {"name": "norm", "shape": [24], "tags": ["norm"]}]
ENDS = [
    {"name": "word", "shape": [150], "stage": 0, **SHARED},
    {"name": "position", "shape": [24], "stage": 0, "tags": ["position"]},
    {"name": "layer", "shape": [70], "stage": 0},
    {"name": "layer_of_last", "shape": [70], "stage": -1},
    {"name": "norm", "shape": [24], "stage": -1, "tags": ["norm"]},
    {"name": "output", "shape": [150], "stage": -1, "second_use": True, **SHARED},
]
TENSOR = [
    {"name": "column", "shape": [256], "shard": {"tp": 0}},
    {"name": "flagged", "shape": [70], "partial": ["tp"], "tags": ["norm"]},
    {"name": "router", "shape": [24], "partial": ["tp"], "tags": ["router"]},
    {"name": "unflagged", "shape": [40], "partial": ["tp"], "tags": []},
    {"name": "q_layernorm", "shape": [24], "partial": ["tp"], "tags": ["norm"]},
    {"name": "k_layernorm", "shape": [24], "partial": ["tp"]},
    {"name": "averaged", "shape": [30], "partial": ["tp"], "tags": ["average_gradients_across_tp_domain", "replicated"]},
    {"name": "position", "shape": [24], "tags": ["position"]},
]
EXPERTS = [
    {"name": "dense", "shape": [130]},
    {"name": "router", "shape": [24], "tags": ["router"]},
    {"name": "one", "shape": [4, 36], "shard": {"ep": 0, "etp": 1}, "dispatch": ["etp", "ep"], "tags": ["expert"]},
    {"name": "two", "shape": [4, 100], "shard": {"ep": 0, "etp": 1}, "dispatch": ["etp", "ep"], "tags": ["expert"]},
]
CHUNKS = [
    {"name": "word", "shape": [150], "stage": 0, **SHARED},
    {"name": "a", "shape": [70], "stage": 0},
    {"name": "a2", "shape": [130], "stage": 0},
    {"name": "b", "shape": [70], "stage": 1},
    {"name": "c", "shape": [70], "stage": 0, "chunk": 1},
    {"name": "c2", "shape": [24], "stage": 0, "chunk": 1},
    {"name": "d", "shape": [70], "stage": 1, "chunk": 1},
    {"name": "output", "shape": [150], "stage": 1, "chunk": 1, "second_use": True, **SHARED},
]
EMBEDDERS = [
    {"name": "embedder", "shape": [140], "stage": "all", "tags": ["pipeline_parallel"]},
    {"name": "layer", "shape": [70], "stage": 0},
    {"name": "layer_of_last", "shape": [90], "stage": -1},
]
LARGE = [
    {"name": "word", "shape": [70000], "stage": 0, **SHARED},
    {"name": "layer", "shape": [1000], "stage": 0},
    {"name": "layer_of_last", "shape": [140000], "stage": -1},
    {"name": "output", "shape": [70000], "stage": -1, "second_use": True, **SHARED},
]
DISTRIBUTED = {"use_distributed_optimizer": True}


def case(layout, options, model, micro_batches=1, tokens=None):
    made = {"layout": layout, "options": options, "micro_batches": micro_batches, "model": model}
    return {**made, "tokens": tokens} if tokens else made


def uneven(layout, micro_batches):
    """Tokens of all pieces, all different."""
    counts = itertools.count()
    numbers = (3, 5, 2, 10, 7, 1, 4, 6, 9, 11, 13, 8)
    return [
        [[[numbers[next(counts) % len(numbers)]] for _ in range(layout.get("cp", 1))] for _ in range(layout.get("dp", 1))]
        for _ in range(micro_batches)
    ]


def ends(layout):
    """The two ends of a pipeline; tp cuts the embedding."""
    cut = {"shard": {"tp": 0}} if layout.get("tp", 1) > 1 else {}
    return [{**entry, **cut} if entry.get("tied") else entry for entry in ENDS]


def all_cases():
    kinds = [{}, DISTRIBUTED, {**DISTRIBUTED, "overlap_grad_reduce": True}, {"overlap_grad_reduce": True},
             {**DISTRIBUTED, "force_all_reduce": True}]
    per_token, average = {"calculate_per_token_loss": True}, {"ddp_average_in_collective": True}
    cases = []
    for layout in ({"dp": 2}, {"dp": 3}, {"dp": 4}, {"cp": 2}, {"cp": 3}, {"cp": 4}, {"dp": 2, "cp": 2}):
        for kind, scaling in itertools.product(kinds, ({}, per_token, average)):
            cases.append(case(layout, {**kind, **scaling}, DENSE, 2, uneven(layout, 2)))
        for loss in ("local_mean", "mean_over_cp"):
            cases.append(case(layout, {"loss_func": loss}, DENSE, 2, uneven(layout, 2)))
        cases.append(case(layout, {**DISTRIBUTED, "overlap_grad_reduce": True, "ddp_bucket_size": 60}, DENSE, 1))
        cases.append(case(layout, {**DISTRIBUTED, "overlap_grad_reduce": True, "ddp_bucket_size": 60,
                                   "ddp_pad_buckets_for_high_nccl_busbw": True}, DENSE, 1))
        cases.append(case(layout, {**DISTRIBUTED, "ddp_reduce_scatter_with_fp32_accumulation": True}, DENSE, 1))
    cases.append(case({"dp": 2}, {**per_token, **average}, DENSE))
    for layout in ({"dp": 4}, {"dp": 2, "cp": 2}, {"dp": 2}, {"dp": 2, "pp": 2}, {"dp": 2, "tp": 2}):
        for scaling in ({}, per_token, average):
            options = {**DISTRIBUTED, "num_distributed_optimizer_instances": 2, **scaling}
            cases.append(case(layout, options, ENDS if "pp" in layout else DENSE, 2))
    for layout in ({"pp": 2}, {"pp": 2, "dp": 2}, {"pp": 3}, {"pp": 4}, {"dp": 2}, {"dp": 4}, {"pp": 2, "cp": 2}, {"pp": 2, "tp": 2}):
        for kind, scaling in itertools.product(kinds, ({}, per_token, average)):
            cases.append(case(layout, {**kind, **scaling}, ends(layout), 2, uneven(layout, 2)))
    for layout in ({"pp": 2, "dp": 2}, {"pp": 2, "cp": 2}, {"pp": 2, "tp": 2}):
        cases.append(case(layout, {**DISTRIBUTED, "use_tp_pp_dp_mapping": True}, ends(layout), 2))
        cases.append(case(layout, {**DISTRIBUTED, "overlap_grad_reduce": True, "ddp_bucket_size": 60}, ends(layout), 2))
    for layout in ({"tp": 2}, {"tp": 4}, {"tp": 3}, {"tp": 2, "dp": 2}, {"tp": 2, "cp": 2}):
        for sequence_parallel, kind in itertools.product((False, True), ({}, DISTRIBUTED)):
            model = [{**entry, "shape": [252]} if layout["tp"] == 3 and entry["name"] == "column" else entry for entry in TENSOR]
            for scaling in ({}, per_token, average):
                cases.append(case({**layout, "sequence_parallel": sequence_parallel}, {**kind, **scaling}, model, 2,
                                  uneven(layout, 2)))
    for layout in ({"dp": 2, "ep": 2}, {"dp": 4, "ep": 2}, {"dp": 4, "ep": 4}, {"dp": 2, "cp": 2, "ep": 2}, {"cp": 2, "ep": 2},
                   {"cp": 4, "ep": 2}, {"dp": 2, "cp": 2, "ep": 4}, {"tp": 2, "dp": 2, "etp": 1}, {"tp": 2, "dp": 2, "etp": 1, "ep": 2},
                   {"tp": 2, "dp": 2, "etp": 1, "ep": 4}, {"tp": 2, "dp": 2, "etp": 2, "ep": 2}, {"tp": 2, "dp": 2, "etp": 2},
                   {"tp": 2, "etp": 1, "ep": 2}, {"tp": 2, "etp": 1}, {"dp": 4, "etp": 2}, {"dp": 4}, {"pp": 2, "dp": 2, "ep": 2}):
        tp = layout.get("tp", 1)
        model = EXPERTS
        if tp > 1:
            model = [{**entry, "partial": ["tp"]} if "tags" not in entry or "router" in entry["tags"] else entry for entry in EXPERTS]
            model[0] = {**EXPERTS[0], "shard": {"tp": 0}}
            layout = {**layout, "sequence_parallel": True}
        if "pp" in layout:
            model = [*model, {"name": "layer_of_last", "shape": [70], "stage": -1},
                     {**EXPERTS[2], "name": "expert_of_last", "stage": -1}]
        for kind, scaling in itertools.product(kinds, ({}, per_token, average)):
            cases.append(case(layout, {**kind, **scaling}, model, 2, uneven(layout, 2)))
        cases.append(case(layout, {**DISTRIBUTED, "overlap_grad_reduce": True, "ddp_bucket_size": 60}, model))
    for layout in ({"dp": 4, "ep": 2}, {"dp": 2, "cp": 2, "ep": 2}, {"dp": 4, "ep": 4}):
        for scaling in ({}, per_token, average):
            cases.append(case(layout, {**DISTRIBUTED, "num_distributed_optimizer_instances": 2, **scaling}, EXPERTS))
    for layout in ({"pp": 2, "virtual_stages": 2}, {"pp": 2, "dp": 2, "virtual_stages": 2}, {"pp": 2, "cp": 2, "virtual_stages": 2}):
        for kind, scaling in itertools.product(kinds, ({}, per_token, average)):
            cases.append(case(layout, {**kind, **scaling}, CHUNKS, 2, uneven(layout, 2)))
        cases.append(case(layout, {**DISTRIBUTED, "overlap_grad_reduce": True, "ddp_bucket_size": 60}, CHUNKS, 2))
    for layout in ({"pp": 2}, {"pp": 2, "dp": 2}, {"pp": 4}):
        for kind in ({}, DISTRIBUTED):
            cases.append(case(layout, {"has_cond_embedder": True, **kind}, EMBEDDERS))
    # Micro-batches of one and of three, a first stage that ends inside of a bucket, tied without anything else.
    for layout, micro_batches in itertools.product(({"dp": 2}, {"pp": 2, "dp": 2}, {"dp": 2, "cp": 2}, {"pp": 4}), (1, 3)):
        for scaling in ({}, per_token, {**DISTRIBUTED, **average}):
            cases.append(case(layout, scaling, ENDS, micro_batches, uneven(layout, micro_batches)))
    for size in (60, 140, 150, 190, 250, 1000):
        for layout in ({"dp": 2}, {"dp": 3}, {"dp": 4}, {"pp": 2, "dp": 2}, {"pp": 2, "cp": 2}):
            options = {**DISTRIBUTED, "overlap_grad_reduce": True, "ddp_bucket_size": size}
            cases.append(case(layout, options, ENDS, 1))
    for layout in ({"dp": 2}, {"dp": 3}, {"pp": 2, "dp": 2}):
        cases.append(case(layout, {**DISTRIBUTED, "ddp_pad_buckets_for_high_nccl_busbw": True}, LARGE, 1))
    # Megatron keeps this in a global variable, so that everything after it would do the same.
    return sorted(cases, key=lambda one: "ddp_reduce_scatter_with_fp32_accumulation" in one["options"])


def main():
    output = sys.argv[1] if len(sys.argv) > 1 else "tests/frameworks/data/megatron.json"
    worlds = map(int, sys.argv[2].split(",")) if len(sys.argv) > 2 else (2, 3, 4)
    without_cuda()
    import megatron.core

    found = []
    for world in worlds:
        found += measure(world, [one for one in all_cases() if world_of(one) == world], 29800 + world)
    head = {"megatron_core": megatron.core.__version__, "torch": torch.__version__}
    with open(output, "w", encoding="utf-8") as file:
        file.write(compact(head, found))


def compact(head, cases):
    """The text of the file: models and pieces that many cases have in common are written once."""
    models, pieces = {}, {}
    for one in cases:
        one["model"] = models.setdefault(json.dumps(one["model"]), len(models))
        for parameter in [entry for rank in one.get("ranks", []) for entry in rank["parameters"].values()]:
            parameter["pieces"] = pieces.setdefault(json.dumps(parameter["pieces"]), len(pieces))
    lists = [f'"{name}": [\n' + ",\n".join(table) + "\n]" for name, table in (("models", models), ("pieces", pieces))]
    lines = ",\n".join(map(json.dumps, cases))
    return json.dumps(head)[:-1] + ", " + ", ".join(lists) + ', "cases": [\n' + lines + "\n]}\n"


if __name__ == "__main__":
    main()
