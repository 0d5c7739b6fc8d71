# SPDX-License-Identifier: Apache-2.0
"""The oracle against numbers worked out by hand."""

from fractions import Fraction

import pytest

from layout import Batch, Mesh
from oracle import judge


def scenario(steps, parameters=None, result="grad", **keys):
    """The steps after one `each` with a backward, on parameters that default to one of 4 elements."""
    batch = {"micro_batches": 1, "tokens": "even", "loss": "sum", **keys.pop("batch", {})}
    if not any(step["op"] == "each" for step in steps):
        steps = [{"name": "each", "op": "each", "steps": [{"name": "backward", "op": "backward"}]}] + steps
    for i, step in enumerate(steps):
        step.setdefault("name", f"step{i}")
    return {
        "layout": {"dp": 2},
        "model": {"parameters": parameters or [{"name": "w", "shape": [4]}]},
        "batch": batch,
        "schedule": {"steps": steps, "result": result},
        **keys,
    }


def coefficients(report, name, rank, element):
    """{(rank, micro-batch, use): coefficient} of one owned element."""
    for parameter in report["parameters"]:
        for entry in parameter["ranks"] if parameter["name"] == name else []:
            for piece in entry["pieces"] if entry["rank"] == rank else []:
                if piece["elements"][0] <= element < piece["elements"][1]:
                    return {
                        (
                            c.get("rank", c.get("of_rank")),
                            c.get("micro_batch"),
                            c.get("use", c.get("leftover")),
                        ): Fraction(c["value"])
                        for c in piece["coefficients"]
                    }
    return None


def owned(report, name, rank):
    return next(
        entry["owned"]
        for p in report["parameters"]
        if p["name"] == name
        for entry in p["ranks"]
        if entry["rank"] == rank
    )


# The code of January 2024 on small sizes: where each slice lies, and what the embedding all-reduce made of it.

STAGES = [
    {"name": "word", "shape": [150], "tied": "embedding"},
    {"name": "layers.0", "shape": [70]},
    {"name": "layers.1", "shape": [70], "stage": 1},
    {"name": "norm", "shape": [10], "stage": 1},
    {"name": "output", "shape": [150], "stage": 1, "tied": "embedding"},
]
TIGHT = {"kind": "bucket", "align_parameter": 1, "align_bucket": "n"}


def megatron_844(geometry):
    return scenario(
        [
            {"op": "scale", "by": "1/dp"},
            {"op": "reduce_scatter", "over": "dp", "geometry": geometry},
            {"op": "all_reduce", "params": ["tied:embedding"], "over": {"pp": ["first", "last"]}},
        ],
        STAGES,
        layout={"pp": 2, "dp": 2},
        batch={"loss": "local_mean"},
    )


def test_megatron_844_goes_wrong_exactly_where_it_was_measured():
    report = judge(megatron_844(TIGHT))
    assert report["verdict"] == "mismatch"
    assert [owned(report, "word", rank) for rank in (0, 1)] == [[[0, 40]], [[40, 150]]]
    assert [owned(report, "output", rank) for rank in (2, 3)] == [[[0, 115]], [[115, 150]]]
    half = Fraction(1, 2)
    everything = {(0, 0, "word"): half, (1, 0, "word"): half, (2, 0, "output"): half, (3, 0, "output"): half}
    assert coefficients(report, "word", 0, 39) == everything
    assert coefficients(report, "word", 1, 40) == {k: v for k, v in everything.items() if k[0] != 2}
    assert coefficients(report, "word", 1, 115) == everything
    assert coefficients(report, "output", 2, 114) == {k: v for k, v in everything.items() if k[0] != 1}
    assert coefficients(report, "output", 3, 115) == everything
    wrong = {p["name"] for p in report["parameters"] if p["verdict"] == "mismatch"}
    assert wrong == {"word", "output"}


def test_megatron_844_is_right_with_the_shared_embedding_in_a_bucket_of_its_own():
    assert judge(megatron_844({"kind": "bucket", "separate": ["tied:embedding"]}))["verdict"] == "match"


# Losses and tokens.

TOKENS = [[[[3]], [[2]]], [[[5]], [[10]]]]  # [micro-batch][dp], as measured: rank 0 has 3 and 5, rank 1 has 2 and 10


