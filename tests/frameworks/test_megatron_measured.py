# SPDX-License-Identifier: Apache-2.0
"""The Megatron schedule against what the real code computed, number for number on every rank.

finalize_model_grads, DistributedDataParallel and DistributedOptimizer of Megatron-LM d98e8a64 (2026-08-22) and of
megatron-core 0.16.1, which agree, ran on CPU with gloo (torch 2.13.0). One contribution alone fed each element, so the
element was its coefficient. Where a release with a mistake is meant the test says which.
"""

from fractions import Fraction

import pytest
from megatron_program import (
    NEEDS_PROGRAM, check, coefficients, equal, evaluate, everywhere, messages, on, owned, parameter, reveal_after, steps_of,
)

pytestmark = NEEDS_PROGRAM

SHARED = {"tied": "word_embeddings", "tags": ["tied"]}
# Two ends of a pipeline with a tied embedding, and what lies between.
ENDS = [
    parameter("word", [150], stage=0, **SHARED),
    parameter("layer", [70], stage=0),
    parameter("layer_of_last", [70], stage=-1),
    parameter("norm", [10], stage=-1, tags=["norm"]),
    parameter("output", [150], stage=-1, **SHARED),
]
DISTRIBUTED = {"use_distributed_optimizer": True}
# [rank][micro-batch], as the two data-parallel (or context-parallel) ranks had them.
TOKENS = [[3, 5], [2, 10]]


def uneven(axis, micro_batches=2):
    """The batch in which the two ranks along the axis have TOKENS."""
    pieces = [[TOKENS[rank][m] for rank in range(2)] for m in range(micro_batches)]
    if axis == "cp":
        return {"micro_batches": micro_batches, "tokens": [[[[count] for count in piece]] for piece in pieces]}
    return {"micro_batches": micro_batches, "tokens": [[[[count]] for count in piece] for piece in pieces]}


def use_terms(ranks, own, other, own_ranks):
    """Names of both ends' contributions in a report on the parameter `own`: the other end's carry its use."""
    return [f"g{rank}" if rank in own_ranks else f"g{rank}@{other}" for rank in ranks]


# A tied embedding over the pipeline.


@pytest.mark.parametrize("pp", [2, 4])
@pytest.mark.parametrize("options", [{}, DISTRIBUTED, {**DISTRIBUTED, "overlap_grad_reduce": True}], ids=str)
def test_both_ends_of_the_pipeline_hold_every_contribution_over_dp(pp, options):
    content = on({"pp": pp, "dp": 2}, options, ENDS)
    report = check(content)
    assert report["verdict"] == "match"
    first, last = [0, 1], [2 * pp - 2, 2 * pp - 1]
    for name, other, own in (("word", "output", first), ("output", "word", last)):
        expected = equal(Fraction(1, 2), *use_terms([*first, *last], name, other, own))
        slices = owned(report, name)
        assert set(slices) == set(own)
        for rank in own:
            for found in coefficients(content, name, rank, report=report).values():
                assert found == expected


