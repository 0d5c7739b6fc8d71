# SPDX-License-Identifier: Apache-2.0
"""prove, diff, repair and check do not say right, or the same, where it is wrong at some size."""

import json
import shutil
from pathlib import Path

import pytest

CASES = Path(__file__).resolve().parent.parent / "defects" / "prove"
SCENARIOS = CASES.parent.parent.parent / "scenarios"


@pytest.fixture
def proof_of(run, files):
    shutil.copytree(CASES, files, dirs_exist_ok=True)

    def prove(name):
        return json.loads(run("prove", "--open", "all", "-f", "json", name).stdout)

    return prove


def one_step(step, layout, parameters=None, **parts):
    return {
        "lockstep": 1,
        "layout": layout,
        "model": {"parameters": parameters or [{"name": "w", "shape": [720720]}]},
        "batch": {"micro_batches": 1},
        "schedule": {
            "steps": [
                {"name": "mbs", "op": "each", "steps": [{"name": "backward", "op": "backward"}]},
                {"name": "ar", "op": "all_reduce", "over": "dp"},
                {"name": "s", "op": "scale", "by": "1/sum(tokens,dp,micro_batch)"},
                step,
            ]
        },
        **parts,
    }


@pytest.mark.parametrize(
    "when, verdict",
    [
        ("rank.dp > 2 - 1", "wrong"),
        ("rank.dp > 3/2", "wrong"),
        ("rank.dp == min(1, 2)", "wrong"),
        ("rank.dp > virtual_stages", "wrong"),
        ("rank.dp > steps", "wrong"),
        ("rank.dp + 1 > 2", "undecided"),
        ("rank.dp * rank.dp > 1", "undecided"),
    ],
)
def test_a_coordinate_compared_with_an_expression(when, verdict, proof_of, files):
    # The case was read at dp = 2, where coordinate 1 is the last one.
    bad = {"name": "bad", "op": "scale", "by": "2", "when": when}
    (files / "a.json").write_text(json.dumps(one_step(bad, {"dp": 2})))
    assert proof_of("a.json")["verdict"] == verdict


def test_a_factor_that_calculates_with_the_coordinate_is_not_decided(proof_of, files):
    # It is 1 on both ranks of dp 2: "right only at dp = 1" was wrong.
    (files / "a.json").write_text(
        json.dumps(one_step({"name": "f", "op": "scale", "by": "(1 + rank.dp*(rank.dp-1))"}, {"dp": "any"}))
    )
    proof = proof_of("a.json")
    assert proof["verdict"] == "undecided"
    assert proof["undecided"][0]["step"] == "f" and 'calculates with "rank.dp"' in proof["undecided"][0]["why"]


@pytest.mark.parametrize(
    "name, step, wrong_at",
    [
        ("coordinate-doubled.json", "bad", [2, 4, 6, 8, 64, 4096]),
        ("tokens-by-coordinate.json", "backward", [3, 4, 5, 6, 7, 8, 13, 64, 4096]),
    ],
)
def test_a_coordinate_within_an_expression_is_told_as_every_rank_says(name, step, wrong_at, proof_of, run):
    # At an odd dp no rank has half of it as its coordinate; of coordinates 0 and 1 the square is the coordinate.
    def verdict(dp):
        arguments = ("--no-blame", "--engine", "symbolic", "-f", "json", "--set", f"layout.dp={dp}", name)
        return json.loads(run("check", *arguments).stdout)["verdict"]

    sizes = [1, 2, 3, 4, 5, 6, 7, 8, 13, 64, 4096]
    assert {dp: verdict(dp) for dp in sizes} == {dp: "mismatch" if dp in wrong_at else "match" for dp in sizes}
    proof = proof_of(name)
    assert proof["verdict"] in ("undecided", "wrong")
    if proof["verdict"] == "wrong":
        assert verdict(proof["counterexample"]["sizes"]["dp"]) == "mismatch"
    else:
        assert {one["step"] for one in proof["undecided"]} == {step}
        assert all('calculates with "rank.dp"' in one["why"] for one in proof["undecided"])