@pytest.mark.parametrize(
    "loss, by, after",
    [
        ("token_mean", 1, "1/20"),
        ("micro_batch_mean", "1/tokens", "1/4"),
        ("local_mean", "1/tokens", "1/(micro_batches*dp)"),
        ("sum", 1, 1),
        ({"weight": "rank.dp+micro_batch+1"}, "rank.dp+micro_batch+1", 1),
    ],
)
def test_every_loss_is_met_by_the_factor_that_makes_it(loss, by, after):
    each = {"op": "each", "steps": [{"name": "b", "op": "backward", "by": by}]}
    steps = [each, {"op": "all_reduce", "over": "dp"}, {"op": "scale", "by": after}]
    batch = {"micro_batches": 2, "tokens": TOKENS, "loss": loss}
    assert judge(scenario(steps, batch=batch))["verdict"] == "match"
    steps[-1]["by"] = "1/21"
    assert judge(scenario(steps, batch=batch))["verdict"] == "mismatch"


def test_a_mean_of_local_means_is_not_the_token_mean():
    each = {"op": "each", "steps": [{"name": "b", "op": "backward", "by": "1/tokens"}]}
    report = judge(
        scenario(
            [each, {"op": "all_reduce", "over": "dp"}, {"op": "scale", "by": "1/4"}],
            batch={"micro_batches": 2, "tokens": TOKENS, "loss": "token_mean"},
        )
    )
    assert report["verdict"] == "mismatch"
    # Relative to what backward added: 1/4 of each local mean.
    assert set(coefficients(report, "w", 0, 0).values()) == {Fraction(1, 4)}


def test_a_piece_without_tokens_has_no_contribution_but_counts_in_the_mean():
    tokens = [[[[0]], [[4]]]]
    each = {"op": "each", "steps": [{"name": "b", "op": "backward", "by": "1/tokens"}]}
    report = judge(
        scenario(
            [each, {"op": "all_reduce", "over": "dp", "reduce": "avg"}], batch={"tokens": tokens, "loss": "local_mean"}
        )
    )
    assert report["verdict"] == "match"
    assert coefficients(report, "w", 0, 0) == {(1, 0, "w"): Fraction(1, 2)}


def test_uneven_tokens_count_micro_batches_through_the_optimizer_steps():
    mesh = Mesh({"dp": 2})
    batch = Batch({"micro_batches": [2, 1], "steps": 2}, mesh)
    assert [
        batch.tokens_at("main", s, m, {"dp": d, "cp": 0, "sp": 0}) for s, m in ((0, 0), (0, 1), (1, 0)) for d in (0, 1)
    ] == [1, 2, 2, 4, 4, 1]


# Placements.


def test_a_replicated_gradient_is_one_contribution_named_by_the_lowest_rank():
    report = judge(scenario([], layout={"tp": 2}))
    assert report["verdict"] == "match"
    assert coefficients(report, "w", 1, 0) == {(0, 0, "w"): 1}
    assert judge(scenario([{"op": "all_reduce", "over": "tp"}], layout={"tp": 2}))["verdict"] == "mismatch"


def test_partial_shares_must_be_summed():
    parameters = [{"name": "w", "shape": [4], "partial": ["tp"]}]
    assert judge(scenario([], parameters, layout={"tp": 2}))["verdict"] == "mismatch"
    assert judge(scenario([{"op": "all_reduce", "over": "tp"}], parameters, layout={"tp": 2}))["verdict"] == "match"


def test_an_all_reduce_over_shards_mixes_up_elements():
    report = judge(
        scenario(
            [{"op": "all_reduce", "over": "tp"}], [{"name": "w", "shape": [4], "shard": {"tp": 0}}], layout={"tp": 2}
        )
    )
    entries = report["parameters"][0]["ranks"][1]["pieces"][0]["coefficients"]
    assert [(e["rank"], e.get("foreign"), e.get("of"), e.get("offset")) for e in entries] == [
        (1, None, None, None),
        (0, True, "w", 0),
    ]


