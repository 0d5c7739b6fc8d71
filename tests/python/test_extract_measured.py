# SPDX-License-Identifier: Apache-2.0
"""`lockstep extract` of every case that test_bugs.py really runs, right ones and bugs: the formulas are what `lockstep verify` measured, on every rank and in
every step. What cannot be the same is in OTHER, with its reason; a new case is compared, or stands there. With tools/nightly.
"""

import sys

import pytest

from test_bugs import CASES, PROGRAM, ROWS, WORKERS, folders, verify  # noqa: F401  folders is a fixture
from test_extract import Extraction, formulas, judged
from torch_ranks import HERE, nightly, torch_python

pytestmark = [nightly, pytest.mark.skipif(torch_python() is None, reason="no Python with torch (LOCKSTEP_TORCH_PYTHON names one)")]

UNSAID = "nothing but equal bits tells whether ranks along tp yield one gradient of a plain tensor or shares of one, and the model is not called as one"
REPLICAS = "of replicas the capture names another one"
LOCAL_NORM = "each rank clips by a norm of its own, which depends on values"
OTHER = {
    "ddp-scaler-right": "the script makes gradients infinite, so that the loss scaler leaves a step out; those of an extraction are finite",
    "ddp-group-right": UNSAID,
    "ddp-group": UNSAID,
    "ddp-clipped": LOCAL_NORM,
    "plain-clipped": LOCAL_NORM,
    "plain-branches": "what comes of another parameter's gradient has its name here, and is no contribution there",
    "plain-users": "divided by a number that depends on values of other ranks",
    "tp-own-norm-right": UNSAID,
    "tp-dp-right": UNSAID,
    "tp-norm": UNSAID,
    "tp-norm-average": UNSAID,
    "fsdp-tp-norm": UNSAID,
    "tp-by-hand-right": UNSAID,
    "tp-not-summed": UNSAID,
    "tp-bias": UNSAID,
    "fsdp-tp-right": "the script trains once without a capture, then with one: the first training is what is looked at, and the second is refused",
    "fsdp-tp-words-right": REPLICAS,
    "fsdp-tp-words-kept": REPLICAS,
    "fsdp-tp-words-halved": REPLICAS,
    "zero-not-zeroed": "what is left of the step before depends on what DeepSpeed keeps between steps, which is not followed",
}


def extracted(tmp_path, package, case, steps):
    done = Extraction(tmp_path / "step.json", HERE / "measured_extracted.py", WORKERS[package].removesuffix(".py"), case, str(tmp_path / "out"),
                      ranks=CASES[case][1], steps=steps)
    return judged("check", tmp_path / "step.json") if done.status == 0 else done.said


@pytest.mark.parametrize("package", WORKERS)
def test_what_is_extracted_is_what_was_measured(folders, tmp_path, package, capsys):  # noqa: F811
    folder, cases, compared = folders(package), [case for case in ROWS if CASES[case][0] == package], []
    for case in cases:
        measured = verify(folder / case, program=PROGRAM).report
        found = extracted(tmp_path, package, case, 1 + max(piece["step"] for piece in measured["results"]))
        if case in OTHER:
            assert isinstance(found, str) or found["verdict"] in ("undecided", measured["verdict"]), case
            continue
        assert not isinstance(found, str), (case, found)
        own, other = formulas(found), formulas(measured)
        assert own == other and own, (case, next(((key, own.get(key), other.get(key)) for key in sorted({*own, *other}, key=str) if own.get(key) != other.get(key)), None))
        assert found["verdict"] == measured["verdict"], case
        compared.append(len(own))
    left = [case for case in cases if case in OTHER]
    with capsys.disabled():
        print("\ncounted: %d cases of %s, %d formulas, 0 differences; not compared: %s" % (len(compared), package, sum(compared), ", ".join(left) or "none"))
    assert len(compared) + len(left) == len(cases) and len(compared) > len(left)


def test_what_is_not_compared_is_a_case(folders):  # noqa: F811
    assert set(OTHER) <= set(ROWS)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__, *sys.argv[1:]]))
