# SPDX-License-Identifier: Apache-2.0
"""Proofs against replays of every rank: the corpus, every framework of the sweep, and random schedules, at all sizes 1 to 4
of each open axis and some larger ones. What both engines decide must be the same (tests/symbolic/parametric_oracle_test.cpp).
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from fractions import Fraction
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "oracle"), str(ROOT / "tests" / "sweep")]

import random_scenario  # noqa: E402
import sweep  # noqa: E402


class Kept(sweep.Sweep):
    """A sweep that keeps the scenarios of accepted choices."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.contents = {}

    def judge(self, choice, content, report):
        super().judge(choice, content, report)
        self.contents.setdefault(json.dumps(content), content)


def corpus():
    return sorted(path for path in ROOT.glob("scenarios/*/*.json") if path.parent.name != "scale")


def swept(folder, layouts, seed):
    """Scenarios of every framework, of so many layouts each."""
    for framework in sweep.frameworks():
        kept = Kept(framework, seed)
        kept.layouts(layouts)
        for number, content in enumerate(kept.contents.values()):
            path = folder / f"{framework}-{number}.json"
            path.write_text(json.dumps(content), encoding="utf-8")
            yield path


def drawn(folder, count, seed):
    for number in range(seed, seed + count):
        written, _ = random_scenario.generate(number)
        path = folder / f"random-{number}.json"
        path.write_text(json.dumps(written, default=lambda value: float(value) if isinstance(value, Fraction) else None), encoding="utf-8")
        yield path


def compare(files, sizes):
    """Runs the comparison on files, of each at so many layouts; what it says, and whether nothing disagrees."""
    program = Path(os.environ["LOCKSTEP_BINARY"]).with_name("test_symbolic")
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as listed:
        listed.write("".join(f"{path}\n" for path in files))
        listed.flush()
        environment = {**os.environ, "LOCKSTEP_PROOF_FILES": listed.name, "LOCKSTEP_PROOF_SIZES": str(sizes)}
        done = subprocess.run([program, "[.listed]"], capture_output=True, text=True, check=False, env=environment)
    counted = re.search(r"^\d+ proofs .*$", done.stdout, re.MULTILINE)
    said = counted.group(0) if counted else ""
    if done.returncode != 0 or not counted:
        said += "\n" + done.stdout + done.stderr
    return said, done.returncode == 0 and counted is not None


def run(sizes, layouts, schedules, seed):
    """Prints a line for each of the three; whether nothing disagrees."""
    right = True
    with tempfile.TemporaryDirectory(prefix="lockstep-proofs-") as name:
        folder = Path(name)
        for what, files in (("the corpus", corpus()), ("the sweep", swept(folder, layouts, seed)),
                            ("random schedules", drawn(folder, schedules, seed))):
            said, alike = compare(files, sizes)
            print(f"{what}: {said}", flush=True)
            right = right and alike
    return right
