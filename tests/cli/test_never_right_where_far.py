# SPDX-License-Identifier: Apache-2.0
"""Mistakes of a file that only far sizes meet, and sizes near the largest one: `prove` called them right with all others."""

import json
import re

import pytest

MICRO_BATCHES = {"name": "m", "op": "each", "steps": [{"name": "b", "op": "backward"}]}
REDUCE = {"name": "r", "op": "all_reduce", "over": "dp"}
LARGEST = 1048576  # ranks of a layout


@pytest.fixture
def asked(run, files):
    """asked(framework): the proof for any dp. asked(framework, dp=64): what `check` says there. `steps`: of the file itself."""

    def ask(framework=None, model=None, steps=(), dp="any", layout=None, **batch):
        document = {"lockstep": 1, "layout": layout or {"dp": dp}, "model": {"parameters": [{"name": "w", "shape": [8]}]},
                    "batch": {"micro_batches": 1, "loss": "sum", **batch}, "schedule": {"steps": [MICRO_BATCHES, REDUCE, *steps]}}
        if framework is not None:
            (files / "f.jsonc").write_text(json.dumps({"lockstep_framework": 1, "name": "f", **framework, "steps": [MICRO_BATCHES, REDUCE, *steps]}))
            document["schedule"] = {"framework": "./f.jsonc"}
        if model is not None:
            parameters = {"sizes": {}, "parameters": [{"name": "w", "shape": [8]}]}
            (files / "m.jsonc").write_text(json.dumps({"lockstep_model": 1, "name": "m", **parameters, **model}))
            document["model"] = {"preset": "./m.jsonc"}
        (files / "a.json").write_text(json.dumps(document))
        if "any" in document["layout"].values() or layout:
            return json.loads(run("prove", "-f", "json", "a.json").stdout)
        return run("check", "--no-blame", "a.json").stdout

    return ask


def far(then):
    return {"let": {"unused": {"if": "dp >= 64", "then": then, "else": "1"}}}


FAULTS = [
    (far("nosuch"), 'there is no name "nosuch" here'),
    (far("n"), 'there is no name "n" here'),
    (far("rank.dp"), "this depends on the rank, and there is no rank here"),
    (far("tokens"), 'outside "each" there is no current micro-batch'),
    (far("sum(tokens, cp, sp, micro_batch)"), "this depends on the rank, and there is no rank here"),
    (far("dp > 'a'"), "expected a number, but found the string 'a'"),
    (far("(dp > 1) + 1"), 'expected a number, but "dp > 1" is the truth value true'),
    (far("not dp"), 'expected a truth value, but "dp" is the number 64'),
    (far("dp == (dp > 1)"), '"==" compares values of one kind'),
    (far("last == dp"), '"last" can only be compared with'),
    (far("lcm(dp, 3 / 2)"), '"lcm" takes positive whole numbers, but "3 / 2" is 3/2'),
    (far([1, 2]), "expected a number, true, false or an expression in a string, found an array"),
    (far({"name": "q"}), "expected a number, true, false or an expression in a string, found an object"),
    (far({"if": "nosuch", "then": "1"}), 'there is no name "nosuch" here'),
    (far({"if": "dp", "then": "1"}), "expected a condition"),
    (far({"if": "dp > 1", "then": "1", "other": "2"}), 'unknown key "other"'),
    ({"let": {"z": {"if": "dp < 64", "then": "1", "else": "later"}, "later": "3"}}, 'there is no name "later" here'),
    ({"let": {"unused": "dp < 64 or nosuch"}}, 'there is no name "nosuch" here'),
    ({"rules": [{"refuse": "dp >= 64 and nosuch > 1", "because": "x"}]}, 'there is no name "nosuch" here'),
    ({"let": {"unused": "1 / (dp - 64) > 2 or dp > 0"}}, 'division by zero: "dp - 64" is 0 here'),
]


@pytest.mark.parametrize("framework, why", FAULTS)
def test_a_mistake_that_only_far_sizes_meet_is_not_right_there(framework, why, asked):
    assert asked(framework, dp=63).startswith("match") and why in asked(framework, dp=64)
    proof = asked(framework)
    assert proof["verdict"] == "undecided" and proof["rules"] == []
    assert all(one["sizes"] in ("dp ≥ 64", "dp = 64") and why.split(" is the number")[0] in one["why"] for one in proof["undecided"])


