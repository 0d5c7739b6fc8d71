# SPDX-License-Identifier: Apache-2.0
"""Sizes that `check` refuses, far from those that a proof looks at: they were called right with all others."""

import json
from pathlib import Path

import pytest

MICRO_BATCHES = {"name": "m", "op": "each", "steps": [{"name": "b", "op": "backward"}]}
REDUCE = {"name": "r", "op": "all_reduce", "over": "dp"}
TWICE = {"name": "s", "op": "scale", "by": "2", "when": "dp > 35"}
SPLIT = {"split": {"type": "boolean", "default": False}}


def rule(condition):
    return {"rules": [{"refuse": condition, "because": "not at this size"}]}


@pytest.fixture
def asked(run, files):
    """asked(framework): the proof. asked(framework, dp=3): the verdict of a replay at this size."""

    def ask(framework, model=None, steps=(), dp="any"):
        document = {
            "lockstep": 1,
            "layout": {"dp": dp},
            "model": {"parameters": [{"name": "w", "shape": [720720]}]},
            "batch": {"micro_batches": 1, "tokens": "even", "loss": "sum"},
            "schedule": {"framework": "./f.jsonc"},
        }
        (files / "f.jsonc").write_text(json.dumps({"lockstep_framework": 1, "name": "f", **framework, "steps": [MICRO_BATCHES, REDUCE, *steps]}))
        if model is not None:
            parameters = {"sizes": {}, "parameters": [{"name": "w", "shape": [720720]}]}
            (files / "m.jsonc").write_text(json.dumps({"lockstep_model": 1, "name": "m", **parameters, **model}))
            document["model"] = {"preset": "./m.jsonc"}
        (files / "a.json").write_text(json.dumps(document))
        if dp == "any":
            return json.loads(run("prove", "--open", "all", "-f", "json", "a.json").stdout)
        return run("check", "-q", "--no-blame", "--engine", "symbolic", "a.json").stdout.split()[0]

    return ask


@pytest.mark.parametrize(
    "framework",
    [
        rule("100 / (dp - 37) > 1000"),
        rule("dp == 36 or 100 / (world - 37) > 1000"),
        {"options": SPLIT, **rule("100 / (dp - 37) > 1000 and split")},
        {"let": {"unused": "100 / (dp - 37)"}},
        {"let": {"far": "dp - 37", "unused": "1 / far"}},
        {"let": {"unused": {"if": "100 / (dp - 37) > 1", "then": "1", "else": "2"}}},
        {"let": {"unused": {"if": "dp == 37", "then": "1 / 0", "else": "1"}}},
        {"let": {"unused": {"if": "dp == 37", "then": "1 +", "else": "1"}}},
        {"let": {"below": {"if": "dp == 37", "then": "0", "else": "1"}}, **rule("1 / below > 3")},
        {"let": {"word": {"if": "dp == 37", "then": "'x'", "else": "1"}}, **rule("word > 3")},
        {"let": {"missing": {"if": "dp != 37", "then": "1"}}, **rule("missing > 3")},
    ],
)
def test_what_has_no_value_at_one_size_is_not_right_there(framework, asked):
    assert (asked(framework, dp=3), asked(framework, dp=37)) == ("match", "error")
    proof = asked(framework)
    assert proof["verdict"] == "undecided"
    assert [limit["sizes"] for limit in proof["undecided"]] == ["dp = 37"]


def test_nor_where_arithmetic_does_not_tell_at_which(asked):
    framework = {"let": {"unused": "lcm(4, 37 * 37 - dp * dp)"}}
    assert (asked(framework, dp=3), asked(framework, dp=37)) == ("match", "error")
    proof = asked(framework)
    assert proof["verdict"] == "undecided"
    assert [limit["sizes"] for limit in proof["undecided"]] == ["dp ≥ 2"]


