# SPDX-License-Identifier: Apache-2.0
"""The files in frameworks/ against the code that they describe: `lockstep diff` of a scenario, which says what is expected, and of an extraction of a script with
the same options. docs/framework-files.md has the table, and docs/frameworks/ the reason of every difference.
"""

import json
import subprocess

import pytest

from expected_cases import CASES, WITH_EVERY_CHANGE, results, scenario_of, script_of, table, told
from test_extract import Extraction
from test_extract_frameworks import there
from torch_ranks import HERE, PROGRAM, nightly, torch_python

pytestmark = pytest.mark.skipif(torch_python() is None, reason="no Python with torch (LOCKSTEP_TORCH_PYTHON names one)")

ROOT = HERE.parents[1]


def compared(folder, case, *arguments):
    """What `lockstep diff` says of the scenario of a case and the code, as JSON."""
    (folder / "expected.json").write_text(json.dumps(scenario_of(case)))
    names = [word for name in case.names for word in ("--name", name)]
    done = subprocess.run([PROGRAM, "diff", folder / "expected.json", folder / "step.json", "-f", "json", *names, *arguments],
                          stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return json.loads(done.stdout)


def extracted(folder, case):
    for package in case.needs:
        if not there(package):
            pytest.skip("no " + package)
    script, *arguments = script_of(case)
    done = Extraction(folder / "step.json", HERE / script, *arguments, ranks=case.ranks, limit=300, **({"loss": case.loss} if case.loss else {}))
    assert done.status == 0, done.said


@pytest.fixture(scope="module")
def folder_of(tmp_path_factory):
    """The folder of a case, with what was extracted of it: once for all tests."""
    folders = {}

    def folder(case):
        if case.name not in folders:
            folders[case.name] = tmp_path_factory.mktemp(case.name)
            extracted(folders[case.name], case)
        return folders[case.name]
    return folder


@pytest.mark.parametrize("case", [pytest.param(case, id=case.name, marks=[] if case.name in WITH_EVERY_CHANGE else nightly) for case in CASES])
def test_what_the_framework_file_says_is_what_the_code_does(folder_of, case):
    found = compared(folder_of(case), case)
    assert found["apart"] == [] and found["only_old"] == found["only_new"] == [] and found["elements"] > 0, found
    assert json.loads(json.dumps(told(found))) == results()[case.name]
    assert (found["verdict"] == "same") == (not case.reason), "every difference has its reason, and nothing else has one"


def test_a_file_that_says_something_else_is_not_what_the_code_does(folder_of):
    """Of the same code: another value of an option, and another name of a parameter."""
    case = next(one for one in CASES if one.name in WITH_EVERY_CHANGE)
    other = compared(folder_of(case), case, "--old", "comm_hook=noop_hook")
    assert other["verdict"] == "other" and {one["old"] for one in other["gradients"]} == {"g0", "g1", "g2", "g3"}
    assert all(one["new"] == "(g0+g1+g2+g3)/4" for one in other["gradients"]), other["gradients"]
    assert all("all_reduce" in "".join(one["new_by"]) for one in other["gradients"])
    renamed = compared(folder_of(case), case, "--name", "0.bias=0.gain")
    assert (renamed["only_old"], renamed["only_new"], renamed["verdict"]) == (["0.bias"], ["0.bias"], "other")


def test_what_the_pipe_says(folder_of):
    """lockstep extract … | lockstep diff expected.json -"""
    folder = folder_of(next(one for one in CASES if one.name in WITH_EVERY_CHANGE))
    with open(folder / "step.json") as code:
        done = subprocess.run([PROGRAM, "diff", folder / "expected.json", "-"], stdin=code, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "") and done.stdout.startswith("same gradients"), done
    turned = subprocess.run([PROGRAM, "diff", folder / "step.json", folder / "expected.json"], capture_output=True, text=True)
    assert turned.returncode == 2 and "what is expected comes first" in turned.stderr


def test_the_table_is_of_these_cases():
    text = (ROOT / "docs" / "framework-files.md").read_text()
    assert table() in text, "docs/framework-files.md has another table; this is the one of the cases:\n" + table()
