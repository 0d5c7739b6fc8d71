# SPDX-License-Identifier: Apache-2.0
"""Names of "let" of which each stands twice for the one before: what prove says of them is what symbolic finds at each size."""

import json
import time

import pytest

EACH = {"name": "micro_batches", "op": "each", "steps": [{"name": "backward", "op": "backward", "by": "1/micro_batches"}]}
MEAN = {"name": "mean", "op": "all_reduce", "over": "dp", "reduce": "avg"}
LENGTH, SIZES = 40, [*range(1, 14), 16, 17, 31, 32, 33, 64]
TIMES = 2**LENGTH
SECONDS = 30  # with sanitizers; walking a chain as often as it is long would take years


def chain(first, following):
    return {"a0": first, **{f"a{i}": following.replace("@", f"a{i - 1}") for i in range(1, LENGTH + 1)}}


# By name: the chain, the condition under which the gradient is doubled, and the sizes of dp at which it holds.
CHAINS = {
    "always": (chain("dp + 1", "@ + @"), "a40 > 5", lambda dp: True),
    "never": (chain("dp + 1", "@ + @"), "a40 < 5", lambda dp: False),
    "from a size on": (chain("dp + 1", "@ + @"), f"a40 > {9 * TIMES}", lambda dp: dp > 8),
    "up to a size": (chain("dp - 1/2", "@ + @"), f"not a40 >= {6 * TIMES}", lambda dp: dp <= 6),
    "at one size": (chain("dp + 1", "@ + @"), f"a40 == {9 * TIMES}", lambda dp: dp == 8),
    "a difference": (chain("dp * 3", "@ + (@ - @ / 2) * 2"), "a40 - a39 * 2 != 0", lambda dp: False),
    "a divisor": (chain("dp + 1", "@ + @"), f"{TIMES} / a40 < 1 / 10", lambda dp: dp > 9),
    "a divisor that may be 0": (chain("dp - 4", "@ + @"), "dp != 4 and 1 / a40 > 0", lambda dp: dp > 4),
    "a largest one": (chain("max(dp, 5)", "max(@ + @, dp)"), f"a40 == {5 * TIMES}", lambda dp: dp <= 5),
    "a floor": (chain("floor(dp / 4) + 1", "@ + floor(@)"), "a40 < 1", lambda dp: False),
    "a condition": (chain("dp > 11", "@ and @"), "a40", lambda dp: dp > 11),
    "one way or the other": (chain("dp > 11", "@ or @"), "a40 or not a40", lambda dp: True),
    "a conditional": (
        {**chain("dp", "@ + @"), "b": {"if": f"a40 > {3 * TIMES}", "then": "2", "else": "1"}}, "b == 2", lambda dp: dp > 3),
}  # fmt: skip


def write(folder, let, steps, **parts):
    whole = {"lockstep_framework": 1, "name": "ours", "let": let, "steps": [EACH, MEAN, *steps], **parts}
    (folder / "ours.jsonc").write_text(json.dumps(whole))
    (folder / "case.json").write_text(json.dumps({
        "lockstep": 1, "layout": {"dp": 2}, "model": {"parameters": [{"name": "weight", "shape": [8]}]},
        "batch": {"micro_batches": 1, "tokens": "even"}, "schedule": {"framework": "./ours.jsonc"}}))  # fmt: skip


def proof_of(run):
    begin = time.monotonic()
    done = run("prove", "case.json", "--proof", "-f", "json")
    assert time.monotonic() - begin < SECONDS
    return json.loads(done.stdout)


def case_of(proof, dp):
    """The case of a size, with one micro-batch."""
    sizes = {"dp": dp, "micro_batches": 1}

    def holds(guard):
        size = sizes[guard["size"]]
        return size == guard["exactly"] if "exactly" in guard else guard["least"] <= size <= guard.get("most", size)

    found = [case for case in proof["proof"] if all(map(holds, case["guards"]))]
    assert len(found) == 1, (dp, [case["sizes"] for case in found])
    return found[0]


@pytest.mark.parametrize("name", CHAINS)
def test_what_is_decided_is_decided_rightly(run, tmp_path, name):
    let, when, holds = CHAINS[name]
    write(tmp_path, let, [{"name": "twice", "op": "scale", "when": when, "by": "2"}])
    proof = proof_of(run)
    assert not proof["undecided"], proof["undecided"]
    assert proof["verdict"] == ("wrong" if any(map(holds, SIZES)) else "right")
    for dp in SIZES:
        done = run("check", "case.json", "-q", "--engine", "symbolic", "--set", f"dp={dp}")
        assert done.stdout.split()[0] == ("mismatch" if holds(dp) else "match"), done.stdout + done.stderr
        right = all(entry["right"] for entry in case_of(proof, dp)["classes"])
        assert right != holds(dp), (dp, proof["statement"])


def test_a_rule_refuses_the_same_sizes(run, tmp_path):
    write(tmp_path, chain("dp + 1", "@ + @"), [], rules=[{"refuse": f"a40 > {9 * TIMES} or a40 == {4 * TIMES}", "because": "so many"}])
    proof = proof_of(run)
    assert proof["verdict"] == "right" and not proof["undecided"]
    (refused,) = proof["refused"]
    assert (refused["from"], refused["sizes"]) == (9, [3, *range(9, 65)])
    for dp in SIZES:
        status = run("check", "case.json", "-q", "--set", f"dp={dp}").returncode
        assert status == (2 if dp == 3 or dp >= 9 else 0)


@pytest.mark.parametrize("first", ["dp", "floor(dp / 8) + 1", "dp + 1"])
def test_squares_of_squares_end_soon(run, tmp_path, first):
    """Of one, or at one size: others have more digits than a number may have, and are refused."""
    write(tmp_path, chain(first, "@ * @"), [{"name": "twice", "op": "scale", "when": "a40 < 1", "by": "2"}])
    document = json.loads((tmp_path / "case.json").read_text())
    (tmp_path / "case.json").write_text(json.dumps({**document, "layout": {"dp": 1}}))
    begin = time.monotonic()
    said = run("prove", "case.json").stdout
    assert time.monotonic() - begin < SECONDS
    assert "wrong" not in said
    for dp in (1, 2, 7, 8):
        assert run("check", "case.json", "-q", "--set", f"dp={dp}").returncode in (0, 2)


def test_one_that_is_not_decided_says_why_in_few_words(run, tmp_path):
    write(tmp_path, chain("floor(dp / 3) + dp / 7", "@ + @"), [{"name": "twice", "op": "scale", "when": f"floor(a40 / {TIMES}) == 11", "by": "2"}])
    proof = proof_of(run)
    for limit in proof["undecided"]:
        assert len(limit["why"]) < 2000
    for dp in SIZES:
        done = run("check", "case.json", "-q", "--engine", "symbolic", "--set", f"dp={dp}")
        case = case_of(proof, dp)
        if "undecided" not in case:
            assert all(entry["right"] for entry in case["classes"]) == (done.stdout.split()[0] == "match")
