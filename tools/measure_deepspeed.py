#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs DeepSpeed on the CPU and writes what it computed to tests/frameworks/data/deepspeed.json.

tools/measure_deepspeed.py [OUTPUT [NUMBER OF THE FIRST SET OF CASES]]; needs torch and deepspeed (0.19.8 was measured),
and no GPU: gloo connects the ranks.
Every rank feeds one element of `w` per micro-batch, so what the optimizer gets there is the coefficient of that
contribution. It is read off the weights: SGD with learning rate 1 subtracts it from zeros. Options have the names of
frameworks/deepspeed.jsonc. A norm is read off how far a limit of 1 scales the weights down, since ZeRO 0 reports none.
"""

import itertools
import json
import os
import sys
import traceback
from fractions import Fraction

import torch
import torch.multiprocessing as multiprocessing

ZERO_KEYS = ("reduce_scatter", "overlap_comm", "contiguous_gradients", "reduce_bucket_size")
# Name and elements of each parameter; `w` gets the contributions. Rounded up to 2 and to 4 elements, the sum differs.
SIZES = {"b": 3, "w": 13, "c": 5}


def ds_config(options, micro_batches, clipping):
    """The configuration that the options mean."""
    config = {
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": micro_batches,
        "zero_allow_untested_optimizer": True,
        "zero_optimization": {"stage": options.get("zero_stage", 0)},
        "gradient_clipping": clipping,
    }
    for key, value in options.items():
        if key in ZERO_KEYS:
            config["zero_optimization"][key] = value
        elif key in ("fp16", "bf16"):
            config[key] = {"enabled": value}
        elif key == "grad_accum_dtype":
            config["data_types"] = {key: value}
        elif key != "zero_stage":
            config[key] = value
    return config


class Plain(torch.nn.Module):
    """Its loss is the sum of the elements of `w` (and of `x`, an expert's parameter) that the input picks."""

    def __init__(self, expert_ranks):
        super().__init__()
        for name, size in SIZES.items():
            setattr(self, name, torch.nn.Parameter(torch.zeros(size)))
        if expert_ranks > 1:
            from deepspeed.moe.layer import MoE

            # DeepSpeed makes its expert groups for this module; it takes no part in the loss.
            self.moe = MoE(4, torch.nn.Linear(4, 4, bias=False), num_experts=expert_ranks, ep_size=expert_ranks)
            self.x = torch.nn.Parameter(torch.zeros(13))
            self.x.allreduce = False
            self.x.group_name = f"ep_size_{expert_ranks}"

    def forward(self, picks):
        weights = self.w + self.x if hasattr(self, "x") else self.w
        return (weights * picks.to(weights.dtype)).sum() + 0 * (self.b.sum() + self.c.sum())


class Layer(torch.nn.Module):
    """A pipeline's layer: passes the picks on and adds what they pick of its own weight to the last element."""

    def __init__(self, factor, flagged):
        super().__init__()
        self.factor = factor
        self.weight = torch.nn.Parameter(torch.zeros(13))
        if flagged:
            self.weight.model_parallel = True

    def forward(self, inputs):
        return add_picked(self, inputs, self.factor)


def add_picked(layer, inputs, factor):
    picked = (factor * layer.weight.to(inputs.dtype) * inputs[..., :13]).sum(-1, keepdim=True)
    return torch.cat([inputs[..., :13], inputs[..., 13:] + picked], -1)


def rationals(values):
    return [str(Fraction(value).limit_denominator(1000)) for value in values]


def slices_of(engine, rank, world):
    """{parameter: its elements that this rank owns} for ZeRO 1 to 3 and BF16_Optimizer."""
    found = {}
    for name, parameter in engine.module.named_parameters():
        if name not in SIZES:
            continue
        if hasattr(parameter, "ds_tensor"):
            size = parameter.ds_tensor.ds_numel
            found[name] = [min(rank * size, parameter.ds_numel), min((rank + 1) * size, parameter.ds_numel)]
        elif getattr(parameter, "_hp_mapping", None) is not None:
            place = parameter._hp_mapping.lp_fragment_address
            found[name] = [place.start, place.start + place.numel]
    return {name: place for name, place in found.items() if place[0] < place[1]}


def run_plain(case, clipping, unit, rank, mpu):
    import deepspeed

    layout, micro_batches = case["layout"], case["micro_batches"]
    world = layout.get("dp", 1) * layout.get("sp", 1)
    model = Plain(layout.get("ep", 1))
    groups = list(model.parameters())
    if layout.get("ep", 1) > 1:
        from deepspeed.moe.utils import split_params_into_different_moe_groups_for_optimizer

        groups = split_params_into_different_moe_groups_for_optimizer({"params": groups, "name": "all"})
    engine, *_ = deepspeed.initialize(
        model=model,
        optimizer=torch.optim.SGD(groups, lr=1.0),
        config=ds_config(case["options"], micro_batches, clipping),
        mpu=mpu,
    )
    for micro_batch in range(micro_batches):
        picks = torch.zeros(13)
        picks[rank * micro_batches + micro_batch] = unit
        engine.backward(engine(picks))
        if micro_batch == micro_batches - 1:
            slices = slices_of(engine, rank, world)
        engine.step()
    weights = {}
    for name, parameter in engine.module.named_parameters():
        if name in ("w", "x"):
            with deepspeed.zero.GatheredParameters([parameter], enabled=hasattr(parameter, "ds_tensor")):
                weights[name] = (-parameter.detach().float()[: world * micro_batches]).tolist()
    return weights, slices, type(engine.optimizer).__name__


def run_pipeline(case, clipping, unit, rank, mpu):
    import deepspeed
    from deepspeed.pipe import LayerSpec, PipelineModule, TiedLayerSpec

    dp, pp, micro_batches, flagged = case["layout"].get("dp", 1), case["layout"]["pp"], case["micro_batches"], case["flagged"]
    inner = [LayerSpec(Layer, 2.0, flagged) for _ in range(2 * pp - 2)]
    head = {"forward_fn": lambda layer, inputs: add_picked(layer, inputs, 5.0), "tied_weight_attr": "weight"}
    layers = [
        TiedLayerSpec("embed", Layer, 1.0, flagged, tied_weight_attr="weight"),
        *inner,
        TiedLayerSpec("embed", Layer, 1.0, flagged, **head),
    ]
    module = PipelineModule(layers, num_stages=pp, loss_fn=lambda out, _: out[..., 13].sum(), partition_method="uniform")
    engine, *_ = deepspeed.initialize(
        model=module,
        optimizer=torch.optim.SGD(list(module.parameters()), lr=1.0),
        model_parameters=list(module.parameters()),
        config=ds_config(case["options"], micro_batches, clipping),
    )

    def batches():
        for micro_batch in itertools.count():
            picks = torch.zeros(1, 14)
            picks[0, (rank % dp) * micro_batches + micro_batch] = unit
            picks.requires_grad_()
            yield picks, torch.zeros(1)

    engine.train_batch(batches())
    weights = {
        "embed" if "tied" in name else name: (-parameter.detach().float()[: dp * micro_batches]).tolist()
        for name, parameter in engine.module.named_parameters()
    }
    return weights, {}, type(engine.optimizer).__name__


def run_cases(rank, world, sp, cases, port, queue):
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world), LOCAL_SIZE=str(world))
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), DS_ACCELERATOR="cpu")
    torch.set_num_threads(1)
    import deepspeed

    deepspeed.utils.logger.setLevel("ERROR")
    deepspeed.init_distributed(dist_backend="gloo", verbose=False)
    mpu = None
    if sp > 1:
        from deepspeed.runtime.sequence_parallel import parallel_state_sp as mpu

        mpu.initialize_sequence_parallel(sp)
    for number, case in enumerate(cases):
        run = run_pipeline if "pp" in case["layout"] else run_plain
        result = {}
        try:
            weights, slices, result["optimizer"] = run(case, 0.0, 1.0, rank, mpu)
            result["coefficients"] = {name: rationals(values) for name, values in weights.items()}
            result["owned"] = slices
            if case["norm"]:
                # So large that a limit of 1 always scales.
                clipped, _, _ = run(case, 1.0, 1024.0, rank, mpu)
                name = min(weights)
                at = max(range(len(weights[name])), key=lambda index: weights[name][index])
                result["norm"] = weights[name][at] / clipped[name][at]
        except Exception as error:  # what DeepSpeed says to refuse a combination
            result["error"] = f"{type(error).__name__}: {error}".splitlines()[0]
            if not isinstance(error, (AssertionError, ValueError, NotImplementedError)):
                traceback.print_exc()
        queue.put((number, rank, result))


