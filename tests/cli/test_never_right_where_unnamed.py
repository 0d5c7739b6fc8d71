# SPDX-License-Identifier: Apache-2.0
"""What a second doubting reader found: axes that only a step, a loss or a stage names; ranks without parameters; pieces
without elements; sizes far away."""

import json

import pytest
from test_never_right_where_doubted import BACKWARD, SUM, document, verdict  # noqa: F401

W = [{"name": "w", "shape": [64]}]
TIED = [
    {"name": "embedding", "shape": [8], "tied": "words"},
    {"name": "head", "shape": [8], "tied": "words", "stage": -1},
]
SUM_LOSS = {"loss": "sum"}


@pytest.mark.parametrize(
    "layout, parameters, steps, batch, axis",
    [
        ({"dp": 2}, W, [{"name": "twice", "op": "all_reduce", "over": "tp"}], {}, "tp"),
        ({"dp": 2}, W, [{"name": "twice", "op": "scale", "by": "2", "when": "tp > 4"}], {}, "tp"),
        ({"dp": 2}, W, [], {"loss": {"weight": "1 / cp"}}, "cp"),
        ({"dp": 2}, TIED, [], {}, "pp"),
        ({"dp": 2}, [{"name": "w", "shape": [8], "stage": "all"}], [], {}, "pp"),
    ],
)
def test_an_axis_that_the_file_names_anywhere_is_open(layout, parameters, steps, batch, axis, verdict):
    """It stayed 1 in silence: "right for every size", where 2 of it is a mismatch."""
    one = document(layout, parameters, [BACKWARD, SUM, *steps], {**SUM_LOSS, **batch})
    size = 5 if steps and "when" in steps[0] else 2
    assert verdict(one, "symbolic,host") == "match"
    assert verdict(one, "symbolic,host", **{axis: size}) == "mismatch"
    proof = verdict(one)
    assert (proof["verdict"], proof["counterexample"]["sizes"][axis] >= 2) == ("wrong", True)
    assert axis in proof["open"]


@pytest.mark.parametrize("by, kept", [({}, "right for every size, with tp = 1"), ({"when": "cp < 0"}, "right for every size, with tp = 1")])
def test_parameters_that_a_file_lists_for_a_framework_are_said_to_be_those_of_one_tp_rank(by, kept, files, verdict):
    """The same step over tp in a framework's file: tp stayed 1, and the statement did not say it."""
    steps = [BACKWARD, {"name": "sum", "op": "all_reduce", "over": ["dp", "cp", "sp"]}]
    steps.append({"name": "twice", "op": "all_reduce", "over": "tp", **by})
    (files / "ours.jsonc").write_text(json.dumps({"lockstep_framework": 1, "name": "ours", "steps": steps}))
    one = {**document({"dp": 2}, W, [], SUM_LOSS), "schedule": {"framework": "./ours.jsonc"}}
    assert verdict(one, "symbolic,host", tp=2) == ("match" if by else "mismatch")
    proof = verdict(one)
    assert proof["statement"] == kept
    assert [(one["axis"], one["size"]) for one in proof["kept"]] == [("tp", 1)]


def test_parts_of_dp_are_open_where_a_step_names_one(verdict):
    steps = [BACKWARD, {"name": "sum", "op": "all_reduce", "over": "dp_shard"}]
    one = document({"dp": 2}, W, steps, SUM_LOSS)
    assert verdict(one, "symbolic,host") == "match"
    assert verdict(one)["statement"] == "right only at dp_replicate = 1"


def test_a_model_of_layers_is_placed_on_stages_that_are_open(verdict):
    """The tied embedding of gpt2 lies on two stages as soon as there are two, and nobody sums it over pp."""
    one = {**document({"dp": 2}, W, [BACKWARD, SUM], SUM_LOSS), "model": {"preset": "gpt2"}}
    assert verdict(one)["statement"] == "right only at pp = 1"