def test_with_dispatch_the_tokens_of_the_whole_group_are_in_the_local_gradient():
    parameters = [{"name": "w", "shape": [4, 2], "shard": {"ep": 0}, "dispatch": ["ep"]}]
    layout = {"dp": 4, "ep": 2}
    each = {"op": "each", "steps": [{"name": "b", "op": "backward", "by": "1/(rank.dp+1)"}]}
    report = judge(scenario([each], parameters, layout=layout, batch={"loss": {"weight": "1/(rank.dp+1)"}}))
    assert report["verdict"] == "mismatch"
    assert coefficients(report, "w", 0, 0) == {(0, 0, "w"): 1, (1, 0, "w"): 1}
    assert coefficients(report, "w", 3, 0) == {(2, 0, "w"): 1, (3, 0, "w"): 1}
    report = judge(
        scenario(
            [each, {"op": "all_reduce", "over": "edp"}],
            parameters,
            layout=layout,
            batch={"loss": {"weight": "1/(rank.dp+1)"}},
        )
    )
    assert report["verdict"] == "match"
    assert len(coefficients(report, "w", 0, 0)) == 4


def test_tied_parameters_on_one_rank_share_a_buffer_with_all_their_uses():
    parameters = [
        {"name": "in", "shape": [4], "tied": "t"},
        {"name": "out", "shape": [4], "tied": "t", "uses": ["main", "aux"]},
    ]
    report = judge(scenario([{"op": "all_reduce", "over": "dp"}], parameters))
    assert report["verdict"] == "match"
    assert [len(p["ranks"]) for p in report["parameters"]] == [2, 0]
    assert {use for _, _, use in coefficients(report, "in", 0, 0)} == {"in", "out", "out:aux"}


def test_where_two_axes_cut_one_dimension_the_first_written_cuts_first():
    report = judge(
        scenario(
            [], [{"name": "w", "shape": [8], "shard": {"cp": 0, "tp": 0}, "partial": []}], layout={"tp": 2, "cp": 2}
        )
    )
    assert report["verdict"] == "match"  # every rank alone holds its piece
    assert all(owned(report, "w", rank) == [[0, 2]] for rank in range(4))


def test_uneven_shards_are_cut_as_torch_chunk_does():
    parameters = [{"name": "w", "shape": [5], "shard": {"tp": {"dim": 0, "uneven": True}}}]
    report = judge(scenario([], parameters, layout={"tp": 4}))
    assert [owned(report, "w", rank) for rank in range(4)] == [[[0, 2]], [[0, 2]], [[0, 1]], []]


# Ownership, families, norm.


def test_a_row_is_never_cut():
    report = judge(
        scenario(
            [{"op": "reduce_scatter", "over": "dp", "geometry": {"kind": "rows"}}], [{"name": "w", "shape": [3, 5]}]
        )
    )
    assert [owned(report, "w", rank) for rank in (0, 1)] == [[[0, 10]], [[10, 15]]]


def test_counts_give_each_member_its_parts():
    geometry = {"kind": "counts", "counts": [3, 0, 1]}
    steps = [{"op": "reduce_scatter_v", "over": "dp", "geometry": geometry}]
    report = judge(scenario(steps, [{"name": "w", "shape": [8]}], layout={"dp": 3}))
    assert report["verdict"] == "match"
    assert [owned(report, "w", rank) for rank in range(3)] == [[[0, 6]], [], [[6, 8]]]


def test_an_all_gather_undoes_a_reduce_scatter():
    steps = [{"op": "reduce_scatter", "over": "dp", "geometry": {"kind": "flat"}}, {"op": "all_gather", "over": "dp"}]
    report = judge(scenario(steps))
    assert report["verdict"] == "match"
    assert owned(report, "w", 1) == [[0, 4]]


def test_what_nobody_in_a_family_owns_is_missing():
    reduce = {"op": "reduce", "over": "dp", "root": 0}
    assert judge(scenario([reduce]))["verdict"] == "match"
    report = judge(scenario([reduce, {"name": "again", "op": "reduce", "over": "dp", "root": 1}]))
    assert report["verdict"] == "mismatch"
    assert report["parameters"][0]["unowned"] == [[0, 4]]
    report = judge(scenario([{"op": "all_reduce", "over": "dp"}, {"op": "own", "over": "dp", "only": {"dp": [0]}}]))
    assert [entry.get("unowned") for entry in report["parameters"][0]["ranks"]] == [[[2, 4]], None]


