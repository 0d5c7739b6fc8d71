# SPDX-License-Identifier: Apache-2.0
"""Proofs against the scenarios that they are about: nothing is taken from a proof, and every kind of lie in one is found."""

import collections
import copy
import json
import os
import random
import subprocess
from fractions import Fraction
from pathlib import Path

import lies
import pytest
from conditions import Reader
from cuts import begins_aligned
from functions import WrongProof, axis, constant, parse, plus, variable
from program import Program, Scenario, without_comments
from test_proofs import SCENARIO, STEPS
from whole import Counts, check_whole

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.skipif("LOCKSTEP_BINARY" not in os.environ, reason="LOCKSTEP_BINARY does not name the program")

# So much is taken from the proofs below, instead of derived from the scenario: it must not grow.
MOST_TAKEN = 0
CASES = 4  # looked at in each proof of the corpus, drawn by a seed; tools/proofs looks at all
LIES = 1  # of each kind in each proof that is lied in; tools/proofs --lies tells more
PARAMETERS = [*SCENARIO["model"]["parameters"], {"name": "bias", "shape": [10], "stage": 0, "partial": ["tp"]}]
EACH = STEPS["sharded"][0][0]
MORE = {
    "right": ([EACH,
        {"name": "partial", "op": "all_reduce", "over": "tp", "params": ["norm", "bias"]},
        {"name": "mean", "op": "all_reduce", "over": "dp", "reduce": "avg"},
        {"name": "tie", "op": "all_reduce", "over": {"pp": ["first", "last"]}, "params": ["tied:embedding"]}], {}),
    "undecided": ([EACH, {"name": "late", "op": "scale", "by": "1/2", "when": "dp * tp == 6"}], {}),
}  # fmt: skip
FILES = ["scenarios/colossalai/2192-norm-not-summed-over-experts-fixed.json",  # experts: two meshes
         "scenarios/deepspeed/5248-zero3-sp2-world-local-mean.json",  # a factor that a framework derives from sizes
         "scenarios/megatron/7452-8-attention-sink-norm-fixed.json",  # stages, norms, buckets
         "scenarios/torchtitan/1805-moe-input-gradient-in-the-model-fixed.json"]  # dispatched tokens


def prove(path):
    done = subprocess.run([os.environ["LOCKSTEP_BINARY"], "prove", "-f", "json", "--proof", str(path)],
                          capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr
    return json.loads(done.stdout, parse_float=Fraction)


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    """Scenarios that together have every operation, one that is right and one that is not decided for some sizes; with their proofs."""
    folder, found = tmp_path_factory.mktemp("whole"), []
    for name, (steps, batch) in {**STEPS, **MORE}.items():
        path = folder / f"{name}.json"
        path.write_text(json.dumps({**SCENARIO, "model": {"parameters": PARAMETERS}, "batch": {"tokens": "even", **batch}, "schedule": {"steps": steps}}))
        found.append((Scenario(path), prove(path)))
    return found


def test_proofs_are_checked_whole(own):
    counts = Counts()
    for scenario, report in own:
        check_whole(report, scenario, counts, random.Random(1))
    for name in FILES:
        check_whole(prove(ROOT / name), Scenario(ROOT / name), counts, random.Random(1), most_cases=CASES)
    print("counted:", counts)
    assert counts.taken.count() <= MOST_TAKEN, dict(counts.taken)
    assert counts.whole == counts.proofs == len(own) + len(FILES)
    assert counts.classes >= 60 and counts.steps >= 400 and counts.sizes >= 60 and counts.refused >= 100 and counts.conditions >= 10


def test_every_kind_of_lie_is_found(own):
    told = collections.Counter()
    for number in range(LIES * len(lies.LIES)):
        for scenario, proof in own:
            report = copy.deepcopy(proof)
            name = lies.tell(report, number)
            if name is None:
                continue
            told[name] += 1
            with pytest.raises(WrongProof):
                check_whole(report, scenario, Counts(), random.Random(number))
                print(f"{scenario.path.name}: the lie {number}, {name}, was not found")
    print("counted:", sum(told.values()), "lies found:", dict(told))
    assert {lie.__name__ for lie in lies.LIES} <= told.keys()


def test_a_scenario_that_is_not_the_one_that_was_proved_is_found(own):
    for number, (_, report) in enumerate(own):
        with pytest.raises(WrongProof):
            check_whole(report, own[number - 1][0], Counts(), random.Random(1))


def test_buckets_begin_where_their_parameters_do():
    assert begins_aligned({})
    assert begins_aligned({"align_parameter": 64, "align_bucket": "lcm(n, 128)"})
    assert begins_aligned({"align_parameter": "n", "align_bucket": "2 * n"})
    assert not begins_aligned({"align_parameter": 64, "align_bucket": "n"})
    assert not begins_aligned({"align_parameter": "n * n", "align_bucket": "lcm(n, 128)"})
    assert not begins_aligned({"align_parameter": 64, "align_bucket": "n + 63"})


def test_signs_are_those_of_all_sizes():
    program = Program({"layout": {"dp": 2}, "model": {"parameters": []}, "schedule": {"steps": []}})
    reader = Reader(program, {"dp": axis(("rank", "contributor"), "dp")}, {}, {"dp": 3})
    dp = variable("dp")
    assert reader.signs(plus(dp, constant(3), -1)) == {0, 1}
    assert reader.signs(plus(dp, constant(2), -1)) == {1}
    assert reader.signs(plus(constant(2), dp, -1)) == {-1}
    assert reader.signs(plus(constant(4), dp, -1)) == {-1, 0, 1}
    assert reader.signs(parse("1/dp - 1/3")) == {-1, 0}
    assert reader.signs({}) == {0}


def test_comments_and_commas_are_left_out_where_they_are_none_of_a_string():
    assert json.loads(without_comments('{ "a": "// no, }", /* x */ "b": [1, 2,], // y\n }')) == {"a": "// no, }", "b": [1, 2]}