@pytest.mark.parametrize("when", ["rank.pp > 3 and rank.pp != 4 and rank.pp != last", "rank.pp == virtual_stages + 1"])
def test_stages_that_a_comparison_tells_apart_are_classes_of_their_own(when, run, files):
    # All stages in the middle were one class, and the first of them stood for all.
    parameters = [{"name": f"w{stage}", "shape": [720720], "stage": stage} for stage in range(8)]
    bad = {"name": "bad", "op": "scale", "by": "2", "when": when}
    (files / "a.json").write_text(json.dumps(one_step(bad, {"pp": 8, "dp": 2}, parameters)))
    verdicts = [
        json.loads(run("check", "--no-blame", "--engine", engine, "-f", "json", "a.json").stdout)["verdict"]
        for engine in ("symbolic", "parametric")
    ]
    assert verdicts == ["mismatch", "mismatch"]


@pytest.mark.parametrize("name", ["any", "dp32", "dp4096"])
def test_alignment_of_buckets_is_decided_by_divisibility(name, proof_of):
    # 8*n divides lcm(n, 128) for n up to 12 and for 16, and not for 32.
    assert proof_of(f"bucket-alignment-{name}.json")["verdict"] != "right"


def test_check_of_a_large_layout_takes_the_real_alignment(proof_of, run):
    assert run("check", "--no-blame", "bucket-alignment-dp4096.json").stdout.startswith("mismatch")
    done = run("check", "--no-blame", "bucket-alignment-any.json")
    assert done.returncode == 2 and "is not decided" in done.stdout + done.stderr


def test_a_size_refused_beside_small_sizes_is_looked_at_beside_larger_ones(proof_of):
    proof = proof_of("refused-beside-small-sizes.json")
    assert proof["verdict"] == "wrong" and proof["statement"].startswith("wrong for ep ≥ 4 and edp = 1")
    assert proof["counterexample"]["sizes"]["ep"] == 4
    assert not [one for one in proof["refused"] if one["axis"] == "edp"]


def test_a_limit_is_told_as_a_limit(proof_of):
    proof = proof_of("limit-told-as-refusal.json")
    assert proof["verdict"] == "undecided"
    sizes = [size for one in proof["refused"] if one["axis"] == "tp" for size in one["sizes"]]
    assert sizes == [size for size in range(1, 65) if 5040 % size]  # what the shape does not divide by, and no other
    assert proof["undecided"][0]["sizes"] == "tp ≥ 2" and "is followed only where these are equal" in proof["undecided"][0]["why"]


def test_a_rule_that_refuses_a_size_beside_some_others_alone(proof_of, files):
    # Beside cp 1 and 2 the rule refuses dp 1; beside cp 4 it does not, and there the schedule is wrong.
    (files / "own.jsonc").write_text(
        json.dumps(
            {
                "lockstep_framework": 1,
                "name": "own",
                "rules": [{"refuse": "dp == 1 and cp < 4", "because": "Too few."}],
                "steps": [
                    {"name": "mbs", "op": "each", "steps": [{"name": "backward", "op": "backward"}]},
                    {"name": "ar", "op": "all_reduce", "over": ["dp", "cp", "sp"]},
                    {"name": "s", "op": "scale", "by": "1/sum(tokens,dp,cp,sp,micro_batch)"},
                    {"name": "bad", "op": "scale", "by": "2", "when": "dp == 1"},
                ],
            }
        )
    )
    scenario = {
        "lockstep": 1,
        "layout": {"dp": 2, "cp": 2},
        "model": {"parameters": [{"name": "w", "shape": [720720]}]},
        "batch": {"micro_batches": 1},
        "schedule": {"framework": "./own.jsonc"},
    }
    (files / "a.json").write_text(json.dumps(scenario))
    proof = proof_of("a.json")
    assert proof["verdict"] == "wrong" and proof["counterexample"]["sizes"]["dp"] == 1


def test_sizes_between_those_of_the_sentence_are_right(proof_of):
    # It was "dp ≥ 2, dp ≠ 3 and dp ≠ 5", and dp = 4 is right as well.
    assert proof_of("right-sizes-called-wrong.json")["statement"] == "wrong for dp ≥ 6; for dp = 2"


