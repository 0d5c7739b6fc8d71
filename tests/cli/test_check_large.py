# SPDX-License-Identifier: Apache-2.0
"""What check says of repairs of layouts at which they cannot be replayed, or not by every engine."""

import json

import pytest


def large_file(files, dp, parameters, *steps):
    """Sums over dp at first, where the steps do not say otherwise; the search replays two ranks of it."""
    each = {"name": "m", "op": "each", "steps": [{"name": "backward", "op": "backward"}]}
    scenario = {"lockstep": 1, "layout": {"dp": dp}, "batch": {"micro_batches": 1, "tokens": "even", "loss": "sum"},
                "model": {"parameters": [{"name": f"w{number}", "shape": [4096]} for number in range(parameters)]},
                "schedule": {"steps": [each, *steps]}}
    (files / "large.json").write_text(json.dumps(scenario))
    return scenario


DP_SUM = {"name": "sum", "op": "all_reduce", "over": "dp"}
TWICE = {"name": "twice", "op": "scale", "by": 2}
FAR = {"name": "far", "op": "scale", "by": 3, "when": "dp > 64"}


@pytest.mark.parametrize(("dp", "parameters"), [(4096, 1), (300, 40)], ids=["by classes", "replayed"])
def test_what_is_right_at_a_small_layout_is_not_called_right_at_a_large_one(run, files, dp, parameters):
    """Where two ranks are, the average takes back the factor of 2; what goes wrong beyond 64 does not go wrong there."""
    scenario = large_file(files, dp, parameters, TWICE)
    said = run("check", "large.json").stdout
    assert '    right with { "insert": { "name": "dp_all_reduce", "op": "all_reduce", "over": "dp" }, "after": "m" }\n' in said
    assert '    together with { "drop": "twice" }\n' in said
    report = json.loads(run("check", "-f", "json", "large.json").stdout)
    found = report["diagnosis"]["repairs"][0]
    assert found["verified"] == ["symbolic"] and "verified_at" not in found
    scenario["schedule"]["edits"] = found["edits"]
    (files / "repaired.json").write_text(json.dumps(scenario))
    assert run("check", "-q", "repaired.json").stdout.startswith("match ")
    assert json.loads(run("repair", "-f", "json", "large.json").stdout)["repairs"][0]["edits"] == found["edits"]

    large_file(files, dp, parameters, DP_SUM, TWICE, FAR)
    said = run("check", "large.json").stdout
    assert "right with" not in said and "right at a small" not in said and "at fault" not in said
    assert ("note: Edits make the file right at dp 2, and not at its own sizes: something goes wrong here that does not go wrong there.\n"
            in said)  # fmt: skip
    assert run("check", "-q", "large.json", "--set", "schedule.steps.3.when=dp > 4096").stdout.startswith("mismatch ")


def test_what_no_engine_decides_at_a_large_layout_is_said_to_be_right_at_a_small_one(run, files):
    norm, clip = {"name": "total", "op": "norm"}, {"name": "clip", "op": "clip"}
    large_file(files, 600, 60, DP_SUM, TWICE, norm, clip)
    said = run("check", "large.json").stdout
    assert '    right at a small layout with { "drop": "twice" }\n' in said
    assert "`lockstep repair large.json` looks for what is right at these sizes\n" in said
    assert "right at a small layout" in run("check", "-f", "github", "large.json").stdout
    report = json.loads(run("check", "-f", "json", "large.json").stdout)
    found = report["diagnosis"]["repairs"][0]
    assert (found["verified"], found["verified_at"]) == ([], "dp 2")