def test_with_one_stage_the_tied_embedding_is_one_parameter_with_both_uses():
    content = on({"dp": 2}, {}, [{**entry, "stage": 0} for entry in ENDS])
    everywhere(content, "word", [0, 1], equal(Fraction(1, 2), "g0", "g1", "g0@output", "g1@output"))
    assert owned(check(content), "word") == {0: [[0, 150]], 1: [[0, 150]]}


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("dp", [2, 4])
def test_stale_elements_hold_the_own_share_then_the_peers_too(dp, overlap):
    options = {**DISTRIBUTED, "overlap_grad_reduce": overlap}
    layout = {"pp": 2, "dp": dp}
    plain = check(on(layout, options, ENDS))
    assert plain["verdict"] == "match"
    slices = {name: owned(plain, name) for name in ("word", "output", "layer")}
    # After the data-parallel reduction: reduced in the own slice, scaled and local elsewhere.
    last_reduction = [name for name in steps_of(on(layout, options, ENDS)) if name.startswith("dp_reduce_scatter")][-1]
    edits = [{"drop": "embedding_all_reduce"}, reveal_after(last_reduction)]
    content = on(layout, options, ENDS, edits=edits)
    for name, stage in (("word", 0), ("output", 1), ("layer", 0)):
        everybody = equal(Fraction(1, dp), *[f"g{stage * dp + d}" for d in range(dp)])
        for d in range(dp):
            rank = stage * dp + d
            for elements, found in coefficients(content, name, rank).items():
                mine = inside(elements, slices[name].get(rank, []))
                assert found == (everybody if mine else equal(Fraction(1, dp), f"g{rank}")), (name, rank, elements)
    # After the embedding's all-reduce: the peer at the same dp coordinate besides.
    content = on(layout, options, ENDS, edits=[reveal_after("embedding_all_reduce")])
    for name, other, stage in (("word", "output", 0), ("output", "word", 1)):
        own = [stage * dp + d for d in range(dp)]
        for d in range(dp):
            rank, peer = stage * dp + d, (1 - stage) * dp + d
            for elements, found in coefficients(content, name, rank).items():
                if inside(elements, slices[name][rank] if rank in slices[name] else []):
                    expected = equal(Fraction(1, dp), *use_terms(range(2 * dp), name, other, own))
                else:
                    expected = equal(Fraction(1, dp), f"g{rank}", f"g{peer}@{other}")
                assert found == expected, (name, rank, elements)


def wrong(report):
    return {entry["name"] for entry in report["parameters"] if entry["verdict"] == "mismatch"}


def inside(elements, runs):
    begin, end = map(int, elements[1:-1].split(","))
    return any(run[0] <= begin and end <= run[1] for run in runs)


def test_force_all_reduce_leaves_nothing_stale_and_the_slices_as_they_were():
    layout = {"pp": 2, "dp": 2}
    scattered, forced = (check(on(layout, {**DISTRIBUTED, "force_all_reduce": force}, ENDS)) for force in (False, True))
    for name in ("word", "output", "layer", "layer_of_last", "norm"):
        assert owned(scattered, name) == owned(forced, name)
    content = on(layout, {**DISTRIBUTED, "force_all_reduce": True}, ENDS, edits=[reveal_after("embedding_all_reduce")])
    everywhere(content, "layer", [0, 1], equal(Fraction(1, 2), "g0", "g1"))
    everywhere(content, "word", [0, 1], equal(Fraction(1, 2), "g0", "g1", "g2@output", "g3@output"))


def test_without_the_flag_shared_embedding_the_bug_of_844_is_back_in_silence():
    edits = [{"set": "dp_reduce_scatter", "geometry": {"separate": []}}]
    report = check(on({"pp": 2, "dp": 2}, DISTRIBUTED, ENDS, edits=edits))
    assert report["verdict"] == "mismatch"
    assert wrong(report) == {"word", "output"}


# Tensor parallelism.

TP = [
    parameter("flagged", [4], partial=["tp"], tags=["norm"]),
    parameter("unflagged", [4], partial=["tp"]),
    parameter("self_attention.q_layernorm.weight", [4], partial=["tp"]),
    parameter("self_attention.k_layernorm.weight", [4], partial=["tp"], tags=["norm"]),
    parameter("averaged", [4], partial=["tp"], tags=["average_gradients_across_tp_domain"]),
    parameter("column", [4], shard={"tp": 0}),
]