def measure(world, sp, cases, port):
    """The cases with what every rank found, from one set of processes."""
    context = multiprocessing.get_context("spawn")
    queue = context.SimpleQueue()
    spawned = multiprocessing.spawn(run_cases, (world, sp, cases, port, queue), nprocs=world, join=False)
    results = {}
    while len(results) < world * len(cases):
        number, rank, result = queue.get()
        results[number, rank] = result
    for process in spawned.processes:
        process.kill()
    for number, case in enumerate(cases):
        ranks = [results[number, rank] for rank in range(world)]
        errors = [rank["error"] for rank in ranks if "error" in rank]
        if errors:
            yield {**case, "error": errors[0]}
        else:
            yield {**case, "ranks": ranks}


def plain_case(layout, options, micro_batches=1, norm=False):
    return {"layout": layout, "micro_batches": micro_batches, "options": options, "norm": norm}


def divisions():
    """Options of every way to divide, for each ZeRO stage."""
    for stage in (0, 1, 2, 3):
        for reduce_scatter in (True, False):
            for extra in ({}, {"prescale_gradients": True}, {"gradient_predivide_factor": 2}, {"gradient_predivide_factor": 4},
                          {"gradient_allreduce_op": "sum"}, {"overlap_comm": True}, {"contiguous_gradients": False},
                          {"reduce_bucket_size": 8}, {"reduce_bucket_size": 13}):
                # One size of the bucket is enough where it does not matter.
                if extra.get("reduce_bucket_size") != 13 or (stage == 3 and not reduce_scatter):
                    yield {"zero_stage": stage, "reduce_scatter": reduce_scatter, **extra}
    for extra in ({}, {"prescale_gradients": True}, {"gradient_predivide_factor": 2}, {"gradient_allreduce_op": "sum"}):
        yield {"zero_stage": 1, "bf16": True, "grad_accum_dtype": "fp32", **extra}