def test_owned_parts_are_reduced_by_position():
    steps = [{"op": "reduce_scatter", "over": "dp_shard"}, {"op": "all_reduce", "over": "dp_replicate", "on": "owned"}]
    layout = {"dp_shard": 2, "dp_replicate": 2}
    report = judge(scenario(steps, layout=layout))
    assert report["verdict"] == "match"
    steps[1].pop("on")
    assert judge(scenario(steps, layout=layout))["verdict"] == "match"


def norm_of(*steps, reduction=None):
    reduction = reduction or {"op": "reduce_scatter", "over": "dp"}
    report = judge(scenario([reduction, *steps]))
    return report["verdict"], [(entry["rank"], entry["counted"]) for entry in report["norm"]]


def test_a_norm_counts_every_element_once_on_every_rank():
    assert norm_of({"op": "norm", "over": "dp"}) == ("match", [])
    assert norm_of({"op": "norm"}) == ("mismatch", [(0, "0"), (1, "0")])
    all_reduce = {"op": "all_reduce", "over": "dp"}
    assert norm_of({"op": "norm", "over": "dp"}, reduction=all_reduce) == ("mismatch", [(0, "2"), (1, "2")])
    assert norm_of({"op": "norm", "over": "dp", "count": "rank.dp == 0"}, reduction=all_reduce) == ("match", [])
    assert norm_of({"op": "norm", "over": "dp", "combine": "mean_of_norms"}) == (
        "mismatch",
        [(0, "mean_of_norms"), (1, "mean_of_norms")],
    )


def test_a_norm_of_what_changes_later_is_too_early():
    early = judge(
        scenario(
            [{"op": "reduce_scatter", "over": "dp"}, {"op": "norm", "over": "dp"}, {"op": "scale", "by": 2}],
            batch={"loss": {"weight": 2}},
        )
    )
    assert (early["verdict"], [e["counted"] for e in early["norm"]]) == ("mismatch", ["1", "1"])


def clips_of(report):
    """Of each rank: the factors of each contribution that its first element has."""
    pieces = [entry["pieces"][0] for entry in report["parameters"][0]["ranks"]]
    return [[entry.get("clips", []) for entry in piece["coefficients"]] for piece in pieces]


def test_what_is_clipped_is_clipped_once_by_the_norm_of_all():
    total, norm, clip = {"op": "all_reduce", "over": "dp"}, {"op": "norm"}, {"op": "clip"}
    assert judge(scenario([total, norm, clip]))["verdict"] == "match"
    assert judge(scenario([{"op": "reduce_scatter", "over": "dp"}, {"op": "norm", "over": "dp"}, clip]))["verdict"] == "match"
    assert judge(scenario([total, norm]))["verdict"] == "match"
    for steps, clips in (
        ([norm, clip, total], [[["clip0"], ["clip1"]]] * 2),
        ([norm, total, clip], [[["clip0"]] * 2, [["clip1"]] * 2]),
        ([total, {"op": "norm", "over": "dp"}, clip], [[["clip0"]] * 2] * 2),
        ([total, norm, clip, dict(clip)], [[["clip", "clip"]] * 2] * 2),
        ([total, norm, {**clip, "only": {"dp": [0]}}], [[["clip"]] * 2, [[]] * 2]),
        ([total, clip], [[["clip0"]] * 2] * 2),
    ):
        report = judge(scenario([dict(step) for step in steps]))
        assert report["verdict"] == "mismatch"
        assert clips_of(report) == clips


def test_a_norm_counts_only_what_its_owner_keeps_to_the_end():
    steps = [{"op": "all_reduce", "over": "dp"}, {"op": "norm", "over": "dp", "count": "rank.dp == 1"}]
    assert judge(scenario(steps))["verdict"] == "match"
    report = judge(scenario(steps + [{"op": "own", "over": "dp"}]))
    assert (report["verdict"], [e["counted"] for e in report["norm"]]) == ("mismatch", ["1", "1"])


def test_each_stage_needs_owners_of_its_own():
    everywhere = [{"name": "w", "shape": [4], "stage": "all"}]
    report = judge(scenario([{"op": "reduce", "over": "pp", "root": 0}], everywhere, layout={"pp": 2}))
    assert [entry.get("unowned") for entry in report["parameters"][0]["ranks"]] == [None, [[0, 4]]]