@pytest.mark.parametrize("model", [rule("100 / (dp - 37) > 1000"), {"let": {"unused": "100 / (dp - 37)"}}])
def test_nor_what_a_model_file_says(model, asked):
    assert (asked({}, model, dp=3), asked({}, model, dp=37)) == ("match", "error")
    assert asked({}, model)["verdict"] == "undecided"


@pytest.mark.parametrize(
    "framework",
    [
        {"options": SPLIT, **rule("split and 100 / (dp - 37) > 1000")},
        {"options": SPLIT, "let": {"unused": {"if": "split", "then": "1 / (dp - 37)", "else": "1"}}},
        {"let": {"unused": {"if": "dp > 1", "then": "1 / (dp - 1)", "else": "1"}}},
        {"let": {"unused": {"if": "dp > 1", "then": "1"}}},
        {"let": {"one": "1 / (dp + tp)", "other": "lcm(dp, 8 * tp) / max(1, dp - 37)"}},
        rule("dp != 1 and 100 / (dp - 1) < 0"),
    ],
)
def test_what_nobody_asks_for_there_decides_nothing(framework, asked):
    assert (asked(framework, dp=1), asked(framework, dp=37)) == ("match", "match")
    assert asked(framework)["verdict"] == "right"


@pytest.mark.parametrize(
    "condition, sizes",
    [("dp == 37", [37]), ("dp > 100", [101]), ("dp == 200", [200]), ("dp == 5 or dp == 37", [5, 37]), ("2 * dp == 74", [37]),
     ("dp > 30 and dp / 7 == floor(dp / 7)", [35, 42, 49, 56, 63])],
)  # fmt: skip
def test_a_rule_refuses_each_size_up_to_64_or_is_named_by_one_beyond(condition, sizes, asked):
    for proof in (asked(rule(condition)), asked({}, rule(condition))):
        assert proof["verdict"] == "right"
        assert [one["sizes"] for one in proof["refused"]] == [sizes]
        assert all((one["why"], one["tried"]) == ("not at this size", 64) for one in proof["refused"])
        assert [one.get("from") for one in proof["refused"]] == [101 if condition == "dp > 100" else None]


def test_a_rule_on_a_name_refuses_where_the_name_has_that_value_alone(asked):
    # What "let" chose at dp 2 was taken for all sizes, and "right at the one size that it has" was said.
    framework = {"let": {"some": {"if": "dp > 1 and dp < 36", "then": "1", "else": "0"}}, **rule("some == 1")}
    assert [asked(framework, steps=[TWICE], dp=dp) for dp in (1, 35, 36)] == ["match", "error", "mismatch"]
    assert asked(framework, steps=[TWICE])["verdict"] != "right"


def test_a_rule_that_never_refused_refuses_nothing_by_itself(run):
    """tp stays 1 there for another reason; a rule on tp that no size has met was once said to refuse 2 to 8."""
    scenario = Path(__file__).resolve().parents[2] / "scenarios" / "nemo-automodel" / "3817-norm-without-ep-fixed.json"
    proof = json.loads(run("prove", "--open", "all", "-f", "json", str(scenario)).stdout)
    found = [(one["axis"], one["sizes"], one["from"]) for one in proof["refused"]]
    assert found == [("sp", list(range(2, 65)), 2), ("ep", [3, *range(5, 65)], 5)]
    # Beside experts cp has no digit of its own: it is not followed, and this was not said.
    assert [(one["axis"], one["size"]) for one in proof["kept"]] == [("cp", 1), ("tp", 1), ("micro_batches", 2)]
    assert proof["statement"] == "right for every size, with cp = 1 and tp = 1 and micro_batches = 2"


