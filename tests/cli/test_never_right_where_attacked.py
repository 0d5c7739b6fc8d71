# SPDX-License-Identifier: Apache-2.0
"""What attacks on the prover found (tests/attack): sizes that were called right, or wrong, and are not."""

import json
from pathlib import Path

import pytest

OPENXLA = Path(__file__).resolve().parents[2] / "scenarios/openxla/42481-sliced-before-the-all-reduce.json"
MICRO_BATCHES = {"name": "m", "op": "each", "steps": [{"name": "b", "op": "backward"}]}


def scenario(layout, steps, parameters=None, **batch):
    return {
        "lockstep": 1,
        "layout": layout,
        "model": parameters if isinstance(parameters, dict) else {"parameters": parameters or [{"name": "w", "shape": [720720]}]},
        "batch": {"micro_batches": 1, "tokens": "even", "loss": "sum", **batch},
        "schedule": steps if isinstance(steps, dict) else {"steps": [MICRO_BATCHES, *steps]},
    }


@pytest.fixture
def asked(run, files):
    """asked(document): the proof. asked(document, dp=3): the verdict of a replay at this size."""

    def ask(document, **sizes):
        (files / "a.json").write_text(json.dumps({**document, "layout": {**document["layout"], **sizes}}))
        if not sizes:
            return json.loads(run("prove", "--open", "all", "-f", "json", "a.json").stdout)
        return run("check", "-q", "--no-blame", "--engine", "symbolic", "a.json").stdout.split()[0]

    return ask


@pytest.mark.parametrize(
    "geometry",
    [{"kind": "flat", "align": 1}, {"kind": "flat", "align": "12"}, {"kind": "bucket", "align_bucket": 1}, {"kind": "flat", "align": "lcm(12, 5)"}],
)
@pytest.mark.parametrize("op", ["reduce_scatter", "own"])
def test_what_is_cut_must_come_out_even_at_every_size(op, geometry, asked):
    # 720720 elements divide by 2 to 16, at which it was looked, and not by 17: "right for every size", and refused there.
    first = [] if op == "reduce_scatter" else [{"name": "r", "op": "all_reduce", "over": "dp"}]
    document = scenario({"dp": "any"}, [*first, {"name": "cut", "op": op, "over": "dp", "geometry": geometry}])
    assert (asked(document, dp=4), asked(document, dp=17)) == ("match", "error")
    proof = asked(document)
    assert proof["verdict"] == "undecided"
    (limit,) = proof["undecided"]
    assert limit["step"] == "cut" and "whether that comes out even depends on sizes that are open" in limit["why"]


@pytest.mark.parametrize("geometry", [{"kind": "flat", "align": "dp"}, {"kind": "bucket", "align_bucket": "dp"}])
def test_what_a_group_of_one_size_cuts_must_come_out_even_at_every_size_of_others(geometry, asked):
    # An even number of elements at each dp up to 16, so "right for every size", and 720727 at 19.
    parameters = [{"name": "w", "shape": [720720], "partial": ["tp"]}]
    steps = [{"name": "r", "op": "all_reduce", "over": "dp"}, {"name": "cut", "op": "reduce_scatter", "over": "tp", "geometry": geometry}]
    document = scenario({"dp": "any", "tp": 2}, steps, parameters)
    assert (asked(document, dp=4), asked(document, dp=19)) == ("match", "error")
    assert asked(document)["verdict"] == "undecided"


def test_what_a_group_of_one_size_cuts_of_a_shard_must_come_out_even(asked):
    # 720720 / tp elements: 3 divides them at each tp up to 8, and not at 9.
    parameters = [{"name": "w", "shape": [720720], "shard": {"tp": 0}}]
    document = scenario({"tp": "any", "dp": 3}, [{"name": "cut", "op": "reduce_scatter", "over": "dp", "geometry": {"kind": "flat", "align": 1}}], parameters)
    assert (asked(document, tp=4), asked(document, tp=9)) == ("match", "error")
    assert asked(document)["verdict"] == "undecided"
    document["schedule"]["steps"][1]["geometry"]["align"] = "6"
    assert asked(document)["verdict"] == "right"