def test_nor_in_a_model_file(asked):
    assert asked({}, far("nosuch"), dp=63).startswith("match") and "nosuch" in asked({}, far("nosuch"), dp=64)
    assert [one["sizes"] for one in asked({}, far("nosuch"))["undecided"]] == ["dp ≥ 64"]


@pytest.mark.parametrize(
    "framework",
    [far("dp * 2"), far("dp > 1"), far("sum(tokens, dp, cp, sp, micro_batch)"), far({"if": "dp > 70", "then": "true"}), far("rank.pp == last"),
     {"let": {"word": {"if": "dp >= 64", "then": "'x'", "else": "'y'"}, "same": "word == 'x'"}},
     {"options": {"way": {"type": "string", "default": "ring"}}, **far("way == 'ring' or way == 'tree'")}],
)  # fmt: skip
def test_a_right_branch_that_only_far_sizes_take_decides_nothing(framework, asked):
    assert asked(framework, dp=64).startswith("match")
    assert asked(framework)["verdict"] == "right"


def squares(first, count):
    return {"let": {"y0": first, **{f"y{i}": f"y{i - 1} * y{i - 1}" for i in range(1, count + 1)}}}


TOO_LONG = "has more than 8192 binary digits"


@pytest.mark.parametrize(
    "framework, last",
    [
        (squares("dp", 10), 256),
        (squares("dp", 11), 16),
        (squares("-dp", 11), 16),
        (squares("max(dp - 63, 1)", 11), 79),
        ({"let": {"far": {"if": "dp < 64", "then": "1", "else": "dp"}, **squares("far", 12)["let"]}}, 63),
    ],
)
def test_a_number_of_too_many_digits_is_not_right(framework, last, asked):
    assert asked(framework, dp=last).startswith("match") and TOO_LONG in asked(framework, dp=last + 1)
    proof = asked(framework)
    assert (proof["verdict"], proof["statement"]) == ("undecided", "right where it could be followed")
    assert all(TOO_LONG in one["why"] for one in proof["undecided"])
    # Shorter ones on the way are too long from larger sizes on.
    least = [int(re.search(r"\d+", one["sizes"])[0]) for one in proof["undecided"]]
    assert least[0] == last + 1 and least == sorted(least) and proof["undecided"][-1]["sizes"] == f"dp ≥ {least[-1]}"


def test_nor_is_one_in_a_step(asked):
    steps = [{"name": "s", "op": "scale", "by": "2", "when": " * ".join(["dp"] * 900) + " < 0"}]
    assert asked(steps=steps, dp=549).startswith("match") and TOO_LONG in asked(steps=steps, dp=550)
    proof = asked(steps=steps)
    assert proof["verdict"] == "undecided"
    assert [(one["sizes"], one["step"]) for one in proof["undecided"]] == [("dp ≥ 550", "s")]
    assert "may have more than 8192 binary digits" in proof["undecided"][0]["why"]


def test_what_has_few_digits_at_all_sizes_that_there_are_is_right(asked):
    assert asked(squares("dp", 8))["verdict"] == "right"
    long = " * ".join(["dp"] * 405)  # at the largest size 8100 digits
    assert asked({"let": {"y": long}})["verdict"] == "right"
    assert asked({"let": {"y": f"{long} * dp * dp * dp * dp * dp"}})["verdict"] == "undecided"  # 8200 there


@pytest.mark.parametrize(
    "condition, statement",
    [
        ("2 * dp - dp > 5", "wrong as soon as dp ≥ 6"),
        ("3 * dp + 4 < 2 * dp + 20", "wrong for 1 ≤ dp ≤ 15"),
        ("dp * dp > 6 * dp + 7", "wrong as soon as dp ≥ 8"),
        ("(dp + 3) / dp > 2", "wrong for dp = 1; for dp = 2"),
        ("dp + tp > tp + 9", "wrong as soon as dp ≥ 10"),
        ("dp - dp == 0", "wrong for every size"),
        ("-dp + 2 * dp != dp", "right for every size"),
    ],
)
def test_what_stands_on_both_sides_of_a_comparison_is_gone(condition, statement, asked):
    steps = [{"name": "s", "op": "scale", "by": "2", "when": condition}]
    proof = asked(steps=steps)
    assert (proof["statement"], proof["undecided"]) == (statement, [])


