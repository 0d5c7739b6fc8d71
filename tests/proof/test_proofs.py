# SPDX-License-Identifier: Apache-2.0
"""Proofs that `lockstep prove --proof` prints, checked by a program that shares no code with it; and false ones."""

import copy
import json
import os
import random
import subprocess
from pathlib import Path

import pytest
from checker import check_class, check_proof
from functions import WrongProof

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.skipif("LOCKSTEP_BINARY" not in os.environ, reason="LOCKSTEP_BINARY does not name the program")

SCENARIO = {
    "lockstep": 1, "layout": {"tp": 2, "pp": 2, "dp": 2},
    "model": {"parameters": [
        {"name": "word", "shape": [150], "stage": 0, "tied": "embedding", "shard": {"tp": 0}},
        {"name": "norm", "shape": [10], "stage": 0, "partial": ["tp"]},
        {"name": "output", "shape": [150], "stage": -1, "tied": "embedding", "shard": {"tp": 0}}]},
}  # fmt: skip
EACH = {"name": "each", "op": "each", "steps": [{"name": "backward", "op": "backward", "by": "1/micro_batches"}]}
# Together they have every operation of the format, a step that is not waited for, and two optimizer steps.
STEPS = {
    "sharded": ([EACH,
        {"name": "partial", "op": "all_reduce", "over": "tp", "params": ["norm"]},
        {"name": "scatter", "op": "reduce_scatter", "over": "dp", "reduce": "avg", "geometry": {"kind": "bucket"}},
        {"name": "tie", "op": "all_reduce", "over": {"pp": ["first", "last"]}, "params": ["tied:embedding"]},
        {"name": "norm", "op": "norm", "over": ["dp", "pp", "tp"], "count": "rank.pp == 0"},
        {"name": "gather", "op": "all_gather", "over": "dp"}], {}),
    "unequal": ([EACH,
        {"name": "partial", "op": "all_reduce", "over": "tp", "params": ["norm"]},
        {"name": "scatter", "op": "reduce_scatter_v", "over": "dp", "reduce": "avg", "geometry": {"kind": "rows"}},
        {"name": "gather", "op": "all_gather", "over": "dp"}], {}),
    "rooted": ([EACH,
        {"name": "copy", "op": "copy", "from": "grad", "to": "total"},
        {"name": "clear", "op": "zero"},
        {"name": "back", "op": "accumulate", "from": "total", "to": "grad"},
        {"name": "root", "op": "reduce", "over": "dp", "root": 0},
        {"name": "scale", "op": "scale", "by": "1/dp", "on": "owned"},
        {"name": "norm", "op": "norm", "over": ["tp", "dp"], "combine": "mean_of_norms"},
        {"name": "send", "op": "broadcast", "over": "dp", "root": 0}], {}),
    "late": ([EACH,
        {"name": "start", "op": "all_reduce", "over": "dp", "reduce": "avg", "async": True},
        {"name": "scale", "op": "scale", "by": "2"},
        {"name": "wait", "op": "wait", "for": "start"},
        {"name": "noise", "op": "leftover", "what": "noise", "per": "rank"},
        {"name": "mine", "op": "own", "over": "dp"}], {}),
    "twice": ([{"name": "each", "op": "each", "steps": [
            {"name": "backward", "op": "backward", "by": "1/micro_batches"},
            {"name": "reduce", "op": "all_reduce", "over": "dp", "reduce": "avg"}]}],
        {"steps": 2, "micro_batches": [2, 1], "tokens": "uneven"}),
}  # fmt: skip


def prove(path):
    done = subprocess.run([os.environ["LOCKSTEP_BINARY"], "prove", "-f", "json", "--proof", "--open", "all", str(path)],
                          capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def proofs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("proofs")
    found = {}
    for name, (steps, batch) in STEPS.items():
        path = folder / f"{name}.json"
        path.write_text(json.dumps({**SCENARIO, "batch": {"tokens": "even", **batch}, "schedule": {"steps": steps}}))
        found[name] = prove(path)
    return found


def test_every_operation_is_proved_and_follows(proofs):
    for name, report in proofs.items():
        classes, steps, points = check_proof(report)
        print(f"{name}: {report['statement']}: {classes} classes, {steps} steps, {points} points")
        assert not report["undecided"] and classes and steps, (name, report["undecided"])
    ops = {step["op"] for report in proofs.values() for case in report["proof"] for entry in case["classes"]
           for step in entry["steps"]}  # fmt: skip
    assert ops == {"backward", "all_reduce", "reduce_scatter", "reduce_scatter_v", "all_gather", "broadcast", "reduce", "own",
                   "copy", "accumulate", "zero", "leftover", "norm", "scale", "wait"}


def functions(entry):
    """Every function that a class claims: what follows from steps and what they end with."""
    for step in entry["steps"]:
        for buffer in step["after"].values():
            yield from buffer.values()
        yield from (step[key] for key in ("owns", "norm", "races") if key in step)
    for end in entry["ends"]:
        yield from end["expected"].values()
        yield from end["differs"].values()
        yield from (family["owners"] for family in end["answers"])
        yield from (end[key] for key in ("norm", "in_flight") if key in end)
        yield from end.get("norm_too_early", [])


def corrupt(entry, chance):
    """One value, or one row of one of them, made wrong."""
    rows = chance.choice([rows for rows in functions(entry) if rows])
    row = chance.randrange(len(rows))
    kind = chance.choice(["other value", "gone", "other sign"])
    if kind == "gone":
        del rows[row]
    elif kind == "other value":
        rows[row]["value"] += " + 1/7"
    else:
        rows[row]["value"] = " - ".join(rows[row]["value"].split(" + ")) + " - 5"
    return kind


def test_a_wrong_value_anywhere_is_found(proofs):
    chance = random.Random(8)
    classes = [entry for report in proofs.values() for case in report["proof"] for entry in case["classes"]]
    for number in range(300):
        entry = copy.deepcopy(chance.choice(classes))
        kind = corrupt(entry, chance)
        with pytest.raises(WrongProof):
            check_class(entry)
            print(f"corruption {number}, {kind}, was not found")


def test_a_step_that_did_something_else_is_found(proofs):
    """The values no longer follow from what the steps are said to do."""
    for name, key, of, other in [("sharded", "reduce", "scatter", "sum"), ("rooted", "by", "scale", "1/(dp*dp)"),
                                 ("sharded", "over", "partial", ["dp"]), ("late", "for", "wait", "noise")]:  # fmt: skip
        report = copy.deepcopy(proofs[name])
        changed = [step for case in report["proof"] for entry in case["classes"] for step in entry["steps"]
                   if step["step"] == of and key in step]  # fmt: skip
        assert changed
        for step in changed:
            step[key] = other
        with pytest.raises(WrongProof):
            check_proof(report)


def test_a_verdict_that_does_not_follow_is_found(proofs):
    for name in proofs:
        report = copy.deepcopy(proofs[name])
        entry = report["proof"][-1]["classes"][0]
        entry["right"] = not entry["right"]
        with pytest.raises(WrongProof):
            check_proof(report)


def test_proofs_of_the_corpus_follow():
    """Some of them; tools/proofs has all."""
    files = sorted(path for path in ROOT.glob("scenarios/*/*.json") if path.parent.name != "scale")[::60]
    checked = [check_proof(prove(path)) for path in files]
    classes, steps, points = (sum(column) for column in zip(*checked))
    print(f"{len(checked)} proofs of the corpus follow: {classes} classes, {steps} steps, {points} points")
    assert len(checked) >= 8 and classes > 200