@pytest.mark.parametrize("align", ["n", "2 * n", "lcm(n, 128)", "lcm(n, 65536)", "n * n"])
def test_what_is_a_multiple_of_the_number_of_ranks_comes_out_even(align, asked):
    for geometry in ({"kind": "flat", "align": align}, {"kind": "bucket", "align_bucket": align}):
        assert asked(scenario({"dp": "any"}, [{"name": "cut", "op": "reduce_scatter", "over": "dp", "geometry": geometry}]))["verdict"] == "right"


@pytest.mark.parametrize(
    "key, expression, verdict",
    [
        ("size", "17 - n", "undecided"),
        ("align_parameter", "17 - dp", "undecided"),
        ("size", "max(40000000, 1000000 * dp)", "right"),
        ("align_parameter", "max(n, 17) - 16", "undecided"),
        ("size", "min(n * n, 3 + n)", "right"),
    ],
)
def test_a_geometry_that_is_none_at_some_size_is_not_called_right_there(key, expression, verdict, asked):
    # "expected a positive whole number": at dp 17, and not at the sizes that were looked at.
    geometry = {"kind": "bucket", "align_bucket": "n", key: expression}
    document = scenario({"dp": "any"}, [{"name": "cut", "op": "reduce_scatter", "over": "dp", "geometry": geometry}])
    assert asked(document, dp=17) == ("error" if "17 - " in expression else "match")
    proof = asked(document)
    assert proof["verdict"] == verdict and all("is a positive whole number" in one["why"] for one in proof["undecided"])


@pytest.mark.parametrize("ep, right, wrong", [(2, 3, 2), (16, 2, 16)])
def test_whether_instances_agree_depends_on_sizes_in_a_model_file_too(ep, right, wrong, asked, files):
    # The replicas of both meshes agree where dp_replicate does not divide edp: of the sizes from 2 on, one or two were read for all.
    there = {"if": "instance_groups_agree", "then": {"name": "w", "shape": [720720]}, "else": {"name": "w", "shape": [720720], "partial": ["tp"]}}
    (files / "m.jsonc").write_text(json.dumps({"lockstep_model": 1, "name": "m", "sizes": {"k": {"default": 1}}, "parameters": [there]}))
    layout = {"dp_shard": "any", "dp_replicate": ep, "ep": ep, "tp": 2, "etp": 2, "order": "tp-cp-sp-dp-ep-pp"}
    document = scenario(layout, [{"name": "r", "op": "all_reduce", "over": "dp"}], {"preset": "./m.jsonc"})
    assert (asked(document, dp_shard=right), asked(document, dp_shard=wrong)) == ("match", "mismatch")
    proof = asked(document)
    assert proof["verdict"] == "undecided" and any("instance_groups_agree" in one["why"] for one in proof["undecided"])


@pytest.mark.parametrize("when", ["world / pp >= 4", "dp > 3", "max(world / pp, 4) == world / pp"])
def test_an_expert_that_small_meshes_have_not_leaves_no_digit_out(when, asked, files):
    # At ep 1 and edp 2 nothing is left of the expert mesh, and the digit of dp stood for 2 in conditions that were to hold for every edp.
    parameters = [{"name": "norm", "shape": []}, {"name": "expert", "shape": [], "when": when}]
    (files / "m.jsonc").write_text(json.dumps({"lockstep_model": 1, "name": "m", "parameters": parameters}))
    steps = [MICRO_BATCHES, {"name": "to_first", "op": "reduce", "over": "dp", "root": 0},
             {"name": "again", "op": "all_reduce", "over": "edp", "params": ["expert"]}]
    (files / "f.jsonc").write_text(json.dumps({"lockstep_framework": 1, "name": "f", "steps": steps}))
    document = scenario({"dp": 6, "ep": 6}, {"framework": "./f.jsonc"}, {"preset": "./m.jsonc"})
    for sizes, verdict in [((3, 1), "match"), ((4, 1), "mismatch"), ((5, 1), "mismatch"), ((4, 4), "match"), ((4, 2), "mismatch")]:
        assert asked(document, dp=sizes[0], ep=sizes[1]) == verdict, sizes
    proof = asked(document)
    # Of the last one not all sizes are followed, and those that are not are not named.
    followed = "wrong for ep ≥ 2 and edp ≥ 2; for edp ≥ 4 and pp = 1; for edp ≥ 4 and pp = 2"
    said = followed if when.startswith("max") else "wrong as soon as edp ≥ 4, or ep ≥ 2 and edp ≥ 2"
    assert proof["verdict"] == "wrong" and proof["statement"].startswith(said)


