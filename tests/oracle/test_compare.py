# SPDX-License-Identifier: Apache-2.0
"""The parts of the oracle, the generator, and the program against the oracle on what the generator makes."""

import json
import os
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import pytest

import compare
import random_scenario
from expressions import Context, evaluate
from geometry import cut
from layout import Batch, Mesh
from oracle import ModelEdits, judge
from random_edits import apply, forget_iterations

# Random scenarios; tools/nightly has more of them. A failure names the seed: compare.py --seed SEED --count 1.
COUNT = 3000 * int(os.environ.get("LOCKSTEP_TEST_ROUNDS", "1"))

# Geometry.


def items(*sizes):
    return [{"numel": n, "row_length": 1, "chunk": 0, "dtype": "float32"} for n in sizes]


@pytest.mark.parametrize(
    "geometry, sizes, n, expected",
    [
        ({}, [5], 4, [[(0, 2), (2, 4), (4, 5), (5, 5)]]),
        ({"kind": "flat"}, [5, 4], 2, [[(0, 5), (5, 5)], [(0, 0), (0, 4)]]),
        ({"kind": "flat", "align": 16}, [5, 4], 2, [[(0, 5), (5, 5)], [(0, 3), (3, 4)]]),
        # Reverse order: 4 at 0, 5 at 4; the end 9 goes to 10, slices of 5.
        (
            {"kind": "bucket", "align_parameter": 1, "align_bucket": "n"},
            [5, 4],
            2,
            [[(0, 1), (1, 5)], [(0, 4), (4, 4)]],
        ),
        # Size 4 closes the bucket after the first, [0, 4); then [4, 10): 5 elements at 4, slices of 3.
        (
            {"kind": "bucket", "align_parameter": 1, "align_bucket": "n", "size": 4},
            [5, 4],
            2,
            [[(0, 3), (3, 5)], [(0, 2), (2, 4)]],
        ),
    ],
)
def test_geometries_cut_as_worked_out_by_hand(geometry, sizes, n, expected):
    mesh = Mesh({"dp": n})
    assert cut(geometry, items(*sizes), n, Context(mesh, Batch({}, mesh)), lambda i: False) == expected


# Expressions and edits.


@pytest.mark.parametrize(
    "text, value",
    [
        ("0.1 + 2*3/4", Fraction(8, 5)),
        ("-dp/3", Fraction(-2, 3)),
        ("lcm(4, 6) - min(1, 2) - max(1, 2)", 9),
        ("sum(tokens, dp)", 6),
        ("sum(tokens, dp, micro_batch)", 9),
        ("tokens", 4),
        ("rank.dp == last and not micro_batch == first", True),
        ("world < 2 or step == 0", True),
    ],
)
def test_expressions_are_exact(text, value):
    mesh = Mesh({"dp": 2})
    assert evaluate(text, Context(mesh, Batch({}, mesh), rank=1, step=0, micro_batch=1)) == value


def test_edits_change_plain_steps():
    steps = [
        {"name": "each", "op": "each", "steps": [{"name": "backward", "op": "backward"}]},
        {"name": "a", "op": "scale", "by": 2},
    ]
    for edit in (
        {"duplicate": "a"},
        {"move": "a.2", "before": "each"},
        {"set": "a", "by": 3, "on": "owned"},
        {"drop": "a.2"},
        {"insert": {"name": "z", "op": "zero"}, "after": "backward[last]"},
        {"insert": {"name": "y", "op": "zero"}, "after": "z"},
    ):
        apply(edit, steps)
    forget_iterations(steps)
    assert [step["name"] for step in steps] == ["each", "a"] and steps[1]["by"] == 3 and steps[1]["on"] == "owned"
    assert steps[0]["steps"][1] == {"name": "z", "op": "zero", "when": "micro_batch == last"}
    assert steps[0]["steps"][2] == {"name": "y", "op": "zero", "when": "micro_batch == last"}


def test_random_scenarios_are_the_same_for_the_same_seed_and_of_every_kind():
    assert random_scenario.generate(7) == random_scenario.generate(7)
    verdicts = [judge(random_scenario.generate(seed)[1])["verdict"] for seed in range(150)]
    assert verdicts.count("match") >= len(verdicts) / 4
    assert {"match", "mismatch", "deadlock", "invalid_collective", "race"} <= set(verdicts)
    assert verdicts.count("error") <= len(verdicts) / 20


def test_a_comparison_finds_what_differs():
    report = next(
        r for r in (judge(random_scenario.generate(seed)[1]) for seed in range(99)) if r["verdict"] == "mismatch"
    )
    assert compare.safe_difference(report, report) is None
    for change in ("verdict", "owned", "coefficients", "norm", "step"):
        other = json.loads(json.dumps(report))
        held = next(p for p in other["parameters"] if p["ranks"] and p["ranks"][0]["pieces"])["ranks"][0]
        piece = held["pieces"][0]
        if change == "verdict":
            other["verdict"] = "match"
        elif change == "owned":
            held["owned"] = held["owned"][1:]
        elif change == "coefficients":
            piece["coefficients"] = piece["coefficients"][1:] or [{"leftover": "x", "value": "1"}]
        elif change == "norm":
            other["norm"].append({"parameter": "w", "rank": 0, "counted": "2"})
        else:
            other["step"] += 1
        assert compare.safe_difference(other, report), change


@pytest.mark.skipif("LOCKSTEP_BINARY" not in os.environ, reason="LOCKSTEP_BINARY does not name the program")
def test_the_program_agrees_with_the_oracle_on_random_scenarios(tmp_path):
    differences, found = compare.compare_random(os.environ["LOCKSTEP_BINARY"], 1, COUNT, tmp_path)
    assert len(found) == COUNT
    assert not differences, differences[0]


EDITED = {"layout": {}, "model": {"parameters": [{"name": "w", "shape": [4]}], "edits": [{"drop": "mlp.copy_to_tp"}]},
          "schedule": {"steps": []}, "name": "edited"}


def test_the_oracle_refuses_a_file_that_edits_its_model_by_name():
    with pytest.raises(ModelEdits, match="^edited edits its model"):
        judge(EDITED)
    none = {**EDITED, "model": {**EDITED["model"], "edits": []}}
    assert judge(none)["verdict"] in ("match", "mismatch")


@pytest.mark.skipif("LOCKSTEP_BINARY" not in os.environ, reason="LOCKSTEP_BINARY does not name the program")
def test_files_that_edit_their_model_are_left_out_by_name_and_their_twins_are_not():
    scenarios = Path(__file__).resolve().parents[2] / "scenarios" / "megatron"
    binary = os.environ["LOCKSTEP_BINARY"]
    wrong = scenarios / "5337-input-gradient-not-reduced.json"
    assert compare.compare_file(binary, wrong) == (None, "edits of the model")
    assert compare.compare_file(binary, scenarios / "5337-input-gradient-not-reduced-fixed.json") == (None, "compared")
    done = subprocess.run([sys.executable, compare.__file__, "--files", str(wrong)], capture_output=True, text=True,
                          check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"skipped, edits of the model: {wrong}" in done.stdout
    assert "0 of 1 files compared; left out: 1 edits of the model; 0 differences" in done.stdout