def test_any_size_where_the_first_one_is_refused(run, files):
    """A coordinate that is named has no size 1: the file was refused, in place of an answer on the sizes that it has."""

    def proof(coordinate, factor):
        once = {"name": "s", "op": "scale", "by": factor, "only": {"dp": coordinate}}
        document = {"lockstep": 1, "layout": {"dp": "any"}, "model": {"parameters": [{"name": "w", "shape": [720720]}]},
                    "batch": {"micro_batches": 1, "tokens": "even", "loss": "sum"}, "schedule": {"steps": [MICRO_BATCHES, REDUCE, once]}}
        (files / "a.json").write_text(json.dumps(document))
        done = run("prove", "--open", "all", "-f", "json", "a.json")
        assert done.stderr == ""
        return json.loads(done.stdout)

    right, wrong, far = proof(2, 1), proof(2, 2), proof(40, 1)
    assert (right["verdict"], right["statement"]) == ("right", "right for every size")
    assert wrong["verdict"] == "wrong" and wrong["counterexample"]["sizes"]["dp"] == 3
    assert far["verdict"] == "undecided"
    assert [one["sizes"] for one in (*right["refused"], *far["refused"])] == [[1, 2], list(range(1, 41))]


TP_LAYOUT = {"tp": "any", "dp": "any"}


@pytest.mark.parametrize(
    "layout, batch, refuse, sizes",
    [
        (TP_LAYOUT, {}, "tp > 1 and dp > 1", {"tp": 2, "dp": 2}),
        (TP_LAYOUT, {}, "tp * dp > 20 and tp * dp < 24", {"tp": 3, "dp": 7}),
        (TP_LAYOUT, {}, "tp > 1 and dp > 1 and dp < 3", {"tp": 2, "dp": 2}),
        ({"dp": "any"}, {"micro_batches": "any"}, "micro_batches / dp != floor(micro_batches / dp) and dp < 9", {"dp": 2, "micro_batches": 1}),
        (TP_LAYOUT, {}, "tp == 3 or dp == 3", None),  # each alone
        (TP_LAYOUT, {}, "tp < 1 and dp > 1", None),
        ({"tp": 2, "dp": "any"}, {}, "tp > 1 and dp > 3", None),  # tp is not open, and so dp is refused alone
        (TP_LAYOUT, {"micro_batches": 2}, "tp > 1 and micro_batches > 2", None),
    ],
)
def test_two_sizes_that_a_rule_refuses_together_are_named(layout, batch, refuse, sizes, run, files):
    def document(layout, count):
        (files / "f.jsonc").write_text(json.dumps({"lockstep_framework": 1, "name": "f", **rule(refuse), "steps": [MICRO_BATCHES, REDUCE]}))
        document = {"lockstep": 1, "layout": layout, "model": {"parameters": [{"name": "w", "shape": [720720]}]},
                    "batch": {"tokens": "even", "loss": "sum", "micro_batches": count}, "schedule": {"framework": "./f.jsonc"}}
        (files / "a.json").write_text(json.dumps(document))
        return "a.json"

    def verdict(**changed):
        numbers = {axis: 1 if size == "any" else size for axis, size in layout.items()}
        count = changed.pop("micro_batches", 1 if batch.get("micro_batches") == "any" else batch.get("micro_batches", 1))
        return run("check", "-q", "--no-blame", "--engine", "symbolic", document({**numbers, **changed}, count)).stdout.split()[0]

    proof = json.loads(run("prove", "--open", "all", "-f", "json", document(layout, batch.get("micro_batches", 1))).stdout)
    assert proof["refused_together"] == ([] if sizes is None else [{"sizes": sizes, "why": "not at this size"}])
    if sizes is None:
        return
    assert proof["verdict"] in ("right", "undecided")
    assert verdict(**sizes) == "error"
    shown = run("prove", "--open", "all", document(layout, batch.get("micro_batches", 1))).stdout
    assert "are refused together: not at this size" in shown
    if "micro_batches" not in sizes:
        assert all(verdict(**{axis: size}) == "match" for axis, size in sizes.items())