def test_ownership_is_whole_again_at_the_start_of_each_optimizer_step():
    steps = [
        {"op": "zero"},
        {"op": "each", "steps": [{"name": "b", "op": "backward"}]},
        {"op": "all_reduce", "over": "dp"},
    ]
    report = judge(scenario(steps + [{"op": "own", "over": "dp", "when": "step == 0"}], batch={"steps": 2}))
    assert (report["verdict"], report["step"], owned(report, "w", 1)) == ("match", 1, [[0, 4]])


# What ends a run.


def test_a_collective_that_a_member_never_reaches_is_a_deadlock():
    report = judge(scenario([{"name": "sync", "op": "all_reduce", "over": "dp", "only": {"dp": [1]}}]))
    assert (report["verdict"], report["stuck"]) == ("deadlock", [{"rank": 1, "waits_in": "sync", "for": [0]}])


def test_calls_of_one_group_meet_in_their_order_whatever_their_steps():
    parameters = [{"name": "a", "shape": [4]}, {"name": "b", "shape": [4]}, {"name": "c", "shape": [3]}]
    first = {"op": "all_reduce", "over": "dp", "params": ["a"], "when": "rank.dp == 0"}
    second = {"op": "all_reduce", "over": "dp", "params": ["b"], "when": "rank.dp == 1"}
    report = judge(scenario([first, second], parameters))
    assert report["verdict"] == "mismatch"
    foreign = report["parameters"][0]["ranks"][0]["pieces"][0]["coefficients"][1]
    assert (foreign["rank"], foreign["foreign"], foreign["of"]) == (1, True, "b")
    second["params"] = ["c"]
    report = judge(scenario([first, second], parameters))
    assert (report["verdict"], len(report["stuck"])) == ("invalid_collective", 2)


def test_touching_a_buffer_in_flight_is_a_race():
    start = {"name": "start", "op": "all_reduce", "over": "dp", "async": True}
    touch, wait = {"name": "touch", "op": "scale", "by": 1}, {"name": "wait", "op": "wait", "for": "start"}
    assert judge(scenario([start, wait, touch]))["verdict"] == "match"
    report = judge(scenario([start, touch, wait]))
    assert report["verdict"] == "race"
    assert report["stuck"][0] == {"rank": 0, "step": "touch", "in_flight": "start", "touches": "grad of w"}
    assert judge(scenario([start]))["verdict"] == "race"
    assert judge(scenario([start, {**touch, "buffer": "other"}, wait]))["verdict"] == "match"


def test_a_mismatch_in_a_completed_step_comes_before_a_later_deadlock():
    steps = [
        {"op": "zero"},
        {"op": "each", "steps": [{"name": "b", "op": "backward"}]},
        {"op": "all_reduce", "over": "dp"},
        {"op": "broadcast", "over": "dp", "root": 0, "when": "step == 0 or rank.dp == 0"},
    ]
    assert judge(scenario(steps, batch={"steps": 2}))["verdict"] == "deadlock"
    steps[2]["reduce"] = "avg"
    report = judge(scenario(steps, batch={"steps": 2}))
    assert (report["verdict"], report["step"]) == ("mismatch", 0)


def test_buffers_live_on_through_optimizer_steps():
    each = {"op": "each", "steps": [{"name": "b", "op": "backward"}]}
    report = judge(scenario([each, {"op": "all_reduce", "over": "dp"}], batch={"steps": 2}))
    assert (report["verdict"], report["step"]) == ("mismatch", 1)
    assert coefficients(report, "w", 0, 0) == {(0, 0, "w"): 2, (1, 0, "w"): 2, (0, 1, "w"): 1, (1, 1, "w"): 1}


def test_a_leftover_is_one_unknown_on_all_ranks_or_one_on_each():
    for per, count in ((None, 1), ("rank", 2)):
        leftover = {"op": "leftover", "what": "parameter", **({"per": per} if per else {})}
        report = judge(scenario([leftover, {"op": "all_reduce", "over": "dp"}]))
        unknown = {k: v for k, v in coefficients(report, "w", 0, 0).items() if k[2] == "parameter"}
        assert len(unknown) == count and sum(unknown.values()) == 2