def test_a_rule_with_a_size_on_both_sides_lists_what_it_refuses(asked):
    proof = asked({"rules": [{"refuse": "2 * dp - dp > 5", "because": "R"}]})
    assert [(one["sizes"][0], one["from"]) for one in proof["refused"]] == [(6, 6)]


def test_sizes_near_the_largest_one(asked):
    # There is no size at which this factor is 1, and one at which the next condition holds.
    factor = asked(steps=[{"name": "s", "op": "scale", "by": f"dp / {4 * LARGEST}"}])
    assert (factor["verdict"], factor["statement"]) == ("wrong", "wrong for every size")
    at_the_last = asked(steps=[{"name": "s", "op": "scale", "by": "2", "when": f"dp == {LARGEST}"}])
    assert at_the_last["verdict"] == "undecided"
    assert [one["sizes"] for one in at_the_last["undecided"]] == [f"dp = {LARGEST}"]
    assert at_the_last["undecided"][0]["why"].startswith("there may be a mistake, which no replay shows: ")
    assert asked(steps=[{"name": "s", "op": "scale", "by": "2", "when": f"dp > {LARGEST}"}])["verdict"] == "right"


def test_a_rule_on_the_number_of_micro_batches_is_told_whichever_axis_is_named(asked):
    framework = {"rules": [{"refuse": "AXIS >= 2 or micro_batches >= 2", "because": "R"}]}
    for axis in ("tp", "pp"):
        of_axis = json.loads(json.dumps(framework).replace("AXIS", axis))
        proof = asked(of_axis, layout={"dp": "any", axis: "any"}, micro_batches="any")
        assert [one["axis"] for one in proof["refused"]] == [axis]
        assert proof["rules"] == [{"condition": f"{axis} >= 2 or micro_batches >= 2", "why": "R"}]


def test_the_reason_of_a_rule_is_never_empty(asked):
    framework = {"rules": [{"refuse": "dp == 3", "because": "{1 / 0}"}]}
    said = 'division by zero: "0" is 0 here'
    assert said in asked(framework, dp=3) and "error: [" not in asked(framework, dp=3) and "error:  [" not in asked(framework, dp=3)
    assert [one["why"] for one in asked(framework)["refused"]] == [said]


def test_an_alignment_that_is_too_large_is_called_so(asked):
    cut = {"name": "c", "op": "reduce_scatter", "over": "dp", "geometry": {"kind": "flat", "align": "lcm(n, 4611686018427387904)"}}
    said = 'expected at most 4611686018427387904 for "align", but "lcm(n, 4611686018427387904)" is 13835058055282163712 in a group of 3'
    assert said in asked(steps=[cut], dp=3)
    # A proof speaks of all sizes from 2 on, of which that is one.
    may_be = 'its "align", "lcm(n, 4611686018427387904)", may be larger than 4611686018427387904'
    assert any(may_be in one["why"] for one in asked(steps=[cut], layout={"dp": 3})["undecided"])


def test_tokens_that_are_listed_are_not_called_open(asked):
    steps = [{"name": "s", "op": "scale", "by": "2", "when": "sum(tokens, micro_batch) > 5"}]
    proof = asked(steps=steps, layout={"dp": 2}, tokens=[[[[1]], [[2]]]])
    (why,) = {one["why"] for one in proof["undecided"]}
    assert why.endswith("depends on numbers of tokens, and proofs do not look at those that the file lists one by one")
    proof = asked(steps=steps, layout={"dp": 2})
    assert all("numbers of tokens that are open" in one["why"] for one in proof["undecided"] if "tokens" in one["why"]) and proof["undecided"]


def test_a_file_of_any_size_is_replayed_at_a_small_one(asked, run, files):
    # At dp 1 the product is 0, and of other sizes nothing is known.
    steps = [{"name": "t", "op": "scale", "by": "2", "when": "rank.dp * rank.dp < 1 and floor(dp / 3) < dp / 3"},
             {"name": "u", "op": "scale", "by": "1", "when": "floor(lcm(dp, 2) / 3) == lcm(dp, 2) / 3"}]
    proof = asked(steps=steps)
    assert proof["verdict"] == "wrong" and proof["counterexample"]["sizes"]["dp"] == 1
    assert proof["kept"] == [{"axis": "micro_batches", "size": 1, "why": 'the file gives it, and says of others that they are "any"'}]
    beside = asked(steps=steps, layout={"dp": "any", "tp": 3})
    assert {one["axis"]: one["size"] for one in beside["kept"]} == {"tp": 3, "micro_batches": 1}
