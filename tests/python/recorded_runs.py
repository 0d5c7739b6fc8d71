# SPDX-License-Identifier: Apache-2.0
"""What `lockstep record` makes of a captured run, held against what `lockstep verify` measured in it."""

import json
import subprocess
import sys

from torch_ranks import HERE, PROGRAM

sys.path.insert(0, str(HERE.parents[1] / "python"))

from lockstep import verify


def program(*arguments):
    return subprocess.run([PROGRAM, *map(str, arguments)], stdin=subprocess.DEVNULL, capture_output=True, text=True)


def predicted(report, model):
    """{(optimizer step, the run's name, rank): the different formulas of its wrong pieces} as `check` has them."""
    # Those that are tied are one in the run.
    names = {parameter["name"]: parameter.get("tied", parameter["name"]) for parameter in model["parameters"]}
    found = {}
    for parameter in report["parameters"]:
        for entry in parameter["ranks"]:
            for rank in entry.get("ranks") or [entry["rank"]]:
                wrong = {piece["formula"] for piece in entry["pieces"] if piece["verdict"] != "match"}
                found.update({(report["step"], names[parameter["name"]], rank): wrong} if wrong else {})
    return found


def predicts_what_was_measured(run, folder, right):
    """That `check` of the recorded scenario says of every parameter and rank what `verify` says of the run; what `record` said."""
    scenario = folder / "scenario.json"
    recorded = program("record", run, "-o", scenario)
    assert recorded.returncode == 0, recorded.stderr
    report = json.loads(program("check", "-f", "json", scenario).stdout)
    verification = verify(run, program=PROGRAM)
    assert report["verdict"] == verification.verdict == ("match" if right else "mismatch"), report
    measured = {}
    for result in verification.report["results"]:
        # What cannot be told apart has several formulas.
        if result["verdict"] == "wrong" and all(one["exact"] for one in result["coefficients"]) and "told apart" not in (result["why"] or ""):
            for rank in result["ranks"]:
                measured.setdefault((result["step"], result["parameter"], rank), set()).add(result["formula"])
    # check ends at the first optimizer step that is wrong.
    expected = {place: formulas for place, formulas in measured.items() if place[0] == report["step"]}
    found = predicted(report, json.loads(scenario.read_text())["model"])
    assert {place: found.get(place) for place in expected} == expected
    assert bool(expected) == (not right)
    return recorded