def test_numbers_of_tokens_are_not_called_cuts(proof_of):
    statement = proof_of("cuts-that-are-not-there.json")["statement"]
    assert "cuts" not in statement and "numbers of tokens" in statement


def with_model(files, parameters, let=None):
    (files / "m.jsonc").write_text(
        json.dumps({"lockstep_model": 1, "name": "m", "sizes": {"layers": {"default": 4}}, "let": let or {}, "parameters": parameters})
    )
    scenario = one_step({"name": "x", "op": "scale", "by": "1"}, {"dp": 2, "tp": 2, "pp": 2})
    scenario["model"] = {"preset": "./m.jsonc"}
    (files / "a.json").write_text(json.dumps(scenario))


def test_a_placement_that_depends_on_a_size_is_wrong_from_there_on(proof_of):
    assert proof_of("placement-by-size.json")["statement"] == "wrong as soon as tp ≥ 5"


def test_a_model_s_condition_on_a_size_is_a_case(proof_of, files):
    with_model(files, [{"name": "a", "shape": [720720], "partial": {"if": "wide", "then": ["tp"]}}], {"wide": "tp > 4"})
    assert proof_of("a.json")["statement"] == "wrong as soon as tp ≥ 5"
    with_model(files, [{"name": "a", "shape": [720720], "tags": [{"if": "dp > 7", "then": "late"}]}])
    assert proof_of("a.json")["verdict"] == "right"


@pytest.mark.parametrize(
    "parameter, let",
    [
        ({"shape": ["1000 * tp"]}, {}),
        ({"tags": ["t{tp}"]}, {}),
        ({"when": "micro_batches < 9"}, {}),
        ({"stage": "floor(pp / 21)"}, {}),
        ({"shape": ["720720 * min(tp, 1)"]}, {}),
    ],
)
def test_what_a_model_file_makes_of_an_open_size_is_not_decided(parameter, let, proof_of, files):
    with_model(files, [{"name": "a", "shape": [720720], **parameter}], let)
    assert proof_of("a.json")["verdict"] == "undecided"


@pytest.mark.parametrize(
    "parameters, let",
    [
        ([{"name": "a", "shape": ["padded"], "shard": {"tp": 0}}], {"unit": "max(1, 64 * tp)", "padded": "unit * ceil(1000 / unit)"}),
        (
            [
                {
                    "for": {"i": "layers", "stage": "pp", "chunk": "virtual_stages"},
                    "when": "floor(i * blocks / layers) == chunk * pp + stage",
                    "parameters": [{"name": "l{i}", "shape": [720720], "stage": "stage", "chunk": "chunk"}],
                }
            ],
            {"blocks": "pp * virtual_stages"},
        ),
        ([{"name": "a", "shape": [720720]}, {"when": "pp > 1", "name": "b", "shape": [720720], "stage": -1}], {}),
    ],
)
def test_the_forms_of_the_built_in_models_are_followed(parameters, let, proof_of, files):
    with_model(files, parameters, let)
    assert proof_of("a.json")["verdict"] == "right"


def test_experts_dealt_to_the_ep_ranks_are_followed(run):
    done = run("prove", "--open", "all", "-q", str(SCENARIOS / "megatron/7452-c2-average-ignores-scaling-factor-fixed.json"))
    assert "could be followed" not in done.stdout


@pytest.mark.parametrize("name", ["dp-beside-any-replicate", "dp-beside-any-replicate-framework"])
def test_dp_beside_an_open_part_of_it_is_an_error_with_its_place(name, proof_of, run):
    done = run("check", f"{name}.json")
    assert done.returncode == 2 and '"dp" is' in done.stdout + done.stderr and '"dp_replicate" is "any"' in done.stdout + done.stderr


EDITED = SCENARIOS / "megatron/5337-output-not-reduced.json"
FIXED = SCENARIOS / "megatron/5337-output-not-reduced-fixed.json"