@pytest.mark.parametrize("dp", [1, 2])
@pytest.mark.parametrize("sequence_parallel", [False, True])
def test_what_is_summed_over_tp_and_what_is_not(dp, sequence_parallel):
    content = on({"tp": 2, "dp": dp, "sequence_parallel": sequence_parallel}, {}, TP)
    ranks = range(2 * dp)
    for name in ("self_attention.q_layernorm.weight", "self_attention.k_layernorm.weight"):
        # By name, even without sequence parallelism; flag and name together reduce once.
        everywhere(content, name, ranks, equal(Fraction(1, dp), *[f"g{rank}" for rank in ranks]))
    everywhere(content, "averaged", ranks, equal(Fraction(1, 2 * dp), *[f"g{rank}" for rank in ranks]))
    for rank in ranks:
        own = equal(Fraction(1, dp), *[f"g{other}" for other in ranks if other % 2 == rank % 2])
        everywhere(content, "unflagged", [rank], own)
        everywhere(content, "column", [rank], own)
        # Without sequence parallelism flags are ignored.
        both = equal(Fraction(1, dp), *[f"g{other}" for other in ranks])
        everywhere(content, "flagged", [rank], both if sequence_parallel else own)


def test_stale_elements_go_through_the_sum_over_tp_too():
    content = on({"tp": 2, "dp": 2, "sequence_parallel": True}, DISTRIBUTED, [parameter("flagged", [256], partial=["tp"], tags=["norm"])])
    slices = owned(check(content), "flagged")
    content["schedule"]["edits"] = [reveal_after("norm_all_reduce")]
    for rank in range(4):
        mates = [other for other in range(4) if other // 2 == rank // 2]
        for elements, found in coefficients(content, "flagged", rank).items():
            terms = range(4) if inside(elements, slices[rank]) else mates
            assert found == equal(Fraction(1, 2), *[f"g{other}" for other in terms])


# Token counts.


@pytest.mark.parametrize("axis", ["dp", "cp"])
def test_the_default_loss_divides_by_the_own_tokens_and_never_by_cp(axis):
    content = on({axis: 2}, {}, batch=uneven(axis))
    expected = {"g0": Fraction(1, 12), "g0.1": Fraction(1, 20), "g1": Fraction(1, 8), "g1.1": Fraction(1, 40)}
    everywhere(content, "w", [0, 1], expected, TOKENS)
    assert check(content)["verdict"] == "match"


def test_a_loss_function_of_two_values_is_multiplied_by_cp():
    content = on({"cp": 2}, {"loss_func": "local_mean"}, batch=uneven("cp"))
    expected = {"g0": Fraction(1, 6), "g0.1": Fraction(1, 10), "g1": Fraction(1, 4), "g1.1": Fraction(1, 20)}
    everywhere(content, "w", [0, 1], expected, TOKENS)
    # What it should return is divided by the tokens of all cp ranks.
    assert check(on({"cp": 2, "dp": 2}, {"loss_func": "mean_over_cp"}, batch={"micro_batches": 2}))["verdict"] == "match"
    assert check(on({"cp": 2, "dp": 2}, {"loss_func": "local_mean"}, batch={"micro_batches": 2}))["verdict"] == "mismatch"


@pytest.mark.parametrize("axis", ["dp", "cp"])
@pytest.mark.parametrize("options", [{}, DISTRIBUTED], ids=str)
def test_the_per_token_loss_divides_by_all_tokens(axis, options):
    content = on({axis: 2}, {"calculate_per_token_loss": True, **options}, batch=uneven(axis))
    assert "by" not in steps_of(content)["backward"]
    everywhere(content, "w", [0], equal(Fraction(1, 20), "g0", "g0.1", "g1", "g1.1"), TOKENS)
    assert check(content)["verdict"] == "match"


def test_the_per_token_loss_divides_stale_elements_too():
    content = on({"dp": 2}, {"calculate_per_token_loss": True, **DISTRIBUTED}, [parameter("w", [256])], uneven("dp"))
    slices = owned(check(content), "w")
    content["schedule"]["edits"] = [reveal_after("token_count_scale")]
    for rank in range(2):
        for elements, found in coefficients(content, "w", rank, TOKENS).items():
            terms = ("g0", "g0.1", "g1", "g1.1") if inside(elements, slices[rank]) else (f"g{rank}", f"g{rank}.1")
            assert found == equal(Fraction(1, 20), *terms)


def test_average_in_collective_leaves_stale_elements_unscaled():
    options = {"ddp_average_in_collective": True}
    everywhere(on({"dp": 2}, options), "w", [0, 1], equal(Fraction(1, 2), "g0", "g1"))
    content = on({"dp": 2}, {**options, **DISTRIBUTED}, [parameter("w", [256])])
    slices = owned(check(content), "w")
    content["schedule"]["edits"] = [reveal_after("dp_reduce_scatter")]
    for rank in range(2):
        for elements, found in coefficients(content, "w", rank).items():
            expected = equal(Fraction(1, 2), "g0", "g1") if inside(elements, slices[rank]) else equal(1, f"g{rank}")
            assert found == expected
    refused = messages(on({"dp": 2}, {**options, "calculate_per_token_loss": True}))
    assert ["Cannot average in collective" in text for text in refused] == [True]


# Experts.

EXPERTS = [
    parameter("dense", [4]),
    parameter("expert", [4, 4], shard={"ep": 0, "etp": 1}, dispatch=["etp", "ep"], tags=["expert"]),
]


@pytest.mark.parametrize(
    "layout, coefficient, sources",
    [
        ({"dp": 2, "ep": 2}, Fraction(1, 2), [0, 1]),  # edp 1
        ({"dp": 4, "ep": 2}, Fraction(1, 4), [0, 1, 2, 3]),  # edp 2
        ({"dp": 2, "cp": 2, "ep": 2}, Fraction(1, 4), [0, 1, 2, 3]),
        ({"tp": 2, "dp": 2, "etp": 1, "sequence_parallel": True}, Fraction(1, 2), [0, 1, 2, 3]),  # edp 4
        ({"tp": 2, "dp": 2, "etp": 1, "ep": 2, "sequence_parallel": True}, Fraction(1, 2), [0, 1, 2, 3]),  # edp 2
    ],
    ids=str,
)
@pytest.mark.parametrize("average", [False, True])
@pytest.mark.parametrize("options", [{}, DISTRIBUTED], ids=str)
def test_experts_are_divided_by_dp_and_cp_and_never_by_edp(layout, coefficient, sources, average, options):
    content = on(layout, {"ddp_average_in_collective": average, **options}, EXPERTS)
    report = check(content)
    for rank in owned(report, "expert"):
        for found in coefficients(content, "expert", rank, report=report).values():
            assert found == equal(coefficient, *[f"g{source}" for source in sources])
    # Scaled before by edp/(dp * cp) where edp is then averaged over.
    sizes = report["layout"]
    assert evaluate(steps_of(content)["expert_dp_scale"]["by"], sizes) == coefficient * (sizes["edp"] if average else 1)


def test_experts_with_the_per_token_loss_are_divided_by_the_tokens():
    batch = {"micro_batches": 1, "tokens": [[[[3]], [[7]]]]}
    content = on({"dp": 2, "ep": 2}, {"calculate_per_token_loss": True}, EXPERTS, batch)
    everywhere(content, "expert", [0, 1], equal(Fraction(1, 10), "g0", "g1"))
    assert check(content)["verdict"] == "match"


# Virtual pipeline.


@pytest.mark.parametrize("options", [{}, DISTRIBUTED, {**DISTRIBUTED, "overlap_grad_reduce": True}], ids=str)
def test_every_chunk_is_reduced_as_one_without_chunks_would_be(options):
    model = [
        parameter("word", [150], stage=0, **SHARED),
        parameter("a", [70], stage=0),
        parameter("b", [70], stage=1),
        parameter("c", [70], stage=0, chunk=1),
        parameter("d", [70], stage=1, chunk=1),
        parameter("output", [150], stage=1, chunk=1, **SHARED),
    ]
    content = on({"pp": 2, "dp": 2, "virtual_stages": 2}, options, model)
    report = check(content)
    assert report["verdict"] == "match"
    for name, ranks in (("a", (0, 1)), ("b", (2, 3)), ("c", (0, 1)), ("d", (2, 3))):
        for rank in owned(report, name):
            for found in coefficients(content, name, rank, report=report).values():
                assert found == equal(Fraction(1, 2), *[f"g{source}" for source in ranks])


# Released versions with mistakes.


def test_core_0_8_0_made_gradients_cp_times_too_large():
    # It divided by dp alone while it reduced over dp and cp. Releases 0.7.0 and 0.9.0 are right.
    layout = {"cp": 2, "dp": 2}
    content = on(layout, {}, edits=[{"set": "dp_scale", "by": "1 / dp"}], batch={"tokens": "even"})
    everywhere(content, "w", range(4), equal(Fraction(1, 2), "g0", "g1", "g2", "g3"))
    report = check(content)
    assert report["verdict"] == "mismatch" and report["parameters"][0]["replicas_agree"]
    assert {piece["ratio"] for entry in report["parameters"][0]["ranks"] for piece in entry["pieces"]} == {"2"}
    right = on(layout, {}, batch={"tokens": "even"})
    everywhere(right, "w", range(4), equal(Fraction(1, 4), "g0", "g1", "g2", "g3"))
    assert check(right)["verdict"] == "match"


def test_core_0_7_0_to_0_12_0_counted_tokens_over_dp_without_cp():
    edit = {"set": "token_count_scale", "by": "1 / max(sum(tokens, dp, micro_batch), 1)"}
    content = on({"cp": 2}, {"calculate_per_token_loss": True}, batch=uneven("cp"), edits=[edit])
    for rank, coefficient in ((0, Fraction(1, 8)), (1, Fraction(1, 12))):
        everywhere(content, "w", [rank], equal(coefficient, "g0", "g0.1", "g1", "g1.1"), TOKENS)
    report = check(content)
    assert report["verdict"] == "mismatch" and not report["parameters"][0]["replicas_agree"]


# #844.


@pytest.mark.parametrize("dp", [2, 4])
def test_the_buffers_of_january_2024_break_the_tied_embedding_as_measured(dp):
    content = on({"pp": 2, "dp": dp}, {**DISTRIBUTED, "grad_buffer_layout": "2024-01"}, ENDS)
    report = check(content)
    assert report["verdict"] == "mismatch"
    if dp == 2:
        assert owned(report, "word") == {0: [[0, 40]], 1: [[40, 150]]}
        assert owned(report, "output") == {2: [[0, 115]], 3: [[115, 150]]}
        half = Fraction(1, 2)
        everybody = equal(half, "g0", "g1", "g2@output", "g3@output")
        found = coefficients(content, "word", 1, report=report)
        assert found.pop("[40,115)") == equal(half, "g0", "g1", "g3@output")
        assert list(found.values()) == [everybody] or not found
        assert coefficients(content, "output", 2, report=report)["[40,115)"] == equal(half, "g2", "g3", "g0@word")
    else:
        # Every element is wrong: an owner has all of its own side and one of the other side's four.
        for name, own in (("word", range(4)), ("output", range(4, 8))):
            for rank in owned(report, name):
                for found in coefficients(content, name, rank, report=report).values():
                    mine = [key for key in found if "@" not in key]
                    assert len(mine) == 4 and len(found) == 5 and set(found.values()) == {Fraction(1, 4)}
    assert wrong(report) == {"word", "output"}
    without = check(on({"pp": 2, "dp": dp}, {"grad_buffer_layout": "2024-01"}, ENDS))
    assert without["verdict"] == "match"


@pytest.mark.parametrize("dp", [2, 4])
def test_todays_buffers_cut_both_ends_alike(dp):
    report = check(on({"pp": 2, "dp": dp}, DISTRIBUTED, ENDS))
    assert report["verdict"] == "match"
    for name, first in (("word", 0), ("output", dp)):
        slices = owned(report, name)
        expected = {2: [[[0, 128]], [[128, 150]]], 4: [[[0, 64]], [[64, 128]], [[128, 150]], None]}[dp]
        assert [slices.get(first + d) for d in range(dp)] == expected
