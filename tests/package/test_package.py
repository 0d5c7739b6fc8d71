# SPDX-License-Identifier: Apache-2.0
"""Installs lockstep into an empty folder and uses it as another project would, with find_package."""

import os
import subprocess
from pathlib import Path

SCENARIO = """{
  "lockstep": 1, "name": "plain", "layout": { "dp": 2 },
  "model": { "parameters": [ { "name": "w", "shape": [4] } ] },
  "schedule": { "steps": [
    { "op": "each", "name": "micro_batches", "steps": [ { "op": "backward", "name": "backward" } ] } ] }
}"""


def run(*command):
    process = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                             text=True)
    assert process.returncode == 0, f"{command}\n{process.stdout}"
    return process.stdout


def test_another_project_finds_builds_and_runs_the_installed_library(tmp_path):
    build = Path(os.environ["LOCKSTEP_BINARY"]).parents[1]
    prefix = tmp_path / "prefix"
    run("cmake", "--install", build, "--prefix", prefix)
    assert os.access(prefix / "bin" / "lockstep", os.X_OK)
    assert (prefix / "include" / "lockstep" / "check.h").is_file()
    pages = {"bash-completion/completions/lockstep": "complete -F _lockstep lockstep", "man/man1/lockstep-check.1": ".TH LOCKSTEP",
             "zsh/site-functions/_lockstep": "#compdef lockstep", "fish/vendor_completions.d/lockstep.fish": "complete -c lockstep",
             "man/man1/lockstep.1": ".TH LOCKSTEP"}
    for name, text in pages.items():
        assert text in (prefix / "share" / name).read_text()
    # Nothing that was installed may point back into the sources or the build.
    for file in prefix.glob("lib/**/*.cmake"):
        assert str(build) not in file.read_text()

    consumer = tmp_path / "consumer"
    run("cmake", "-G", "Ninja", "-S", Path(__file__).parent, "-B", consumer, f"-DCMAKE_PREFIX_PATH={prefix}")
    run("cmake", "--build", consumer)
    scenario = tmp_path / "plain.json"
    scenario.write_text(SCENARIO)
    assert run(consumer / "consumer", scenario) == "mismatch\n"
