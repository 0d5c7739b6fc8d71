# SPDX-License-Identifier: Apache-2.0
"""The pairs of the corpus, NAME.json and NAME-fixed.json: a wrong file and its repaired twin, as plain documents."""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "scenarios"), str(ROOT / "tests" / "oracle"), str(ROOT / "tests" / "attack")]


def run(*arguments):
    return subprocess.run([os.environ["LOCKSTEP_BINARY"], *map(str, arguments)], capture_output=True, text=True, cwd=ROOT, check=False)


def pairs():
    """Each wrong file with its fixed twin."""
    for fixed in sorted((ROOT / "scenarios").rglob("*-fixed.json*")):
        wrong = fixed.with_name(fixed.name.replace("-fixed", ""))
        if wrong.exists():
            yield wrong.relative_to(ROOT), fixed.relative_to(ROOT)


def resolved(path):
    """The document with plain parameters and plain steps."""
    done = run("show", "--resolved", path)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def blind(document):
    """What the program may see of a plain document, so that it knows nothing of a framework, of edits or of what is expected."""
    return {key: value for key, value in document.items() if key not in ("expect", "title", "source")}


def same_question(one, other):
    """Whether two plain documents ask for the same gradients."""
    names = lambda document: [(p["name"], p["shape"], p.get("tied")) for p in document["model"]["parameters"]]  # noqa: E731
    return one["layout"] == other["layout"] and one.get("batch") == other.get("batch") and names(one) == names(other)


def why_apart(wrong, fixed):
    """Why a pair of plain documents is no question of the schedule: what else the fix changes. None where it is one."""
    if wrong["model"].get("edits") or fixed["model"].get("edits"):
        return "the fix is in the model"
    for part in ("layout", "batch"):
        if wrong.get(part) != fixed.get(part):
            return f"the fix changes the {part}"
    if wrong["model"] != fixed["model"]:
        return "the fix changes what the parameters are"
    if wrong["schedule"] == fixed["schedule"]:
        return "the fix changes no step"
    return None
