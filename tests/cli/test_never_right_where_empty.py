# SPDX-License-Identifier: Apache-2.0
"""What a third doubting reader found: pieces without tokens, thresholds on products of many axes, repairs of files that ask for any
size, a frozen parameter in place of the tied one that is wrong."""

import json

import pytest
from test_never_right_where_doubted import BACKWARD, SUM, document, verdict  # noqa: F401

W = [{"name": "w", "shape": [240]}]


def with_step(step, **backward):
    factor = {"name": "backward", "op": "backward", **backward}
    return [{"name": "zero", "op": "zero"}, {"name": "each", "op": "each", "steps": [factor, step]}]


@pytest.mark.parametrize(
    "step, found",
    [
        ({"name": "twice", "op": "scale", "by": "2", "when": "tokens == 0"}, "mismatch"),
        ({"name": "none", "op": "scale", "by": "min(tokens, 1)"}, "mismatch"),
        ({"name": "early", "op": "all_reduce", "over": "dp", "when": "tokens > 0"}, "deadlock"),
        ({"name": "twice", "op": "scale", "by": "2", "when": "sum(tokens, dp) == 0"}, "mismatch"),
    ],
)
def test_a_piece_may_have_no_tokens(step, found, verdict):
    """Conditions on tokens were decided as if each piece had one at least: "right for every size"."""
    empty = {"micro_batches": 2, "tokens": [[[[3]], [[3]]], [[[0]], [[0 if "sum" in str(step) else 7]]]]}
    steps = [*with_step(step, by="1 / sum(tokens, dp, micro_batch)"), SUM]
    if found == "deadlock":
        steps = [*with_step(step, by="1 / sum(tokens, dp, micro_batch)")]
    assert verdict(document({"dp": 2}, W, steps, empty), "symbolic") == found
    proof = verdict(document({"dp": 2}, W, steps, {"micro_batches": 2}))
    assert proof["verdict"] != "right"


def test_why_tokens_leave_a_condition_open(verdict):
    steps = [*with_step({"name": "twice", "op": "scale", "by": "2", "when": "tokens == 0"}), SUM]
    proof = verdict(document({"dp": 2}, W, steps, {"loss": "sum"}))
    assert {limit["why"] for limit in proof["undecided"]} == {'whether "tokens == 0" holds depends on numbers of tokens that are open'}


def test_all_tokens_of_an_optimizer_step_are_some(verdict):
    steps = [*with_step({"name": "twice", "op": "scale", "by": "2", "when": "sum(tokens, dp, micro_batch) == 0"}), SUM]
    assert verdict(document({"dp": 2}, W, steps, {"loss": "sum"}))["verdict"] == "right"


@pytest.mark.parametrize("threshold", [1000])
def test_a_threshold_on_a_product_of_many_axes(threshold, limited, files):
    """20 GB: every product of the sizes of six axes that some case names was made, to look for the smallest wrong one."""
    steps = [
        {"name": "zero", "op": "zero"},
        {"name": "each", "op": "each", "steps": [{"name": "backward", "op": "backward", "when": f"world < {threshold}"}]},
        {"name": "sum", "op": "all_reduce", "over": ["dp", "cp", "sp"]},
        {"name": "s", "op": "scale", "by": "pp / pp * tp / tp"},
    ]
    (files / "a.json").write_text(json.dumps(document({"dp": 2}, W, steps, {"loss": "sum"})))
    proof = json.loads(limited("prove", "--open", "all", "-f", "json", "a.json", memory=1 << 30).stdout)
    assert proof["verdict"] == "wrong"
    sizes = proof["counterexample"]["sizes"]
    product = 1
    for axis in ("tp", "cp", "sp", "dp", "pp"):
        product *= sizes.get(axis, 1)
    assert product == threshold, "no layout with fewer ranks is wrong"


def test_a_repair_of_a_file_for_any_number_of_micro_batches_is_right_for_any(run, files):
    """One that is right with one micro-batch alone was offered, and what --to wrote was a mismatch."""
    zero, per_piece = {"name": "zero", "op": "zero"}, {"name": "backward", "op": "backward", "by": "1 / tokens"}
    each = {"name": "each", "op": "each", "steps": [per_piece]}
    for steps, batch, least in (([zero, each, SUM], {"loss": "local_mean"}, 1), ([zero, BACKWARD], {"loss": "sum"}, 2)):
        (files / "a.json").write_text(json.dumps(document({"dp": 2}, W, steps, {"micro_batches": "any", **batch})))
        count = len(json.loads(run("repair", "-f", "json", "--most", "8", "a.json").stdout)["repairs"])
        assert count >= least
        said = run("repair", "a.json").stdout
        assert 'replayed at sizes in place of "any" by symbolic and host' in said and "own sizes" not in said
        for take in range(1, count + 1):
            assert run("repair", "--most", "8", "--take", str(take), "--to", f"{take}.json", "a.json").returncode == 0
            assert run("check", "-q", "--no-blame", f"{take}.json").stdout.startswith("match"), take


def test_of_tied_parameters_a_frozen_one_is_not_the_wrong_one(run, files):
    """No rank could be shown, and the first of the group was named, which is frozen and has no gradient."""
    tied = [{"name": "a", "shape": [64, 64], "tied": "t", "frozen": True}, {"name": "b", "shape": [64, 64], "tied": "t"}]
    steps = [
        {"name": "zero", "op": "zero"},
        BACKWARD,
        {"name": "red", "op": "reduce_scatter", "over": "sp", "geometry": {"kind": "flat"}},
        {"name": "red2", "op": "reduce_scatter", "over": "dp", "on": "owned"},
    ]
    one = document({"sp": 5, "dp": 2}, tied, steps, {"loss": "sum"})
    one["schedule"]["result"] = "x"
    (files / "a.json").write_text(json.dumps(one))
    for engine in ("symbolic", "parametric"):
        report = json.loads(run("check", "-f", "json", "-v", "--all", "--no-blame", "--engine", engine, "a.json").stdout)
        report = report[0] if isinstance(report, list) else report
        assert [p["name"] for p in report["parameters"] if p["verdict"] != "match"] == ["b"], engine