def all_cases():
    """[(world, sp, cases)]"""
    sets = []
    for dp, sp in ((2, 1), (1, 2), (3, 1), (4, 1), (2, 2), (1, 4)):
        layout = {"dp": dp, "sp": sp}
        cases = [
            plain_case(layout, options, micro_batches)
            for options in divisions()
            for micro_batches in ((1, 2) if (dp, sp) in ((2, 1), (2, 2)) else (2,))
            # Thirds are no bfloat16, and BF16_Optimizer fails with Ulysses: one rank only, so that the others would wait.
            if "bf16" not in options or (dp != 3 and sp == 1)
        ]
        if sp == 1:
            cases += [plain_case(layout, {"zero_stage": stage}, 1, True) for stage in (0, 1, 2, 3)]
        sets.append((dp * sp, sp, cases))
    for layout in ({"dp": 2, "ep": 2}, {"dp": 4, "ep": 2}, {"dp": 1, "sp": 2, "ep": 2}):
        sp = layout.get("sp", 1)
        cases = [
            plain_case(layout, options, 1, sp == 1)
            for options in ({"zero_stage": 0}, {"zero_stage": 1}, {"zero_stage": 2}, {"zero_stage": 3},
                            {"zero_stage": 0, "gradient_predivide_factor": 2}, {"zero_stage": 0, "prescale_gradients": True},
                            {"zero_stage": 1, "reduce_scatter": False},
                            {"zero_stage": 2, "contiguous_gradients": False})
        ]
        sets.append((layout["dp"] * sp, sp, cases))
    for dp, pp in ((1, 2), (2, 2)):
        options = [{"zero_stage": 0}, {"zero_stage": 1}, {"zero_stage": 2}, {"zero_stage": 0, "bf16": True},
                   {"zero_stage": 1, "bf16": True, "grad_accum_dtype": "fp32"}]
        cases = [
            {**plain_case({"dp": dp, "pp": pp}, choice, 2, True), "flagged": flagged}
            for choice in options
            for flagged in (False, True)
        ]
        sets.append((dp * pp, 1, cases))
    return sets + more_cases()


