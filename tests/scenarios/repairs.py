# SPDX-License-Identifier: Apache-2.0
"""How many of the corpus's mistakes `lockstep repair` repairs as the project did.

A pair is a wrong file and its fixed twin. A repair is equal to the project's where both schedules give every rank the same
gradient: both match, for one model, layout, batch and loss. It is the project's where the plain steps are the same.

    LOCKSTEP_BINARY=… python3 tests/scenarios/repairs.py [--blind]

prints the counts; --blind shows the program plain steps alone, so that it cannot see what the file's edits changed.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from jsonc import read

ROOT = Path(__file__).resolve().parents[2]
BEST = 3


def run(*arguments):
    return subprocess.run([os.environ["LOCKSTEP_BINARY"], *map(str, arguments)], capture_output=True, text=True, cwd=ROOT, check=False)


def pairs():
    """Wrong files with a fixed twin: NAME.json and NAME-fixed.json."""
    for fixed in sorted((ROOT / "scenarios").rglob("*-fixed.json*")):
        wrong = fixed.with_name(fixed.name.replace("-fixed", ""))
        if wrong.exists():
            yield wrong.relative_to(ROOT), fixed.relative_to(ROOT)


def resolved(path):
    done = run("show", "--resolved", path)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def same_question(one, other):
    """Whether two resolved documents ask for the same gradients."""
    names = lambda document: [(p["name"], p["shape"], p.get("tied")) for p in document["model"]["parameters"]]
    return one["layout"] == other["layout"] and one.get("batch") == other.get("batch") and names(one) == names(other)


def written(report, first, folder):
    """A file with each repair. The program has written that with the first; the others have other edits in their place."""
    document = read(first)
    edits, added = document["schedule"]["edits"], report["repairs"][0]["edits"]
    assert edits[-len(added):] == added, (first.read_text(), added)
    files = [first]
    for take, repair in enumerate(report["repairs"][1:], 2):
        document["schedule"]["edits"] = edits[:-len(added)] + repair["edits"]
        files.append(folder / f"repaired-{take}.json")
        files[-1].write_text(json.dumps(document))
    return files


def judge(wrong, fixed, folder, blind):
    """What comes of one pair: "same steps", "equal", "other question", "in the model" (nothing
    found, and the file edits the model) or "not found", with the seconds."""
    file = wrong
    if blind:
        file = folder / "plain.json"
        document = resolved(wrong)
        document.pop("expect", None)
        file.write_text(json.dumps(document))
    begin = time.monotonic()
    first = folder / "repaired.json"
    # One search for all repairs takes nearly all of the time.
    done = run("repair", "-f", "json", "--most", BEST, "--to", first, file)
    seconds = time.monotonic() - begin
    assert done.returncode in (0, 1), done.stderr
    report = json.loads(done.stdout)
    if not report["repairs"]:
        # No edit of the steps takes back what the file changed in the model itself.
        return ("in the model" if resolved(wrong)["model"].get("edits") else "not found"), seconds
    right = resolved(fixed)
    files = written(report, first, folder)
    checked = run("check", "-q", *files)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    repaired = [resolved(path) for path in files]
    if any(one["schedule"]["steps"] == right["schedule"]["steps"] for one in repaired):
        return "same steps", seconds
    return ("equal" if any(same_question(one, right) for one in repaired) else "other question"), seconds


def measure(chosen, blind=False):
    """The outcome of each wrong file, and the seconds of the slowest."""
    with tempfile.TemporaryDirectory() as name:
        outcomes = {wrong: judge(wrong, fixed, Path(name), blind) for wrong, fixed in chosen}
    return {wrong: outcome for wrong, (outcome, _) in outcomes.items()}, max(seconds for _, seconds in outcomes.values())


def main():
    outcomes, slowest = measure(list(pairs()), "--blind" in sys.argv[1:])
    for outcome in sorted(set(outcomes.values())):
        print(f"{list(outcomes.values()).count(outcome):4}  {outcome}")
    good = sum(outcome in ("same steps", "equal") for outcome in outcomes.values())
    print(f"{good} of {len(outcomes)} pairs, {100 * good / len(outcomes):.1f} %; slowest {slowest:.2f} s")
    for wrong, outcome in outcomes.items():
        if outcome not in ("same steps", "equal"):
            print(f"{outcome}: {wrong}")


if __name__ == "__main__":
    main()
