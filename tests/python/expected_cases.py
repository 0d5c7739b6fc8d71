# SPDX-License-Identifier: Apache-2.0
"""What test_expected.py compares: frameworks with their options, as a scenario says them and as a script runs them; and the table of them in
docs/framework-files.md.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path

from expected_models import BLOCKS, SMALL

WITH_EVERY_CHANGE = {"ddp"}


@dataclass
class Case:
    name: str
    framework: str
    options: dict = field(default_factory=dict)  # of the framework file, and of the script
    layout: dict = field(default_factory=lambda: {"dp": 4})
    model: object = None
    ranks: int = 4
    needs: tuple = ()
    loss: str = "local_mean"
    script_options: dict = None  # others than `options`
    script: tuple = ()  # in the place of expected_extracted.py, with its arguments
    names: tuple = ()
    batch: dict = field(default_factory=dict)
    # Why it is not the same.
    reason: str = ""


def small(name, framework, layout=None, **options):
    return Case(name, framework, options, layout or {"dp": 4})


HYBRID = {"dp_shard": 2, "dp_replicate": 2}


def with_gpt(name, tp, pp, dp, case="sequences", layers=None, **options):
    """A GPTModel of Megatron-core (megatron_extracted.py)."""
    of_script = {"tp": tp, "pp": pp, "case": case, "layers": layers}
    made = Case(name, "megatron", options, {"tp": tp, "pp": pp, "dp": dp, **({"sequence_parallel": True} if tp > 1 and case == "sequences" else {})},
                {"preset": "gpt", "layers": layers or pp, "hidden": 8 * tp, "heads": tp, "ffn": 8 * tp, "vocab": 64, "positions": 8, "tied_embeddings": True},
                tp * pp * dp, ("megatron.core",))
    made.script_options = {**{key: value for key, value in of_script.items() if value}, **options}
    return made


def on(package, name, framework, layout=None, **options):
    return Case(name, framework, options, layout or {"dp": 4}, needs=(package,))


CASES = [
    small("ddp", "ddp", no_sync=True),
    small("ddp-every-micro-batch", "ddp"),
    Case("ddp-sum", "ddp", {"gradient_accumulation": "sum"}, loss="token_mean"),
    small("ddp-allreduce-hook", "ddp", comm_hook="allreduce_hook", no_sync=True),
    small("ddp-fp16-hook", "ddp", comm_hook="fp16_compress_hook"),
    small("ddp-bf16-hook", "ddp", comm_hook="bf16_compress_hook"),
    small("ddp-bf16-hook-no-sync", "ddp", comm_hook="bf16_compress_hook", no_sync=True),
    small("ddp-noop-hook", "ddp", comm_hook="noop_hook"),
    small("fsdp2", "fsdp2"),
    small("fsdp2-held-back", "fsdp2", requires_gradient_sync=False),
    small("fsdp2-bfloat16", "fsdp2", reduce_dtype="bfloat16"),
    small("fsdp2-float16", "fsdp2", reduce_dtype="float16"),
    small("fsdp2-factor-2", "fsdp2", gradient_divide_factor=2),
    small("fsdp2-factor-4", "fsdp2", gradient_divide_factor=4),
    small("fsdp2-float16-factor-8", "fsdp2", reduce_dtype="float16", gradient_divide_factor=8),
    small("fsdp2-sums", "fsdp2", force_sum_reduction_for_comms=True),
    small("hsdp", "fsdp2", layout=HYBRID),
    small("hsdp-shards-kept", "fsdp2", layout=HYBRID, requires_all_reduce=False),
    small("hsdp-held-back", "fsdp2", layout=HYBRID, requires_gradient_sync=False),
    small("hsdp-float16", "fsdp2", layout=HYBRID, reduce_dtype="float16"),
    small("hsdp-factor-2", "fsdp2", layout=HYBRID, gradient_divide_factor=2),
    Case("tensor-parallel", "fsdp2", {}, {"tp": 2, "dp": 2}, {"parameters": BLOCKS}, script=("extracted.py", "tensor-parallel")),
    on("accelerate", "accelerate-ddp", "accelerate"),
    on("accelerate", "accelerate-ddp-every-batch", "accelerate", sync_each_batch=True),
    on("accelerate", "accelerate-ddp-bf16", "accelerate", comm_hook="bf16"),
    on("accelerate", "accelerate-fsdp2", "accelerate", distributed_type="FSDP", fsdp_version=2),
    on("accelerate", "accelerate-fsdp2-every-batch", "accelerate", distributed_type="FSDP", fsdp_version=2, sync_each_batch=True),
    on("deepspeed", "zero-0", "deepspeed", zero_stage=0),
    on("deepspeed", "zero-0-prescale", "deepspeed", zero_stage=0, prescale_gradients=True),
    on("deepspeed", "zero-0-predivide", "deepspeed", zero_stage=0, gradient_predivide_factor=2),
    on("deepspeed", "zero-1", "deepspeed", zero_stage=1),
    on("deepspeed", "zero-1-all-reduce", "deepspeed", zero_stage=1, reduce_scatter=False),
    on("deepspeed", "zero-1-bf16", "deepspeed", zero_stage=1, bf16=True),
    on("deepspeed", "zero-1-bf16-optimizer", "deepspeed", zero_stage=1, bf16=True, grad_accum_dtype="fp32"),
    on("deepspeed", "zero-2", "deepspeed", zero_stage=2),
    on("deepspeed", "zero-2-all-reduce", "deepspeed", zero_stage=2, reduce_scatter=False),
    on("deepspeed", "zero-2-all-reduce-predivide", "deepspeed", zero_stage=2, reduce_scatter=False, gradient_predivide_factor=2),
    on("deepspeed", "zero-2-one-by-one", "deepspeed", zero_stage=2, reduce_scatter=False, contiguous_gradients=False),
    on("deepspeed", "zero-3", "deepspeed", zero_stage=3),
    with_gpt("megatron-tp-sequences", 2, 1, 2, layers=2),
    with_gpt("megatron-tp", 2, 1, 2, "whole", layers=2),
    with_gpt("megatron-pp-optimizer", 1, 2, 2, use_distributed_optimizer=True),
    with_gpt("megatron-tp-pp-optimizer", 2, 2, 2, use_distributed_optimizer=True),
    with_gpt("megatron-overlap", 2, 1, 4, layers=2, use_distributed_optimizer=True, overlap_grad_reduce=True),
]


def scenario_of(case):
    return {"lockstep": 1, "layout": case.layout, "model": case.model or {"parameters": SMALL},
            "batch": {"micro_batches": 2, **case.batch}, "schedule": {"framework": case.framework, "options": case.options}}


def options_of_script(case):
    return {**case.options, **({"dp_replicate": case.layout["dp_replicate"]} if "dp_replicate" in case.layout else {})}


def script_of(case):
    if case.script:
        return list(case.script)
    return ["expected_extracted.py", case.framework, *("%s=%s" % (name, value if isinstance(value, str) else json.dumps(value)) 
                                                     for name, value in (case.script_options or options_of_script(case)).items())]


def results():
    """What test_expected.py has found, by case: verdict, parameters, elements of all ranks together, and what differs."""
    return json.loads((Path(__file__).parent / "expected_results.json").read_text())


def told(found):
    """What is kept of a comparison, as `lockstep diff -f json` says it."""
    return {"verdict": found["verdict"], "parameters": found["parameters"], "elements": found["elements"],
            "ownership": sum(one["ranks"] for one in found["ownership"]),
            "gradients": sorted({(one["old"], one["new"]) for one in found["gradients"]}),
            "undecided": sorted({one["why"] for one in found["undecided"]}), "placements": found["placements"]}


def table():
    lines = ["| framework | options | layout | parameters | elements | verdict |", "|---|---|---|---|---|---|"]
    kept = results()
    for case in CASES:
        found = kept[case.name]
        options = ", ".join("`%s`" % name if value is True else "`%s` %s" % (name, json.dumps(value).strip('"')) for name, value in case.options.items()) or "-"
        layout = " × ".join("%s %s" % (axis, size) if size is not True else "sequence parallel" for axis, size in case.layout.items())
        verdict = found["verdict"] + (", other owners" if found["ownership"] else "") + (": " + case.reason if case.reason else "")
        lines.append("| %s | %s | %s | %d | %s | %s |" % (case.framework, options, layout, found["parameters"], format(found["elements"], ","), verdict))
    return "\n".join(lines) + "\n"
