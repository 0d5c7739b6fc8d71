# SPDX-License-Identifier: Apache-2.0
"""The part of the attack that runs with every change: the same schedules every time. tools/attack draws as many as one likes."""

import json
import os

import attack
import attacks
import draw
import own
import pytest
import shrink
from statement import NotASentence, Proof

pytestmark = pytest.mark.skipif("LOCKSTEP_BINARY" not in os.environ, reason="LOCKSTEP_BINARY does not name the program")
ROUNDS = int(os.environ.get("LOCKSTEP_TEST_ROUNDS", "1"))


def findings(counts):
    return "\n".join(finding.text() for finding in counts.findings)


def test_what_a_proof_says_of_drawn_schedules_is_what_replays_find(counted, tmp_path):
    counts = counted["drawn schedules"] = attacks.run("drawn", 1, 45 * ROUNDS, points=6, keep=tmp_path, opened="all")
    assert not counts.findings, findings(counts)
    assert counts.points["match"] >= 80 and counts.points["mismatch"] >= 80 and counts.points["said"] >= 130
    assert counts.invalid <= 0.2 * counts.schedules


def test_what_a_proof_says_of_the_axes_that_a_layout_names_is_what_replays_find(counted, tmp_path):
    counts = counted["schedules with unnamed axes"] = attacks.run("unnamed", 1, 20 * ROUNDS, points=4, keep=tmp_path)
    assert not counts.findings, findings(counts)
    assert counts.points["match"] >= 10 and counts.points["mismatch"] >= 10 and counts.points["said"] >= 25


def test_the_frameworks_own_schedules_are_decided_and_what_is_said_of_them_is_true(counted, tmp_path):
    counts = counted["the frameworks' own"] = attacks.run("own", 0, 18 * ROUNDS, points=3, keep=tmp_path, opened="all")
    assert not counts.findings, findings(counts)
    assert counts.decided() >= 0.85 and sum(counts.verdicts.values()) >= 10


def found_with(tmp_path, monkeypatch, change, document=None):
    """The kinds of findings where the program's proofs are changed."""
    prove = attack.program.prove

    def changed(*arguments):
        return {file: change(answer) for file, answer in prove(*arguments).items()}

    monkeypatch.setattr(attack.program, "prove", changed)
    schedules = {"a.json": {"a.json": document or WRONG_FROM_THREE}}
    return {finding.kind for finding in attack.Attack(tmp_path, 1, 12, ("symbolic", "parametric")).run(schedules).findings}


WRONG_FROM_THREE = {
    "lockstep": 1,
    "layout": {"dp": "any"},
    "model": {"parameters": [{"name": "w", "shape": [720720]}]},
    "batch": {"micro_batches": 1, "tokens": "even", "loss": "sum"},
    "schedule": {"steps": [
        {"name": "m", "op": "each", "steps": [{"name": "b", "op": "backward"}]},
        {"name": "r", "op": "all_reduce", "over": "dp"},
        {"name": "s", "op": "scale", "by": "2", "when": "rank.dp == 2"},
    ]},
}  # fmt: skip


@pytest.mark.parametrize(
    "change, kinds",
    [
        ({}, set()),
        ({"verdict": "right", "statement": "right for every size", "counterexample": None}, {"unsound", "any"}),
        ({"statement": "wrong as soon as dp ≥ 4"}, {"unsound"}),
        ({"statement": "wrong as soon as dp ≥ 2"}, {"sentence"}),
        ({"statement": "wrong for every size but dp = 3"}, {"unsound", "sentence"}),
        ({"refused": [{"axis": "dp", "sizes": [2, 3], "tried": 8, "why": ""}]}, {"refused"}),
        ({"statement": "wrong somewhere"}, {"sentence"}),
    ],
)
def test_a_proof_that_says_another_thing_is_found(change, kinds, tmp_path, monkeypatch):
    assert found_with(tmp_path, monkeypatch, lambda answer: {**answer, **change}) == kinds


def test_a_size_that_is_refused_although_nothing_says_so_is_found(tmp_path, monkeypatch):
    document = json.loads(json.dumps(WRONG_FROM_THREE))
    document["schedule"]["steps"][2] = {"name": "s", "op": "scale", "by": "1", "only": {"dp": [2]}}
    prove = attack.program.prove
    for change, is_silent in (({}, False), ({"refused": []}, True)):
        monkeypatch.setattr(attack.program, "prove", lambda *of, change=change: {file: {**answer, **change} for file, answer in prove(*of).items()})
        counts = attack.Attack(tmp_path, 1, 12).run({"a.json": {"a.json": document}})
        assert bool(counts.silent) == is_silent and not counts.findings


def test_a_sentence_that_is_wrong_for_some_numbers_of_tokens_is_no_finding(tmp_path, monkeypatch):
    # 1/3 is what three tokens come to.
    document = json.loads(json.dumps(WRONG_FROM_THREE))
    document["batch"] |= {"tokens": "uneven", "loss": "token_mean"}
    document["schedule"]["steps"][2:] = [{"name": "s", "op": "scale", "by": "1/3"}]
    assert found_with(tmp_path, monkeypatch, lambda answer: answer, document) == set()
    right = {"verdict": "right", "statement": "right for every size", "counterexample": None}
    assert "unsound" in found_with(tmp_path, monkeypatch, lambda answer: {**answer, **right}, document)