def test_steps_without_parameters_are_not_called_right_where_none_is_trained(verdict):
    """Rank 0 calls a norm, and the others never do."""
    steps = [{"name": "norm", "op": "norm", "over": "dp", "when": "rank.dp == 0"}]
    one = document({"dp": 2}, [{"name": "a", "shape": [4], "frozen": True}], steps, SUM_LOSS)
    assert verdict(one, "symbolic,host") == "deadlock"
    assert verdict(one, "parametric") == "error"
    proof = verdict(one)
    assert proof["statement"].startswith("wrong at the sizes of the file; ")
    assert proof["undecided"][0]["why"].startswith("no rank trains a parameter")


def test_a_frozen_parameter_is_on_its_stage(run, files):
    """ "No parameter is on pipeline stage 0" was said of one."""
    parameters = [{"name": "a", "shape": [4], "frozen": True}, {"name": "b", "shape": [4], "stage": 1}]
    (files / "a.json").write_text(json.dumps(document({"pp": 3}, parameters, [BACKWARD], SUM_LOSS)))
    assert 'No parameter is on pipeline stage 2; "stage" is 0' in run("check", "a.json").stdout


@pytest.mark.parametrize("waits, outcome, statement", [(False, "race", "right only at pp = 1"), (True, "match", "right for every size")])
def test_a_rank_without_parameters_waits_for_its_norm_too(waits, outcome, statement, verdict):
    """Every rank calls a norm. Those of stages without a parameter were not looked at: a match where there is a race."""
    steps = [
        BACKWARD,
        SUM,
        {"name": "norm", "op": "norm", "over": "pp"},
        {"name": "own", "op": "norm", "async": True, "when": "rank.pp != last"},
        *([{"op": "wait", "for": "own"}] if waits else []),
    ]
    one = document({"pp": 3}, [{"name": "a", "shape": [4], "stage": -1}], steps, SUM_LOSS)
    for engine in ("symbolic,host", "parametric"):
        assert verdict(one, engine) == outcome, engine
    assert verdict(one)["statement"] == statement


ONE_ROW = [{"name": "a", "shape": [1], "shard": {"tp": {"dim": 0, "uneven": True}}}]


def test_a_norm_need_not_count_a_piece_without_elements(verdict):
    """Of one row that is cut over 8 ranks the first holds all: "counted 0 times" was said of the others' nothing."""
    steps = [BACKWARD, SUM, {"name": "norm", "op": "norm", "over": "tp", "count": "rank.tp == 0"}]
    one = document({"tp": 8, "dp": 2}, ONE_ROW, steps, SUM_LOSS)
    for engine in ("symbolic,host", "parametric"):
        assert verdict(one, engine) == "match", engine
    steps[2]["count"] = "rank.tp != 0"
    for engine in ("symbolic", "parametric"):
        assert verdict(one, engine) == "mismatch", engine


def test_a_norm_that_lacks_a_piece_is_that_of_the_ranks_without_it(run, files):
    (files / "a.json").write_text(json.dumps(document({"tp": 8}, ONE_ROW, [BACKWARD, {"name": "norm", "op": "norm"}], SUM_LOSS)))
    said = {engine: json.loads(run("check", "-f", "json", "--no-blame", "--engine", engine, "a.json").stdout)["norm"]
            for engine in ("symbolic", "parametric")}
    assert {one["rank"] for one in said["symbolic"]} == set(range(1, 8))
    assert said["parametric"] and {one["rank"] for one in said["parametric"]} <= set(range(1, 8))
    assert {one["counted"] for one in said["parametric"]} == {"0"}


def test_a_count_that_is_wrong_is_not_said_to_be_too_early_as_well(run, files):
    """Two norms before the sum count the parameter twice. "counted 1" means a count that is right, and came too early."""
    steps = [BACKWARD, {"name": "norm", "op": "norm", "over": "dp"}, SUM]
    (files / "a.json").write_text(json.dumps(document({"dp": 2}, W, steps, SUM_LOSS)))
    for engine in ("symbolic", "parametric"):
        found = json.loads(run("check", "-f", "json", "--no-blame", "--engine", engine, "a.json").stdout)["norm"]
        assert {one["counted"] for one in found} == {"2"}, engine


