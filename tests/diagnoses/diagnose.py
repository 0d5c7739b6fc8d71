# SPDX-License-Identifier: Apache-2.0
"""What lockstep says of one wrong file: the steps that it blames, the repairs that it offers, and what both cost."""

import json
import os
import subprocess
import tempfile
from dataclasses import asdict, dataclass, field

import fix
import pairs
import sizes
from jsonc import read

BEST = 3


def timed(*arguments):
    """What the program prints, and the seconds of processors that it took."""
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen([os.environ["LOCKSTEP_BINARY"], *map(str, arguments)], stdout=output, stderr=subprocess.PIPE, cwd=pairs.ROOT)
        with process.stderr as errors:
            said = errors.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode in (0, 1), said.decode()
        output.seek(0)
        return output.read(), usage.ru_utime + usage.ru_stime


@dataclass
class Diagnosis:
    file: str
    blind: bool
    fix: str = ""  # what it changes, in words
    blamed: list = field(default_factory=list)  # steps, in the words of the program
    why: list = field(default_factory=list)  # of each of them
    blame: str = ""  # "exact", "some" (or more than those) of the steps that the fix changes, "others", "nothing"
    place: int = 0  # of the fix itself among the repairs; 0: it is not there
    letters: bool = False  # and it is the fix's to the letter, its names as well
    equal: bool = False  # one of the repairs gives every rank the gradient that the fix gives
    repairs: list = field(default_factory=list)  # of each the edits, its reach, and how its steps differ from the fix's
    replayed: int = 0
    refused: int = 0
    wrong: list = field(default_factory=list)  # sentences: repairs that are wrong where they are said to be right
    check_s: float = 0
    plain_check_s: float = 0  # without the search for blame
    repair_s: float = 0

    def as_json(self):
        return asdict(self)


def written(repairs, first, folder):
    """A file with each repair. The program has written that with the first; the others have other edits in their place."""
    document = read(first)
    edits, added = document["schedule"]["edits"], repairs[0]["edits"]
    assert edits[-len(added) :] == added, (first.read_text(), added)
    files = [first]
    for take, repair in enumerate(repairs[1:], 2):
        document["schedule"]["edits"] = edits[: -len(added)] + repair["edits"]
        files.append(folder / f"repaired-{take}.json")
        files[-1].write_text(json.dumps(document))
    return files


def judge_blame(found, said, change):
    """`said` is what a report has under "diagnosis", `change` the fix."""
    found.blamed, found.why = ([blame[key] for blame in said.get("blame", [])] for key in ("step", "why"))
    edits = [edit for repair in said.get("repairs", [])[:1] for edit in repair["edits"]]
    named = {change.named(step, edits) for step in found.blamed}
    keys = frozenset(named.union(*(change.completes(key, edits) for key in named)))
    ways = change.ways()
    if not keys:
        found.blame = "nothing"
    elif keys in ways:
        found.blame = "exact"
    else:
        found.blame = "some" if any(keys & way for way in ways) else "others"


def difference(repaired, fixed):
    """In what plain steps differ: (steps that the repaired schedule alone has, steps that the fixed one alone has)."""
    ours, theirs = list(fix.flat(repaired)), list(fix.flat(fixed))
    return [step for step in ours if step not in theirs], [step for step in theirs if step not in ours]


def judge_repairs(found, repairs, files, fixed):
    wanted = fix.plain(fixed)
    for place, (repair, file) in enumerate(zip(repairs, files, strict=True), 1):
        document = pairs.resolved(file)
        # Every repair that is offered matches: both give the gradients of one device, if it is the same one.
        found.equal = found.equal or pairs.same_question(document, fixed)
        ours = fix.with_factors_of(fix.plain(document), wanted, document["layout"])
        if ours == wanted and not found.place:
            found.place = place
            found.letters = document["schedule"]["steps"] == fixed["schedule"]["steps"]
        more, less = difference(ours, wanted)
        found.repairs.append({"edits": repair["edits"], "reach": repair["reach"], "proof": repair["proof"], "same": ours == wanted, "more": more, "less": less})


def diagnose(wrong, fixed, folder, blind, rounds=2):
    """`wrong` is a path, `fixed` the plain document of its twin. Times are the least of `rounds`."""
    found = Diagnosis(str(wrong), blind)
    document, file = pairs.resolved(wrong), wrong
    change = fix.Fix(document, fixed)
    found.fix = change.words()
    if blind:
        file = folder / "plain.json"
        file.write_text(json.dumps(pairs.blind(document)))
    checks = [timed("check", "-f", "json", file) for _ in range(rounds)]
    found.check_s = min(seconds for _, seconds in checks)
    found.plain_check_s = min(timed("check", "-f", "json", "--no-blame", file)[1] for _ in range(rounds))
    said = json.loads(checks[0][0])["diagnosis"]
    judge_blame(found, said, change)
    first = folder / "repaired-1.json"
    text, found.repair_s = timed("repair", "-f", "json", "--most", BEST, "--to", first, file)
    if repairs := json.loads(text)["repairs"]:
        # The one that blame rests on is offered as well, and said to be right at the file's own sizes.
        known = [repair["edits"] for repair in repairs]
        others = [{**repair, "reach": "", "proof": ""} for repair in said["repairs"] if repair["edits"] not in known]
        files = written(repairs + others, first, folder)
        judge_repairs(found, repairs, files[: len(repairs)], fixed)
        sizes.replay(found, repairs + others, files, folder)
    return found