def test_edits_of_the_model_are_not_followed_and_nothing_is_called_right(run):
    done = run("prove", "--open", "all", str(EDITED))
    assert done.returncode == 1 and "the edits of the model are not followed" in done.stdout
    done = run("diff", str(EDITED), str(FIXED))
    assert done.returncode == 2 and "The edits of the model in the old one are not followed" in done.stdout
    done = run("repair", str(EDITED))
    assert "no schedule was tried: the edits of the model" in done.stdout


def norm(files, name, params):
    tied = [
        {"name": "a", "shape": [720720], "stage": 0, "tied": "e"},
        {"name": "b", "shape": [720720], "stage": -1, "tied": "e"},
    ]
    scenario = one_step({"name": "t", "op": "all_reduce", "over": {"pp": ["first", "last"]}, "params": ["tied:e"]}, {"pp": 2}, tied)
    scenario["schedule"]["steps"].append({"name": "clip", "op": "norm", "over": ["pp"], **params})
    (files / name).write_text(json.dumps(scenario))


def test_diff_compares_what_norms_count(run, files):
    norm(files, "twice.json", {})
    norm(files, "once.json", {"count": "rank.pp == 0"})
    done = run("diff", "twice.json", "once.json")
    assert done.returncode == 1 and done.stdout.startswith("other norms")
    assert "2 times, now once" in done.stdout and "The same steps in the same order" not in done.stdout
    done = run("diff", "once.json", "once.json")
    assert done.returncode == 0 and "The gradient norms count every element as often." in done.stdout


def test_an_etp_that_is_not_tp_is_not_taken_for_it(run, files):
    """At the small layout that was read first, 2 and 2, they are the same."""
    scenario = one_step({"name": "x", "op": "scale", "by": "etp / tp"}, {"tp": 4, "etp": 2, "dp": 2}, [{"name": "w", "shape": [8]}])
    (files / "etp.json").write_text(json.dumps(scenario))
    assert run("check", "-q", "etp.json").stdout.startswith("mismatch")
    assert "right" not in run("prove", "--open", "all", "-q", "etp.json").stdout


@pytest.mark.parametrize(
    "tp, extent, step",
    [
        (11, 11, {"when": "rank.tp == 1"}),
        ("any", 11, {"when": "rank.tp == 1"}),
        (1, 11, {"when": "tp == 11"}),
        ("any", 33, {"when": "tp > 3"}),
        ("any", 33, {"when": "tp != 3 and tp != 1"}),
    ],
)
def test_a_size_beyond_the_first_few_that_divides_a_dimension_is_looked_at(tp, extent, step, proof_of, files):
    """All sizes from 2 to 9 are refused, or all but one, and so those behind them were taken for refused."""
    cut = [{"name": "w", "shape": [extent], "shard": {"tp": 0}}]
    bad = {"name": "bad", "op": "scale", "by": "2", **step}
    (files / "a.json").write_text(json.dumps(one_step(bad, {"tp": tp, "dp": 2}, cut)))
    proof = proof_of("a.json")
    assert proof["verdict"] == "wrong" and proof["statement"] == "wrong as soon as tp ≥ 11"


def test_sizes_of_a_built_in_model_behind_those_that_were_found_are_not_right(proof_of, files):
    bad = {"name": "bad", "op": "scale", "by": "2", "when": "rank.tp == 5", "params": "*linear*"}
    scenario = one_step(bad, {"tp": "any", "dp": 2})
    scenario["model"] = {"preset": "gpt", "hidden": 25, "heads": 25, "vocab": 25, "positions": 4, "tied_embeddings": False, "layers": 1}
    (files / "a.json").write_text(json.dumps(scenario))
    assert proof_of("a.json")["verdict"] == "wrong"


