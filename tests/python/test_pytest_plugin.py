# SPDX-License-Identifier: Apache-2.0
"""The pytest plugin and lockstep.run: pytest, run on a Python with torch, on the example of docs/pytest.md and on plugin_cases.py; its failures
are what the document shows."""

import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as xml

import pytest

from torch_ranks import HERE, IS_NIGHTLY, clean_environment, nightly_but, torch_python

DOCUMENT = (HERE.parents[1] / "docs" / "pytest.md").read_text(encoding="utf-8")


def pytest_on(python, folder, *arguments):
    """Runs pytest with the plugin in a folder; (its outcomes by test, all that it said)."""
    environment = dict(clean_environment(), PYTHONPATH=str(HERE.parents[1] / "python"), PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")
    environment.pop("PYTEST_ADDOPTS", None)
    done = subprocess.run([python, "-m", "pytest", "-p", "lockstep.pytest_plugin", "-p", "no:cacheprovider", "-rs", "--basetemp", folder / "base",
                           "--junitxml", folder / "results.xml", "-o", "junit_family=xunit1", *arguments],
                          cwd=folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert (folder / "results.xml").exists(), done.stdout + done.stderr
    outcomes = {}
    for case in xml.parse(folder / "results.xml").iter("testcase"):
        told = next(iter(case), None)
        outcomes[case.get("name")] = ("passed", "") if told is None or told.tag.startswith("system") else (told.tag, told.get("message"))
    return outcomes, done.stdout + done.stderr


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """All tests run in one pytest: loading torch takes longest."""
    if torch_python() is None:
        pytest.skip("no Python with torch (LOCKSTEP_TORCH_PYTHON names one)")
    look = [torch_python(), "-c", "import importlib.util as u, sys; sys.exit(u.find_spec('pytest') is None)"]
    if subprocess.run(look, check=False).returncode != 0:
        pytest.skip("the Python with torch has no pytest")
    folder = tmp_path_factory.mktemp("plugin")
    (folder / "test_sync.py").write_text(re.search(r"```python\n(# test_sync.py\n.*?)```", DOCUMENT, re.DOTALL)[1])
    shutil.copy(HERE / "plugin_cases.py", folder / "test_cases.py")
    chosen = () if IS_NIGHTLY else ("-k", "not (" + " or ".join(LATER) + ")")
    outcomes, said = pytest_on(torch_python(), folder, "--lockstep", "--lockstep-limit=600", *chosen)
    return outcomes, said, folder


PASS = ["test_gradients_are_averaged", "test_a_script_makes_its_process_group", "test_four_ranks_give_a_verification_and_its_text",
        "test_a_wrong_run_is_returned_where_it_is_not_checked", "test_a_temporary_folder_is_removed_where_all_is_right",
        "test_mistakes_are_answered_with_a_sentence", "test_a_run_on_one_rank_is_the_reference",
        "test_a_backward_that_is_wrong_fails_against_the_reference"]
FAIL = {
    "test_raises": "rank 1 failed: ArithmeticError: no number\n", "test_dies": "rank 1 died with status 7",
    "test_captures_nothing": "captured nothing: train within lockstep.capture",
    "test_captures_twice": "CaptureError: this is the second capture", "test_waits": "the ranks have not ended within 300 s",
    "test_crossed": "collective 2 of ranks 0 and 1, in optimizer step 0: rank 0 calls broadcast of 5 float32 elements", "test_the_boundary_is_one_too_early": "other gradients than one device",
}


# Each loads torch on two ranks or more: with tools/nightly.
LATER = ["test_a_script_makes_its_process_group", "test_a_wrong_run_is_returned_where_it_is_not_checked",
         "test_a_temporary_folder_is_removed_where_all_is_right", "test_a_run_on_one_rank_is_the_reference",
         "test_a_backward_that_is_wrong_fails_against_the_reference", "test_dies", "test_captures_nothing", "test_captures_twice"]
SHORT = [name for name in [*PASS, *FAIL] if name not in LATER]


def test_every_case_was_run(results):
    outcomes, said, _ = results
    assert outcomes.keys() == ({*PASS, *FAIL} if IS_NIGHTLY else {*SHORT}), said


@pytest.mark.parametrize("name", nightly_but(PASS, SHORT))
def test_it_passes(results, name):
    assert results[0][name][0] == "passed", results[1]


@pytest.mark.parametrize("name", nightly_but(FAIL, SHORT))
def test_it_fails_with_a_sentence(results, name):
    outcome, message = results[0][name]
    assert outcome == "failure" and FAIL[name] in message, results[1]
    assert "python/lockstep" not in message


def test_a_failure_has_what_the_rank_has_printed_and_the_line(results):
    message = results[0]["test_raises"][1]
    assert "so far so good" in message and re.search(r"test_cases\.py:\d+ in train: raise ArithmeticError", message)


def test_collectives_that_cross_are_named(results):
    message = results[0]["test_crossed"][1]
    assert re.search(r"rank 0 calls broadcast of 5 float32 elements from or to rank 0 at test_cases\.py:\d+ in train, "
                     r"and rank 1 all_reduce of 3 float32 elements at test_cases\.py:\d+ in train\.", message)


@pytest.mark.parametrize("number, name", enumerate(["test_the_boundary_is_one_too_early", "test_waits"]))
def test_messages_are_those_of_the_document(results, number, name):
    shown = re.findall(r"```text\n(E .*?)```", DOCUMENT, re.DOTALL)[number]
    found = "".join(line + "\n" for line in section(results[1], name))
    assert found == shown, found


def section(said, name):
    """The lines of an assertion's message, as pytest prints them, without the folder."""
    text = re.search(r"_ %s _+\n(.*?)\n\S+:\d+: Failed" % name, said, re.DOTALL)[1]
    lines = [line for line in text.splitlines() if line.startswith("E  ")]
    return [re.sub(r"the files are in \S+", "the files are in …/lockstep-1", line) for line in lines]


def test_without_the_option_or_torch_its_tests_are_skipped(tmp_path):
    (tmp_path / "test_sync.py").write_text("def test_sync(lockstep):\n    assert False\n")
    outcomes, said = pytest_on(sys.executable, tmp_path)
    assert outcomes["test_sync"][0] == "skipped" and "trains on several processes: give --lockstep" in said
    script = "import sys, importlib.util as u; found = u.find_spec; u.find_spec = lambda name, *rest: None if name == 'torch' else found(name, *rest)\n"
    (tmp_path / "conftest.py").write_text(script)
    outcomes, said = pytest_on(sys.executable, tmp_path, "--lockstep")
    assert outcomes["test_sync"][0] == "skipped" and "this Python has no torch" in said


def test_the_plugin_is_in_the_package():
    project = (HERE.parents[1] / "pyproject.toml").read_text()
    assert re.search(r'\[project\.entry-points\.pytest11\]\nlockstep = "lockstep\.pytest_plugin"\n', project)