def test_a_coordinate_from_the_end_is_seen_to_move_also_where_one_size_was_allowed(asked):
    # Beside ep 1 the size 2 of edp is refused, and at 3 the third coordinate from the end is the first one: it was taken for that at all sizes.
    backward = {"name": "m", "op": "each", "steps": [{"name": "b", "op": "backward", "by": "1 / tokens"}]}
    steps = [backward, {"name": "mean", "op": "scale", "by": "1 / (micro_batches * dp)"}, {"name": "two", "op": "all_reduce", "over": {"dp": [0, -3]}},
             {"name": "whole", "op": "reduce_scatter", "over": "dp", "params": ["norm"]},
             {"name": "expert", "op": "reduce_scatter", "over": "edp", "params": ["expert"]}]
    document = scenario({"dp": 6, "ep": 6}, {"steps": steps}, {"parameters": [{"name": "norm", "shape": []}, {"name": "expert", "shape": []}]})
    document["batch"] = {"loss": "micro_batch_mean"}
    assert [asked(document, dp=dp, ep=1) for dp in (3, 4, 5)] == ["match", "mismatch", "mismatch"]
    proof = asked(document)
    assert proof["verdict"] == "wrong" and "wrong for ep = 1 and edp ≥ 4" in proof["statement"]


def test_a_file_that_is_wrong_at_its_own_sizes_is_told_so_beside_others_that_are_wrong(run, tmp_path):
    # The deadlock at dp 2 was not told of, and the smallest that is wrong was dp 64.
    steps = [MICRO_BATCHES, {"name": "sum", "op": "all_reduce", "over": "dp", "when": "rank.dp == 0 or dp > 19"},
             {"name": "twice", "op": "scale", "by": "2", "when": "dp >= 64"}]
    document = scenario({"dp": 2}, {"steps": steps}, {"parameters": [{"name": "w", "shape": [4]}]})
    (tmp_path / "case.json").write_text(json.dumps(document))
    said = run("prove", "case.json").stdout
    assert "  wrong at the sizes of the file; wrong as soon as dp ≥ 64" in said
    assert ", 1 micro-batch: a deadlock\n" in said and "smallest" not in said
    (tmp_path / "case.json").write_text(json.dumps({**document, "layout": {"dp": 20}}))
    said = run("prove", "case.json").stdout
    assert "  smallest that was found: tp 1, cp 1, sp 1, dp 64," in said  # dp 2 could not be followed


def test_what_a_repair_is_proved_for_is_not_wrong_at_a_size_that_was_tried(run):
    # The third one of a schedule of OpenXLA was "right for every size" beside "wrong at micro-batches 2".
    report = json.loads(run("repair", "-f", "json", str(OPENXLA)).stdout)
    by_reach = {}
    for repair in report["repairs"]:
        by_reach.setdefault(repair["reach"], []).append((repair["proof"], repair["sizes"]["wrong_at"]))
    assert all(wrong_at == "" and "micro_batches" in proof for proof, wrong_at in by_reach["every size of the axes in play"])
    assert by_reach["some sizes"] == [("right for every size of tp alone", "micro-batches 2")]