@pytest.mark.parametrize(
    "statement, size, says",
    [
        ("right for every size, with pp = 1", {"dp": 7}, "right"),
        ("right only at dp = 1 and cp = 1", {"dp": 1, "cp": 2}, "wrong"),
        ("wrong for every size but dp = 4 or cp = 2", {"dp": 3, "cp": 2}, "right"),
        ("wrong for every dp ≥ 2 but dp = 4", {"dp": 4}, "right"),
        ("wrong for every dp ≥ 2 but dp = 4", {"dp": 5}, "wrong"),
        ("wrong as soon as dp ≥ 4, or cp ≥ 2 and dp ≥ 2", {"dp": 3, "cp": 2}, "wrong"),
        ("wrong as soon as dp ≥ 4, or cp ≥ 2, but not at dp = 7", {"dp": 7, "cp": 1}, "right"),
        ("wrong for every size unless cp*dp = 4", {"dp": 4, "cp": 1}, "right"),
        ("wrong for tp = 1; for dp ≥ 2, dp ≠ 3 and tp ≥ 2 unless -6 + 8/dp + dp = 0", {"dp": 4, "tp": 2}, "right"),
        ("wrong for tp = 1; for dp ≥ 2, dp ≠ 3 and tp ≥ 2 unless -6 + 8/dp + dp = 0", {"dp": 5, "tp": 2}, "wrong"),
        ("wrong for dp ≥ 2 where 3 - dp = 0", {"dp": 3}, "wrong"),
        ("wrong for tp ≥ 2 and dp = 1 unless tp = 4 or tp = 8; for dp ≥ 2", {"dp": 1, "tp": 8}, "right"),
        ("wrong for tp ≥ 2 and dp = 1 unless tp = 4 or tp = 8; for dp ≥ 2", {"dp": 1, "tp": 5}, "wrong"),
        ("wrong for dp ≥ 2 unless 3 - sum(tokens, dp, micro_batch) = 0", {"dp": 3}, "open"),
        ("wrong for dp = 5, wherever its cuts give an element these owners", {"dp": 5}, "open"),
        ("wrong for dp = 5; also wrong as soon as dp ≥ 7, wherever its cuts give an element these owners", {"dp": 8}, "open"),
        ("wrong for dp = 5; also wrong as soon as dp ≥ 7, wherever its cuts give an element these owners", {"dp": 5}, "wrong"),
        ("right where it could be followed", {"dp": 3}, "right"),
        ("wrong for dp ≥ 5, and perhaps at others, of the sizes that could be followed", {"dp": 4}, "open"),
        ("wrong for dp ≥ 5, and perhaps at others, of the sizes that could be followed", {"dp": 6}, "wrong"),
        ("wrong as soon as dp ≥ 2, of the sizes that could be followed", {"dp": 9}, "open"),
        ("wrong for every size, of the sizes that could be followed, with tp = 1", {"dp": 2}, "wrong"),
        ("wrong as soon as dp ≥ 4, of the sizes that could be followed, with cp = 1 and tp = 1", {"dp": 3}, "right"),
        ("wrong for dp = 5, wherever its cuts give an element these owners, with tp = 1", {"dp": 5}, "open"),
        ("wrong for dp = 5; also wrong as soon as dp ≥ 7, wherever its cuts give an element these owners, of the sizes that could be followed, with tp = 1", {"dp": 8}, "open"),
    ],
)
def test_sentences_are_read_as_a_person_does(statement, size, says):
    undecided = [{"sizes": "dp ≥ 9"}]
    assert Proof({"verdict": "", "open": [], "refused": [], "undecided": undecided, "statement": statement}).says(size) == says


def test_what_is_no_sentence_is_an_error():
    with pytest.raises(NotASentence):
        Proof({"verdict": "", "open": [], "refused": [], "undecided": [], "statement": "right, perhaps"}).says({"dp": 1})


def test_one_seed_draws_one_schedule():
    for source in (lambda seed: draw.Draw(seed).files(), own.files):
        assert json.dumps(source(7)) == json.dumps(source(7)) and json.dumps(source(7)) != json.dumps(source(16))


def test_a_finding_becomes_a_small_file(monkeypatch):
    prove = attack.program.prove
    right = {"verdict": "right", "statement": "right for every size", "counterexample": None}
    monkeypatch.setattr(attack.program, "prove", lambda *arguments: {file: {**answer, **right} for file, answer in prove(*arguments).items()})
    document = json.loads(json.dumps(WRONG_FROM_THREE))
    document["schedule"]["steps"].append({"name": "t", "op": "scale", "by": "1"})
    (small,) = shrink.shrink({"a.json": document}, "unsound", {"dp": 4}).values()
    assert shrink.still_found({"a.json": small}, "unsound", {"dp": 4})
    assert len(json.dumps(small)) < 0.7 * len(json.dumps(document)) and [step["op"] for step in small["schedule"]["steps"]] in (["each"], ["each", "scale"], ["scale"], [])
