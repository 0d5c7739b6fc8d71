# SPDX-License-Identifier: Apache-2.0
"""What a doubting reader of the documents found: verdicts of proofs and of the engine for large layouts that a replay of every
rank refutes."""

import json

import pytest

BACKWARD = {"name": "each", "op": "each", "steps": [{"name": "backward", "op": "backward"}]}
SUM = {"name": "sum", "op": "all_reduce", "over": "dp"}


@pytest.fixture
def verdict(run, files):
    """verdict(document, engine, dp=3): of the document at this size. verdict(document): the proof's answer."""

    def ask(document, engine="", **sizes):
        (files / "a.json").write_text(json.dumps({**document, "layout": {**document["layout"], **sizes}}))
        if not engine:
            return json.loads(run("prove", "--open", "all", "-f", "json", "a.json").stdout)
        return run("check", "-q", "--no-blame", "--engine", engine, "a.json").stdout.split()[0]

    return ask


def document(layout, parameters, steps, batch=None):
    return {
        "lockstep": 1,
        "layout": layout,
        "model": {"parameters": parameters},
        "batch": {"micro_batches": 1, **(batch or {})},
        "schedule": {"steps": steps},
    }


def test_tokens_in_a_factor_are_those_of_the_step_in_which_it_is_evaluated(verdict):
    """1/T1 of the second optimizer step was taken for 1/T0 where it multiplied what the first one had left: a match."""
    tokens = "1 / sum(tokens, dp, micro_batch)"
    steps = [
        {"name": "zero", "op": "zero"},
        BACKWARD,
        SUM,
        {"name": "mean", "op": "scale", "by": tokens},
        {"name": "keep_a", "op": "copy", "from": "grad", "to": "a", "when": "step == 0"},
        {"name": "keep_b", "op": "copy", "from": "grad", "to": "b", "when": "step == 0"},
        {"name": "scale_a", "op": "scale", "buffer": "a", "by": f"-{tokens}", "when": "step == 0"},
        {"name": "scale_b", "op": "scale", "buffer": "b", "by": tokens, "when": "step == 1"},
        {"name": "add_a", "op": "accumulate", "from": "a", "to": "grad", "when": "step == 1"},
        {"name": "add_b", "op": "accumulate", "from": "b", "to": "grad", "when": "step == 1"},
    ]
    two = document({"dp": 5}, [{"name": "w", "shape": [60]}], steps, {"steps": 2})
    for engine in ("symbolic", "host", "parametric"):
        assert verdict(two, engine) == "mismatch", engine
    assert verdict(two, "parametric", dp=2500) == "mismatch"
    assert verdict(two)["statement"] == "wrong for every size"


def test_a_leftover_of_another_piece_is_another_unknown(verdict):
    """One unknown for each element: the tp ranks hold other elements of a parameter that tp cuts, and their mean is no rank's own."""
    steps = [
        BACKWARD,
        SUM,
        {"name": "left", "op": "leftover", "what": "st", "buffer": "x"},
        {"name": "mean", "op": "all_reduce", "over": "tp", "buffer": "x", "reduce": "avg"},
        {"name": "less", "op": "leftover", "what": "st", "by": -1, "buffer": "x"},
        {"name": "add", "op": "accumulate", "from": "x", "to": "grad"},
    ]
    cut = document({"dp": 2, "tp": 2}, [{"name": "w", "shape": [8], "shard": {"tp": 0}}], steps, {"loss": "sum"})
    whole = document({"dp": 2, "tp": 2}, [{"name": "w", "shape": [8]}], steps, {"loss": "sum"})
    for engine in ("symbolic", "host", "parametric"):
        assert (verdict(cut, engine), verdict(cut, engine, tp=1), verdict(whole, engine)) == ("mismatch", "match", "match"), engine
    assert verdict(cut)["statement"] == "right only at tp = 1"
    assert verdict(whole)["verdict"] == "right"


@pytest.mark.parametrize("cut, kept", [("tp", {"dp": 2}), ("dp_shard", {"dp_replicate": 2})])
def test_a_cut_beside_shards_of_unequal_size_is_another_on_each_rank(cut, kept, verdict):
    """The ranks along tp hold 2 and 1 elements of u in front of w, so that they cut w at other places; then w is summed over tp."""
    [group] = kept
    parameters = [
        {"name": "u", "shape": [3], "shard": {cut: {"dim": 0, "uneven": True}}},
        {"name": "w", "shape": [12], **({"partial": ["tp"]} if cut == "tp" else {})},
    ]
    steps = [
        BACKWARD,
        {"name": "scatter", "op": "reduce_scatter", "over": group, "geometry": {"kind": "flat"}},
        {"name": "sum_w", "op": "all_reduce", "over": cut, "params": "w"},
    ]
    two = document({cut: 2, **kept}, parameters, steps, {"loss": "sum"})
    assert [verdict(two, engine) for engine in ("symbolic", "host")] == ["mismatch", "mismatch"]
    assert verdict(two, "parametric") == "error"
    proof = verdict(two)
    assert proof["statement"].startswith("wrong at the sizes of the file; ") and any("at other places" in one["why"] for one in proof["undecided"])
    # Cut each by itself, or all even, nothing differs.
    steps[1]["geometry"] = {"kind": "parameter"}
    assert [verdict(two, engine) for engine in ("symbolic", "parametric")] == ["match", "match"]
    assert verdict(two)["verdict"] == "right"


@pytest.mark.parametrize(
    "by, statement",
    [
        ("4/dp", "wrong for every size but dp = 4"),
        ("dp - 1", "wrong for every size but dp = 2"),
        ("2", "wrong for every size"),
    ],
)
def test_a_norm_is_not_counted_too_early_where_nothing_changes_after_it(by, statement, verdict):
    """A scale by 1 after the norm changes nothing: "wrong for every size" was said of the size at which the factor is 1, too."""
    steps = [BACKWARD, SUM, {"name": "norm", "op": "norm", "over": "dp", "count": "rank.dp == 0"}, {"name": "scale", "op": "scale", "by": by}]
    one = document({"dp": "any"}, [{"name": "w", "shape": [8]}], steps, {"loss": "sum"})
    for dp in (2, 3, 4):
        expected = "match" if statement.endswith(f"dp = {dp}") else "mismatch"
        assert [verdict(one, engine, dp=dp) for engine in ("symbolic", "parametric")] == [expected] * 2, dp
    assert verdict(one)["statement"] == statement


def test_a_cut_that_cannot_be_made_is_a_mistake_where_ranks_come_to_it(run, verdict):
    """"error" was said of a bucket that no rank cuts, or of one behind a collective that fails: not what a replay of every rank says."""
    cut = {"name": "cut", "op": "reduce_scatter", "over": "dp", "geometry": {"kind": "bucket", "align_bucket": 1}}
    share = {"name": "share", "op": "broadcast", "over": "pp", "root": {"pp": 0}}
    parameters = [{"name": "a", "shape": [3]}, {"name": "b", "shape": [5], "stage": -1}]
    never = document({"dp": 2}, parameters[:1], [BACKWARD, SUM, {**cut, "when": "rank.dp > 1"}], {"loss": "sum"})
    behind = document({"dp": 2, "pp": 2}, parameters, [BACKWARD, share, cut], {"loss": "sum"})
    for one, expected in ((never, "match"), (behind, "invalid_collective")):
        assert verdict(one, "symbolic", dp=2) == expected
        said = run("check", "--engine", "parametric", "a.json")
        assert 'does not follow it: step "cut": a bucket of' in said.stdout + said.stderr