@pytest.mark.parametrize(
    "layout, parameters, step, statement",
    [
        ({"tp": 1, "dp": 2}, [{"name": "w", "shape": [11], "shard": {"tp": 0}}], {"when": "rank.tp == 1"}, "other gradients as soon as tp ≥ 11"),
        ({"dp": 3}, None, {"when": "rank.dp == 0"}, "the same gradients only at dp = 3"),
    ],
)
def test_diff_does_not_say_the_same_where_it_is_other(layout, parameters, step, statement, run, files):
    before = one_step({"name": "x", "op": "scale", "by": "1"}, layout, parameters)
    after = one_step({"name": "x", "op": "scale", "by": "2", **step}, layout, parameters)
    if "tp" not in layout:
        after["schedule"]["steps"].append({"name": "half", "op": "scale", "by": "1/2", "only": {"dp": -3}})
    (files / "before.json").write_text(json.dumps(before))
    (files / "after.json").write_text(json.dumps(after))
    assert f"For every size: {statement}" in run("diff", "before.json", "after.json").stdout


@pytest.mark.parametrize(
    "pick, other, statement",
    [
        (-2, 0, "right only at dp = 2"),
        (-3, 0, "right only at dp = 3"),
        (-2, 1, "wrong for dp ≠ 3"),
        (-3, 4, "wrong for dp ≠ 7"),
    ],
)
def test_a_coordinate_from_the_end_is_one_from_the_start_at_one_size_alone(pick, other, statement, proof_of, files):
    step = {"name": "twice", "op": "scale", "by": "2", "only": {"dp": pick}}
    scenario = one_step(step, {"dp": 7})
    scenario["schedule"]["steps"].append({"name": "half", "op": "scale", "by": "1/2", "only": {"dp": other}})
    (files / "a.json").write_text(json.dumps(scenario))
    assert proof_of("a.json")["statement"] == statement


@pytest.mark.parametrize(
    "pp, stage, step, statement",
    [
        (8, 6, {"only": {"pp": -3}, "params": "w"}, "wrong for pp = 9"),
        (8, 6, {"only": {"pp": [-3, -5]}, "params": "w"}, "wrong for pp = 9; for pp = 11"),
        (4, 2, {"when": "rank.pp == last"}, "wrong for pp = 3"),
        (3, 2, {"only": {"pp": -2}}, "wrong for pp = 4"),
        (4, 3, {"only": {"pp": -2}}, "wrong for pp = 5"),
        (2, 1, {"only": {"pp": -2}}, "wrong for pp = 3"),
    ],
)
def test_a_listed_stage_meets_one_from_the_end_at_one_size_alone(pp, stage, step, statement, proof_of, files):
    """One of the sizes from 3 on was read for all: wrong, or right, there."""
    parameters = [{"name": "w", "shape": [720720], "stage": stage}]
    bad = {"name": "bad", "op": "scale", "by": "2", **step}
    (files / "a.json").write_text(json.dumps(one_step(bad, {"pp": pp, "dp": 2}, parameters)))
    assert proof_of("a.json")["statement"] == statement


def with_framework(files, steps, layout, parameters=None):
    head = [
        {"name": "mbs", "op": "each", "steps": [{"name": "backward", "op": "backward"}]},
        {"name": "ar", "op": "all_reduce", "over": "dp"},
        {"name": "s", "op": "scale", "by": "1/sum(tokens,dp,micro_batch)"},
    ]
    (files / "own.jsonc").write_text(json.dumps({"lockstep_framework": 1, "name": "own", "steps": head + steps}))
    scenario = one_step({"name": "x", "op": "scale", "by": "1"}, layout, parameters)
    scenario["schedule"] = {"framework": "./own.jsonc"}
    (files / "a.json").write_text(json.dumps(scenario))


@pytest.mark.parametrize("coordinate", [5, 6, 12])
def test_a_coordinate_behind_a_threshold_is_the_last_one_at_one_size_alone(coordinate, proof_of, files):
    """At the smallest size that has it, it is the last one, and this size was read for all larger ones."""
    twice = {"name": "twice", "op": "scale", "by": "2", "only": {"dp": coordinate}}
    half = {"name": "half", "op": "scale", "by": "1/2", "only": {"dp": "last"}}
    condition = f"dp > {coordinate}"
    with_framework(files, [{"if": condition, "then": twice}, {"if": condition, "then": half}], {"dp": "any"})
    assert proof_of("a.json")["statement"] == f"wrong as soon as dp ≥ {coordinate + 2}"


