# SPDX-License-Identifier: Apache-2.0
"""tools/measure-build, in a repository whose build and CI are scripts of a line."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
UNITY = "build/release/src/CMakeFiles/lockstep_symbolic.dir/Unity"


@pytest.fixture
def repository(tmp_path):
    folder = tmp_path / "lockstep"
    (folder / "tools").mkdir(parents=True)
    for name in ("measure-build", "build.sh"):
        shutil.copy(ROOT / "tools" / name, folder / "tools" / name)
    (folder / ".ci").mkdir()
    (folder / "src").mkdir()
    (folder / "src" / "a.cpp").write_text("int a;\n")
    return folder


def measured(repository, lockstep, *arguments, ci="echo 3 passed, 0 failed, 0 skipped"):
    for name, text in (("tools/lockstep", lockstep), (".ci/run", ci)):
        (repository / name).write_text(f"#!/usr/bin/env bash\n{text}\n")
        (repository / name).chmod(0o755)
    git = ["git", "-C", str(repository), "-c", "user.name=a", "-c", "user.email=a@b.c"]
    for command in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "one", "--allow-empty"]):
        subprocess.run([*git, *command], check=True, capture_output=True)
    return subprocess.run([repository / "tools" / "measure-build", *arguments], capture_output=True, text=True)


BUILDS = f"""mkdir -p {UNITY}; echo "#include \\"$PWD/src/a.cpp\\"" >{UNITY}/unity_0.cxx; wc -l <src/a.cpp >>/dev/stderr"""


def test_each_goal_has_a_row_with_what_was_measured_and_the_distance(repository):
    done = measured(repository, BUILDS)
    assert done.returncode == 0, done.stderr
    rows = done.stdout.splitlines()
    assert re.fullmatch(r"what \(\d+ cores\) +measured +goal", rows[0])
    goals = [re.search(r"(\d+\.\d) s +≤ (\d+) s +met ×\d", row) for row in rows[1:]]
    assert all(goals), done.stdout
    assert [int(goal[2]) for goal in goals] == [180, 60, 10]
    assert (repository / "src" / "a.cpp").read_text() == "int a;\n", "what is changed is the clone"


def test_a_source_is_changed_before_the_second_build(repository):
    done = measured(repository, BUILDS)
    assert done.stderr.split() == ["1", "2"]


def test_a_goal_that_is_missed_is_told_and_ci_is_measured_on_demand(repository):
    done = measured(repository, BUILDS, "--ci", ci="sleep 1; echo 3 passed, 0 failed, 0 skipped")
    (row,) = [line for line in done.stdout.splitlines() if line.startswith(".ci/run")]
    assert "3 passed, 0 failed, 0 skipped" in row and "≤ 1200 s" in row
    slow = (repository / "tools" / "measure-build").read_text().replace("first_command_goal_s=180", "first_command_goal_s=1")
    (repository / "tools" / "measure-build").write_text(slow)
    done = measured(repository, "sleep 2; " + BUILDS)
    assert re.search(r" ≤ 1 s +missed ×\d+\.\d", done.stdout.splitlines()[1]), done.stdout


def test_a_first_command_that_fails_is_no_measurement(repository):
    done = measured(repository, "exit 3")
    assert done.returncode == 3 and "the first command ended with status 3" in done.stderr and not done.stdout


def test_an_unknown_argument_is_refused(repository):
    done = measured(repository, BUILDS, "--all")
    assert done.returncode == 2 and "unknown argument '--all'; known is --ci" in done.stderr
    assert measured(repository, BUILDS, "--help").stdout.startswith("tools/measure-build [--ci]: how long")
