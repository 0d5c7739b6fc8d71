# SPDX-License-Identifier: Apache-2.0
"""Where values are right: an equation in one size is solved, and what is not decided has its condition in words."""

import json
from pathlib import Path

import pytest

DRIFTS = Path(__file__).resolve().parents[2] / "scenarios" / "megatron" / "656-output-layer-drifts-with-overlap-fixed.json"
BACKWARD = {"name": "m", "op": "each", "steps": [{"name": "b", "op": "backward"}]}
REDUCE = {"name": "r", "op": "all_reduce", "over": "dp"}


@pytest.fixture
def proof(run, files):
    def ask(by, layout):
        steps = [BACKWARD, REDUCE, {"name": "s", "op": "scale", "by": by}]
        document = {"lockstep": 1, "layout": layout, "model": {"parameters": [{"name": "w", "shape": [720720]}]},
                    "batch": {"micro_batches": 1, "tokens": "even", "loss": "sum"}, "schedule": {"steps": steps}}  # fmt: skip
        (files / "a.json").write_text(json.dumps(document))
        return json.loads(run("prove", "--open", "all", "-f", "json", "a.json").stdout)

    return ask


def product(axis, *roots):
    return " * ".join(f"({axis} - {root})" for root in roots)


def test_what_is_right_at_all_small_sizes_is_wrong_at_the_first_that_is(proof):
    """It was not decided, and nothing said where."""
    said = proof(f"1 + {product('dp', 1, 2, 3, 4, 5, 6)}", {"dp": "any"})
    assert (said["verdict"], said["statement"]) == ("wrong", "wrong as soon as dp ≥ 7")
    assert said["counterexample"]["sizes"]["dp"] == 7
    said = proof(f"1 + {product('dp', *range(1, 9))} * {product('tp', *range(1, 8))}", {"dp": "any", "tp": "any"})
    assert said["verdict"] == "wrong"
    assert {axis: said["counterexample"]["sizes"][axis] for axis in ("tp", "dp")} == {"tp": 8, "dp": 9}


@pytest.mark.parametrize(
    "by, layout, statement",
    [
        # Of one case in one size, of the other in two.
        ("1 + (tp - 1) * (tp - 4) * (tp + dp - 9)", {"dp": "any", "tp": "any"},
         "wrong for tp ≥ 2 and dp = 1 unless tp = 4 or tp = 8; for tp ≥ 2 and dp ≥ 2 unless "),
        ("1 + (tp - 1) * (2 * tp - 7) * (tp + dp - 9)", {"dp": "any", "tp": "any"},
         "wrong for tp ≥ 2 and dp = 1 unless tp = 8; for tp ≥ 2 and dp ≥ 2 unless "),
        ("tp * tp * dp * dp / 36", {"dp": "any", "tp": 1}, "wrong for every size but dp = 6"),
    ],
)  # fmt: skip
def test_an_equation_in_one_size_is_solved(proof, by, layout, statement):
    assert proof(by, layout)["statement"].startswith(statement)


def test_what_is_not_decided_says_where(run):
    """Cuts that give an element other owners at no size that was tried."""
    said = json.loads(run("prove", "--open", "all", "-f", "json", str(DRIFTS)).stdout)
    assert said["verdict"] == "undecided"
    assert said["undecided"][0]["sizes"] == "dp = 1, pp = 2, cp ≥ 2 and micro_batches = 1, wherever its cuts give an element these owners"
    assert {one["why"] for one in said["undecided"]} == {"there may be a mistake, which none of the sizes that were tried shows"}


def test_a_sentence_that_leaves_sizes_out_says_so(run, files):
    """sp = 1001 was called right, because a sentence was looked for among fewer sizes than there are."""
    steps = [
        {"name": "m", "op": "each", "steps": [{"name": "b", "op": "backward", "by": "1/tokens"}, {"name": "t", "op": "scale", "by": "2", "when": "sp > 1000"}]},
        {"name": "r", "op": "reduce", "over": ["sp"], "root": 0},
        {"name": "s", "op": "scale", "by": "1/(micro_batches*sp*cp*dp)"},
        {"name": "h", "op": "scale", "by": "1/2", "when": "world > 1000 and (world - 2000) * (world - 2008) != 0"},
    ]
    parameters = [{"name": "layers.0.w0", "shape": []}]
    (files / "m.jsonc").write_text(json.dumps({"lockstep_model": 1, "name": "own", "parameters": parameters}))
    document = {"lockstep": 1, "model": {"preset": "./m.jsonc"}, "batch": {"loss": "local_mean"}, "schedule": {"steps": steps}}
    (files / "a.json").write_text(json.dumps(document))
    said = json.loads(run("prove", "--open", "all", "-f", "json", "a.json").stdout)["statement"]
    assert ", and perhaps at others, of the sizes that could be followed" in said
    # Not where all that were followed are wrong, either: it says nothing of every size, others were not followed.
    steps.append({"name": "last", "op": "scale", "by": "3"})
    (files / "a.json").write_text(json.dumps(document))
    said = json.loads(run("prove", "--open", "all", "-f", "json", "a.json").stdout)["statement"]
    assert "every size" not in said and ", and perhaps at others, of the sizes that could be followed" in said