def test_a_group_behind_a_threshold_has_the_last_stage_at_one_size_alone(proof_of, files):
    tied = [
        {"name": "a", "shape": [720720], "tied": "e", "stage": 0},
        {"name": "b", "shape": [720720], "tied": "e", "stage": -1},
    ]
    groups = [{"name": "t", "op": "all_reduce", "over": {"pp": [0, last]}} for last in (6, "last")]
    with_framework(files, [{"if": "pp > 6", "then": groups[0], "else": groups[1]}], {"pp": "any", "dp": 2}, tied)
    assert proof_of("a.json")["verdict"] != "right"


@pytest.mark.parametrize("third", ["(dp-2)*(cp-2)", "(dp-cp)*(dp-2*cp)"])
def test_the_statement_of_what_is_wrong_never_says_right(third, proof_of, files):
    """It is right at all sizes that the statement looks at."""
    step = {"name": "x", "op": "scale", "by": f"1+(dp-1)*(cp-1)*{third}*(dp-3)*(cp-3)"}
    scenario = one_step(step, {"dp": "any", "cp": "any"})
    scenario["schedule"]["steps"][1]["over"] = ["dp", "cp"]
    scenario["schedule"]["steps"][2]["by"] = "1/sum(tokens,dp,cp,micro_batch)"
    (files / "a.json").write_text(json.dumps(scenario))
    proof = proof_of("a.json")
    assert proof["verdict"] == "wrong" and not proof["statement"].startswith("right")


def with_layers(files, step, name="a.json", **sizes):
    scenario = one_step(step, {"pp": "any" if name == "a.json" else 2, "dp": 2})
    small = {"hidden": 4, "heads": 4, "vocab": 8, "positions": 4, "tied_embeddings": False, "layers": 60}
    scenario["model"] = {"preset": "gpt", **small, **sizes}
    (files / name).write_text(json.dumps(scenario))


EXPERTS = {"experts": 4, "linear_bias": False, "moe_ffn": 4}


@pytest.mark.parametrize(
    "step, sizes",
    [
        ({"params": "decoder.layers.3.*", "when": "rank.pp == 1"}, {}),
        ({"params": "decoder.layers.3.*", "when": "rank.pp != first and rank.pp != last"}, {}),
        ({"params": "decoder.layers.28.*", "when": "rank.pp != last"}, {"layers": 30}),
        ({"params": "*.mlp.linear_fc1.weight", "when": "rank.pp != first"}, {"first_dense_layers": 3, **EXPERTS}),
    ],
)
def test_layers_that_move_to_other_stages_with_more_of_them_are_not_decided(step, sizes, proof_of, files):
    """At the sizes that were read they lay on the first stage, or the last one."""
    with_layers(files, {"name": "bad", "op": "scale", "by": "2", **step}, **sizes)
    proof = proof_of("a.json")
    assert proof["verdict"] == "undecided"
    assert proof["undecided"][0]["step"] == "bad" and "with more of them" in proof["undecided"][0]["why"]


@pytest.mark.parametrize("params", ["decoder.layers.0.*", "decoder.layers.59.*", "output_layer.*"])
def test_layers_that_stay_at_an_end_are_decided(params, proof_of, files):
    here, there = ("last", "first") if params != "decoder.layers.0.*" else ("first", "last")
    step = {"name": "x", "op": "scale", "by": "2", "params": params, "when": f"rank.pp == {there} and rank.pp != {here}"}
    with_layers(files, step)
    assert proof_of("a.json")["verdict"] == "right"


def test_diff_does_not_say_the_same_of_layers_that_move(run, files):
    moving = {"params": "decoder.layers.3.*", "when": "rank.pp == 1"}
    with_layers(files, {"name": "x", "op": "scale", "by": "1"}, "before.json")
    with_layers(files, {"name": "x", "op": "scale", "by": "2", **moving}, "after.json")
    text = run("diff", "before.json", "after.json").stdout
    assert "For every size: the same gradients where both could be followed" in text and "with more of them" in text