def test_a_piece_without_tokens_changes_nothing_after_a_norm(verdict):
    """1/tokens of a rank that has none: "a Rational divided by 0"."""
    backward = {"name": "backward", "op": "backward", "by": "1 / tokens"}
    steps = [
        {"name": "each", "op": "each", "steps": [backward]},
        SUM,
        {"name": "norm", "op": "norm"},
        {"name": "scale", "op": "scale", "by": "1 / dp"},
    ]
    one = document({"dp": 2}, W, steps, {"loss": "local_mean", "tokens": [[[[0]], [[1]]]]})
    assert [verdict(one, engine) for engine in ("symbolic", "parametric")] == ["mismatch", "mismatch"]


def test_a_report_says_null_where_the_expected_formula_cannot_be_told(run, files):
    """All of it was lost: "who owns which part of an owned part is not followed where it matters", exit status 3."""
    parameters = [
        {"name": "a", "shape": [7], "stage": "all", "uses": ["main", "aux"]},
        {"name": "b", "shape": [1], "stage": "all"},
        {"name": "c", "shape": [], "stage": 0, "micro_batches": [0]},
    ]
    cut = {"kind": "bucket", "size": 1000, "align_parameter": 64, "align_bucket": "lcm(n, 16)"}
    steps = [
        BACKWARD,
        {"name": "pipe", "op": "all_reduce", "over": "pp", "params": ["a", "b"]},
        {"name": "cut", "op": "reduce_scatter", "over": ["cp"], "geometry": cut},
        {"name": "cut_again", "op": "reduce_scatter", "over": ["dp"], "on": "owned"},
        {"name": "mean", "op": "scale", "by": "1 / sum(tokens, cp, dp, micro_batch)"},
        {"name": "norm", "op": "norm", "over": ["cp", "pp", "dp"]},
    ]
    batch = {"loss": "token_mean", "tokens": "even"}
    (files / "a.json").write_text(json.dumps(document({"cp": 1, "pp": 5, "dp": 5}, parameters, steps, batch)))
    done = run("check", "-f", "json", "--all", "--engine", "parametric", "--no-blame", "a.json")
    assert done.returncode == 1
    assert None in {one["reference"]["formula"] for one in json.loads(done.stdout)["parameters"]}


def far(by, count="any"):
    """A scale of an only rank that is right where `by` is 1."""
    return document({}, W, [BACKWARD, {"name": "scale", "op": "scale", "by": by}], {**SUM_LOSS, "micro_batches": count})


@pytest.mark.parametrize(
    "by, statement",
    [
        ("micro_batches / 1048576", "wrong for every size but micro_batches = 1048576"),
        ("micro_batches / 2097152", "wrong for every size"),  # there are no so many
        ("1 + (micro_batches - 7) * (micro_batches - 1000003)", "wrong for every size but micro_batches = 7 or micro_batches = 1000003"),
        ("1 + (micro_batches - 5) * (micro_batches - 5) / 3", "wrong for every size but micro_batches = 5"),
        ("(micro_batches / 1000000) * ((micro_batches - 2147483647) * (micro_batches - 64) * (micro_batches - 2147483647)"
         " * (micro_batches - 1) * (micro_batches - 7) * (micro_batches - 77777) * (micro_batches - 30030) + 1)", "wrong for every size"),
    ],
)  # fmt: skip
def test_sizes_at_which_an_equation_holds_are_found_however_large(by, statement, verdict):
    """They were tried one by one, up to 2^20, and the last of these took half a minute."""
    assert verdict(far(by))["statement"] == statement


def test_a_condition_on_a_sum_of_sizes_does_not_cut_off_thousands(run, files):
    """sp + tp > 4095 was followed pair by pair: 15 s, and a sentence of a thousand clauses."""
    steps = [BACKWARD, {"name": "sum", "op": "all_reduce", "over": ["dp", "cp", "sp"]}]
    steps.append({"name": "twice", "op": "scale", "by": "2", "when": "sp + tp > 4095"})
    (files / "a.json").write_text(json.dumps(document({"sp": "any", "tp": "any"}, W, steps, SUM_LOSS)))
    proof = json.loads(run("prove", "--open", "all", "-f", "json", "a.json").stdout)
    assert proof["verdict"] == "wrong" and proof["counterexample"]["sizes"]["sp"] == 4095
    assert proof["statement"].endswith("of the sizes that could be followed")
    assert len(proof["undecided"]) < 10 and all("sp + tp > 4095" in one["why"] for one in proof["undecided"])
