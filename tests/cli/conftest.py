# SPDX-License-Identifier: Apache-2.0
"""Runs the built program as a process. LOCKSTEP_BINARY names it."""

import os
import resource
import subprocess

import pytest

LIMITED_MEMORY = 2 << 30
LIMITED_SECONDS = 120  # many times what any input takes

RIGHT = """{
  "lockstep": 1,
  "name": "right",
  "layout": { "dp": 2 },
  "model": { "parameters": [ { "name": "weight", "shape": [8] } ] },
  "batch": { "micro_batches": 1, "tokens": "even" },
  "schedule": { "steps": [
    { "name": "micro_batches", "op": "each", "steps": [ { "name": "backward", "op": "backward" } ] },
    { "name": "mean", "op": "all_reduce", "over": "dp", "reduce": "avg" }
  ] },
  "expect": { "verdict": "match" }
}
"""


def pytest_collection_modifyitems(items):
    if "LOCKSTEP_BINARY" not in os.environ:
        for item in items:
            item.add_marker(pytest.mark.skip(reason="LOCKSTEP_BINARY does not name the program"))


@pytest.fixture
def binary():
    return os.path.abspath(os.environ["LOCKSTEP_BINARY"])


@pytest.fixture
def run(binary, tmp_path):
    """Runs the program in a fresh folder with a plain environment: run("check", "right.json")."""

    def run_in(*arguments, **options):
        environment = {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "CLICOLOR_FORCE", "FORCE_COLOR")}
        environment.update(options.pop("env", {}))
        return subprocess.run(
            [binary, *arguments], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300, check=False, **options
        )

    return run_in


@pytest.fixture
def files(tmp_path):
    """right.json, wrong.json (a sum in place of a mean), stuck.json (a deadlock), invalid.json."""
    (tmp_path / "right.json").write_text(RIGHT)
    wrong = RIGHT.replace(', "reduce": "avg"', "").replace('"match"', '"mismatch"').replace('"right"', '"wrong"')
    (tmp_path / "wrong.json").write_text(wrong)
    (tmp_path / "stuck.json").write_text(
        RIGHT.replace('"reduce": "avg"', '"when": "rank.dp == 0"').replace('"match"', '"deadlock"').replace('"right"', '"stuck"')
    )
    (tmp_path / "invalid.json").write_text(RIGHT.replace('"layout"', '"layuot"'))
    return tmp_path


@pytest.fixture
def limited(binary, tmp_path):
    """Runs the program with little memory: limited("check", "x.json") gives the finished process with bytes for output."""
    sanitized = "release" not in subprocess.run([binary, "version"], capture_output=True, text=True, check=True).stdout

    def run_in(*arguments, memory=LIMITED_MEMORY, **options):
        def limit():
            # A sanitizer reserves terabytes of addresses and uses few of them.
            if not sanitized:
                resource.setrlimit(resource.RLIMIT_AS, (memory, memory))

        options = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
        return subprocess.run([binary, *arguments], cwd=tmp_path, preexec_fn=limit, timeout=LIMITED_SECONDS, check=False, **options)

    return run_in
