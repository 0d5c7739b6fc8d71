# SPDX-License-Identifier: Apache-2.0
"""`lockstep extract` of scripts with transformers' Trainer, Lightning, accelerate and DeepSpeed, as people write them: right ones, and mistakes that are
made with each.
"""

import json
import re
import shlex
import subprocess
import sys

import pytest

from test_extract import Extraction, judged
from torch_ranks import HERE, PROGRAM, clean_environment, nightly, torch_python

pytestmark = pytest.mark.skipif(torch_python() is None, reason="no Python with torch (LOCKSTEP_TORCH_PYTHON names one)")

ROOT = HERE.parents[1]
NEEDS = {"trainer": "transformers", "lightning": "lightning", "accelerate": "accelerate", "deepspeed": "deepspeed"}
# By script and case, what `check` finds; "" of a right one.
CASES = {
    ("trainer", "right"): "",
    ("trainer", "never-synchronized"): "no other data-parallel rank's contribution arrived",
    ("trainer", "divided-twice"): "1/16 where 1/4 was expected",
    ("trainer", "one-rank-frozen"): "got       0\n",
    ("lightning", "right"): "",
    ("lightning", "synchronized-too-early"): "micro-batch 1 was not reduced",
    ("lightning", "divided-twice"): "1/16 where 1/4 was expected",
    ("lightning", "summed"): "1 where 1/4 was expected",
    ("deepspeed", "2"): "",
    ("accelerate", "right"): "",
    ("accelerate", "fsdp"): "",
    ("accelerate", "synchronized-too-early"): "micro-batch 1 was not reduced",
    ("accelerate", "reduced-twice"): "1 where 1/4 was expected",
    ("accelerate", "one-rank-scaled"): "1/16 where 1/4 was expected",
}
WITH_EVERY_CHANGE = [("lightning", "synchronized-too-early"), ("accelerate", "fsdp")]


def there(package):
    look = "import importlib.util as u, sys; sys.exit(u.find_spec('%s') is None)" % package
    return subprocess.run([torch_python(), "-c", look], check=False).returncode == 0


def report_of(tmp_path, script, case):
    if not there(NEEDS[script]):
        pytest.skip("no " + NEEDS[script])
    more = [str(tmp_path / "out")] if script == "trainer" else []
    done = Extraction(tmp_path / "step.json", HERE / (script + "_extracted.py"), case, *more, loss="local_mean")
    assert done.status == 0, done.said
    return judged("check", tmp_path / "step.json")


@pytest.mark.parametrize("script, case", [one if one in WITH_EVERY_CHANGE else pytest.param(*one, marks=nightly) for one in CASES])
def test_a_script_is_right_or_its_mistake_is_found(tmp_path, script, case):
    report = report_of(tmp_path, script, case)
    assert report["verdict"] == ("mismatch" if CASES[script, case] else "match") and report["world"] == 4
    assert CASES[script, case] in subprocess.run([PROGRAM, "check", tmp_path / "step.json"], capture_output=True, text=True, check=False).stdout


@nightly
def test_what_changes_gradients_behind_clipping_is_undecided(tmp_path):
    report = report_of(tmp_path, "trainer", "divided-behind-clipping")
    assert report["verdict"] == "undecided" and "changed between clipping and the optimizer's step" in json.dumps(report)


# Of docs/extract.md: what runs a script with a framework, and what is said of it.
SHOWN = re.compile(r"^```text\n\$ (lockstep extract [^\n]*-- tests/python/(\w+)_extracted\.py[^\n]*)\n\$ (lockstep check [^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@nightly
@pytest.mark.parametrize("script", ["trainer", "lightning", "accelerate"])
def test_commands_in_the_document_print_what_it_shows(tmp_path, script):
    if not there(NEEDS[script]):
        pytest.skip("no " + NEEDS[script])
    document = (ROOT / "docs" / "extract.md").read_text(encoding="utf-8")
    extract, _, check, shown = next(found.groups() for found in SHOWN.finditer(document) if found[2] == script)
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    environment = dict(clean_environment(), LOCKSTEP_PYTHON=torch_python(), XDG_CACHE_HOME=str(tmp_path / "cache"))
    for command in (extract, check):
        done = subprocess.run([PROGRAM, *shlex.split(command)[1:]], cwd=tmp_path, stdin=subprocess.DEVNULL, capture_output=True, text=True, env=environment)
        assert done.returncode == 0, done.stderr
    assert re.sub(r"torch [\w.+]+", "torch", done.stdout).strip() == re.sub(r"torch [\w.+]+", "torch", shown).strip()


if __name__ == "__main__":
    sys.exit(pytest.main([__file__, *sys.argv[1:]]))
