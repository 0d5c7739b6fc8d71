# SPDX-License-Identifier: Apache-2.0
"""frameworks/gpt-neox.jsonc: what GPT-NeoX adds to DeepSpeed, and that the rest is DeepSpeed's."""

import itertools

import pytest
from deepspeed_program import NEEDS_PROGRAM, counted, held, on, owned, parameter, refusal, replay_all, verdicts

pytestmark = NEEDS_PROGRAM

SEQUENCE_PARALLEL = {"tp": 2, "dp": 2, "sequence_parallel": True}
NORM = parameter("norm", [6], partial=["tp"], tags=["norm", "replicated"])
WEIGHT = parameter("w", [14], shard={"tp": 0})
BATCH = {"micro_batches": 2, "tokens": "uneven"}


def wrong(report):
    return {entry["name"] for entry in report["parameters"] if entry["verdict"] != "match"}


@pytest.mark.parametrize("stage, scatter", itertools.product((0, 1, 2, 3), (True, False)))
def test_norms_are_summed_over_tp_in_every_micro_batch_whatever_zero_does(stage, scatter):
    options = {"zero_stage": stage, "reduce_scatter": scatter}
    hooked = on("gpt-neox", SEQUENCE_PARALLEL, options, [NORM, WEIGHT], BATCH)
    never_fired = on("gpt-neox", SEQUENCE_PARALLEL, options, [NORM, WEIGHT], BATCH, [{"drop": "norm_all_reduce"}])
    right, broken = replay_all([hooked, never_fired])
    assert right["verdict"] == "match"
    assert wrong(broken) == {"norm"}


def test_a_row_parallel_bias_is_summed_by_nobody_under_sequence_parallelism():
    bias = parameter("bias", [6], partial=["tp"], tags=["bias", "replicated"])
    (report,) = replay_all([on("gpt-neox", SEQUENCE_PARALLEL, {}, [WEIGHT, bias], BATCH)])
    assert wrong(report) == {"bias"}
    # Each tp rank keeps the share of its own part of the sequence, so that the replicas over tp drift apart.
    forms = held(report, "bias")
    assert {rank: {source for source, _, _ in form} for rank, form in forms.items()} == {
        0: {0, 2}, 1: {1, 3}, 2: {0, 2}, 3: {1, 3},
    }  # fmt: skip
    # Without sequence parallelism it is complete on every tp rank.
    whole = parameter("bias", [6], tags=["bias", "replicated"])
    assert verdicts([on("gpt-neox", {"tp": 2, "dp": 2}, {}, [WEIGHT, whole], BATCH)]) == ["match"]


def test_the_hooks_reach_q_k_norms_whose_heads_other_ranks_do_not_have():
    qk_norm = parameter("qk_norm", [4, 3], shard={"tp": 0}, tags=["norm"])
    (with_sp, without) = replay_all(
        on("gpt-neox", layout, {"gradient_clipping": 0}, [WEIGHT, qk_norm], BATCH)
        for layout in (SEQUENCE_PARALLEL, {"tp": 2, "dp": 2})
    )
    assert wrong(with_sp) == {"qk_norm"} and without["verdict"] == "match"
    # Nor are they marked model_parallel: the norm counts those of the first tp rank alone.
    (clipped,) = replay_all([on("gpt-neox", {"tp": 2, "dp": 2}, {}, [WEIGHT, qk_norm], BATCH)])
    assert {count for count in counted(clipped)["qk_norm"].values()} == {"0"}


@pytest.mark.parametrize("pp", [2, 4])
def test_tied_embeddings_are_summed_over_the_pipeline_before_data_parallelism(pp):
    parameters = [
        parameter("embedding", [8, 3], stage=0, shard={"tp": 0}, tied="embed"),
        parameter("inner", [5], stage=-1, tags=["norm", "replicated"]),
        parameter("head", [8, 3], stage=-1, shard={"tp": 0}, tied="embed"),
    ]
    layout = {"tp": 2, "dp": 2, "pp": pp}
    choices = [{"zero_stage": stage, "precision": precision} for stage in (0, 1) for precision in ("fp16", "bfloat16")]
    choices += [{"zero_stage": 1}, {"zero_stage": 1, "precision": "bfloat16", "grad_accum_dtype": "fp32"}]
    right = [on("gpt-neox", layout, options, parameters, BATCH) for options in choices]
    assert verdicts(right) == ["match"] * len(choices)
    # Behind ZeRO's reduce-scatter, as Megatron once had it, it is wrong: the stages cut the embedding differently.
    late = [{"move": "tied_all_reduce", "after": "dp_reduce_scatter"}]
    (report,) = replay_all([on("gpt-neox", layout, {"zero_stage": 1}, parameters, BATCH, late)])
    assert wrong(report) == {"embedding", "head"}
    # fp32 without ZeRO: the norm of clip_grad_norm_ (tests/frameworks/test_deepspeed.py has it as measured).
    (plain,) = replay_all([on("gpt-neox", layout, {}, parameters, BATCH)])
    counts = {name: set(ranks.values()) for name, ranks in counted(plain).items()}
    assert counts == {"embedding": {"2"}, "head": {"2"}, "inner": {"0"}}


def test_what_zero_does_is_what_it_does_in_deepspeed():
    parameters = [parameter("b", [3], tags=["norm", "replicated"]), parameter("w", [13]), parameter("c", [7])]
    divisions = [{}, {"prescale_gradients": True}, {"gradient_predivide_factor": 8}, {"gradient_predivide_factor": 4},
                 {"overlap_comm": True}]  # fmt: skip
    settings = [
        {"zero_stage": stage, "reduce_scatter": scatter, **division}
        for stage, scatter, division in itertools.product((0, 1, 2, 3), (True, False), divisions)
    ]
    reports = {
        name: replay_all(on(name, {"dp": 4}, options, parameters, BATCH) for options in settings)
        for name in ("gpt-neox", "deepspeed")
    }
    seen = set()
    for options, mine, its in zip(settings, reports["gpt-neox"], reports["deepspeed"]):
        assert mine["verdict"] == its["verdict"], options
        seen.add(mine["verdict"])
        if mine["verdict"] == "error":
            continue
        for name in ("b", "w", "c"):
            assert held(mine, name) == held(its, name) and owned(mine, name) == owned(its, name), options
    assert seen == {"match", "mismatch", "error"}


def test_refused_combinations():
    for layout, options, words in (
        ({"dp": 2, "pp": 2}, {"zero_stage": 2}, "ZeRO-2 and ZeRO-3 are incompatible with pipeline parallelism"),
        ({"dp": 2}, {"zero_stage": 3, "pipe_parallel_size": 1}, "pipe_parallel_size 0"),
        ({"dp": 2, "pp": 2}, {"pipe_parallel_size": 4}, "the layout has pp = 2"),
        ({"dp": 2, "cp": 2}, {}, "no context parallelism"),
        ({"dp": 2, "pp": 2, "virtual_stages": 2}, {}, "no virtual stages"),
        ({"dp": 2, "ep": 2}, {}, "over the model-parallel ranks"),
        ({"dp": 2}, {"zero_stage": 2, "prescale_gradients": True}, "prescale_gradients"),
        ({"dp": 2}, {"precision": "fp16", "grad_accum_dtype": "fp32"}, "unsupported mix"),
        ({"dp": 2}, {"precision": "bf16"}, '"bfloat16"'),
        ({"dp": 2}, {"zero_optimization": 1}, "zero_optimization"),
    ):  # fmt: skip
        assert words in refusal(on("gpt-neox", layout, options)), (layout, options)