def more_cases():
    """Experts and pipelines on more layouts, with more of the options that divide."""
    sets = []
    for layout in ({"dp": 2, "ep": 2}, {"dp": 4, "ep": 2}, {"dp": 4, "ep": 4}, {"dp": 2, "sp": 2, "ep": 2}, {"dp": 3, "ep": 3}):
        sp = layout.get("sp", 1)
        options = [{"zero_stage": 0, "gradient_predivide_factor": 4}, {"zero_stage": 0, "gradient_allreduce_op": "sum"},
                   {"zero_stage": 1, "gradient_allreduce_op": "sum"}, {"zero_stage": 1, "overlap_comm": True},
                   {"zero_stage": 2, "overlap_comm": True}, {"zero_stage": 1, "gradient_predivide_factor": 2},
                   {"zero_stage": 1, "prescale_gradients": True}, {"zero_stage": 2, "gradient_allreduce_op": "sum"}]
        if layout in ({"dp": 4, "ep": 4}, {"dp": 2, "sp": 2, "ep": 2}, {"dp": 3, "ep": 3}):
            options += [{"zero_stage": 0}, {"zero_stage": 1}, {"zero_stage": 2}, {"zero_stage": 0, "prescale_gradients": True}]
        if layout.get("dp") != 3 and sp == 1:
            options += [{"zero_stage": 1, "bf16": True, "grad_accum_dtype": "fp32"}, {"zero_stage": 0, "bf16": True}]
        cases = [plain_case(layout, choice, micro_batches,
                            sp == 1 and micro_batches == 1 and choice == {"zero_stage": choice["zero_stage"]})
                 for choice in options for micro_batches in (1, 2)]
        sets.append((layout["dp"] * sp, sp, cases))
    for dp, pp in ((1, 2), (2, 2), (1, 3), (1, 4)):
        options = [{"zero_stage": stage, **extra}
                   for stage in (0, 1)
                   for extra in ({}, {"prescale_gradients": True}, {"gradient_predivide_factor": 2},
                                 {"gradient_allreduce_op": "sum"})]
        options += [{"zero_stage": 1, "reduce_scatter": False, **extra}
                    for extra in ({}, {"gradient_predivide_factor": 2}, {"gradient_predivide_factor": 4},
                                  {"prescale_gradients": True})]
        cases = [{**plain_case({"dp": dp, "pp": pp}, choice, micro_batches, choice == {"zero_stage": choice["zero_stage"]}),
                  "flagged": pp == 3}
                 for choice in options for micro_batches in (2, 4)]
        sets.append((dp * pp, 1, cases))
    return sets


def main():
    output = sys.argv[1] if len(sys.argv) > 1 else "tests/frameworks/data/deepspeed.json"
    found, sets = [], list(enumerate(all_cases()))
    for number, (world, sp, cases) in sets[int(sys.argv[2]):] if len(sys.argv) > 2 else sets:
        found += measure(world, sp, cases, 29700 + number)
    import deepspeed

    with open(output, "w", encoding="utf-8") as file:
        file.write(f'{{"deepspeed": "{deepspeed.__version__}", "torch": "{torch.__version__}", "sizes": {json.dumps(SIZES)}, "cases": [\n')
        file.write(",\n".join(json.dumps(case) for case in found) + "\n]}\n")


if __name__ == "__main__":
    main()