def test_sizes_are_refused_together_whatever_an_axis_has_that_is_not_open_any_more(run, files):
    # dp was found to have one size beside those that were tried, and cp 3 with tp 1 is allowed at dp 3.
    def write(**layout):
        either = rule("not (cp == tp) and not (cp == dp)")
        (files / "f.jsonc").write_text(json.dumps({"lockstep_framework": 1, "name": "f", **either, "steps": [MICRO_BATCHES, REDUCE]}))
        document = {"lockstep": 1, "layout": layout, "model": {"parameters": [{"name": "w", "shape": [720720]}]},
                    "batch": {"tokens": "even", "loss": "sum", "micro_batches": 4}, "schedule": {"framework": "./f.jsonc"}}
        (files / "a.json").write_text(json.dumps(document))
        return "a.json"

    assert run("check", "-q", "--no-blame", write(tp=1, cp=3, dp=3)).stdout.split()[0] != "error"
    proof = json.loads(run("prove", "--open", "all", "-f", "json", write(tp=1, cp=3, dp=3, pp=2)).stdout)
    assert [one["sizes"] for one in proof["refused_together"]] == []


DP_PP, PARTS = {"dp": "any", "pp": "any"}, {"dp_shard": "any", "dp_replicate": "any"}


@pytest.mark.parametrize(
    "layout, refuse, refused",
    [
        (DP_PP, "dp * pp == 1000", {"dp": 8, "pp": 125}),
        (DP_PP, "dp == 64 and pp == 13", {"dp": 64, "pp": 13}),
        (DP_PP, "dp == 2 * pp + 1 and dp > 20", {"dp": 21, "pp": 10}),
        (DP_PP, "floor(dp / 10) == pp", {"dp": 20, "pp": 2}),
        (DP_PP, "world > 64", {"dp": 13, "pp": 5}),
        (PARTS, "dp > 4 and dp != 7", {"dp_shard": 2, "dp_replicate": 3}),
    ],
)
def test_a_rule_without_an_example_is_told_by_its_condition(layout, refuse, refused, run, files):
    def write(layout):
        (files / "f.jsonc").write_text(json.dumps({
            "lockstep_framework": 1, "name": "f", "options": {"most": {"type": "integer", "default": 9}},
            "rules": [{"refuse": refuse, "because": "no world of {world}, but {most}"}], "steps": [MICRO_BATCHES, REDUCE]}))
        document = {"lockstep": 1, "layout": layout, "model": {"parameters": [{"name": "w", "shape": [4]}]},
                    "batch": {"tokens": "even", "loss": "sum", "micro_batches": 1}, "schedule": {"framework": "./f.jsonc"}}
        (files / "a.json").write_text(json.dumps(document))
        return "a.json"

    proof = json.loads(run("prove", "--open", "all", "-f", "json", write(layout)).stdout)
    stands_for_it = [one["sizes"] for one in proof["refused_together"]]
    if not stands_for_it:
        assert proof["rules"] == [{"condition": refuse, "why": "no world of {world}, but 9"}]
        assert f"\n  sizes are refused where {refuse}: no world of {{world}}, but 9\n" in run("prove", "--open", "all", "a.json").stdout
    for sizes in [refused, *stands_for_it]:
        assert run("check", "-q", "--no-blame", "--engine", "symbolic", write(sizes)).stdout.split()[0] == "error"


def test_sizes_of_which_one_is_refused_alone_are_not_refused_together(run, files):
    (files / "f.jsonc").write_text(json.dumps({"lockstep_framework": 1, "name": "f", **rule("dp > 4 and (pp > 2 or pp <= 2)"),
                                               "steps": [MICRO_BATCHES, REDUCE]}))
    (files / "a.json").write_text(json.dumps({
        "lockstep": 1, "layout": DP_PP, "model": {"parameters": [{"name": "w", "shape": [4]}]},
        "batch": {"tokens": "even", "loss": "sum", "micro_batches": 1}, "schedule": {"framework": "./f.jsonc"}}))
    proof = json.loads(run("prove", "--open", "all", "-f", "json", "a.json").stdout)
    assert proof["refused_together"] == []
    assert [one["condition"] for one in proof["rules"]] == ["dp > 4 and (pp > 2 or pp <= 2)"]
