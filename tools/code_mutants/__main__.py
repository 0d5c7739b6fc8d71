# SPDX-License-Identifier: Apache-2.0
"""Breaks the code of frameworks in many ways, one at a time, and asks whether an extraction sees it (tools/code-mutants calls this).

Each mutant is run twice, with a script that is right and that runs the line: by `lockstep extract` and `lockstep check`, and by ranks that really run, on gloo.
The second says whether what optimizers get is another one; it knows nothing of the first. What is installed is only read.
"""

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(ROOT / "python")]

import extracting
import running
from cases import FRAMEWORKS, cases_of
from mutants import Mutant, draw, mutants_of


def say(text):
    print("code-mutants: " + text, file=sys.stderr, flush=True)


def load(frameworks):
    """All that ranks would load each for itself."""
    from lockstep.extracting import ranks

    ranks.load()
    importlib_later = [framework.load for framework in frameworks]
    for one in importlib_later:
        one()


def judged(case, mutant, right, folder, ranks=None):
    """A row of the figures: what ranks that really run get, and what the extraction says."""
    begin = time.time()
    row = {"framework": case.framework.name, "case": case.name, "ranks": ranks or case.ranks, "mutant": asdict(mutant)}
    row["extracted"], row["said"] = extracting.extract(case, mutant, folder, ranks)
    row["seconds"] = round(time.time() - begin, 1)
    how, why, steps, _ = running.run(case, mutant, folder, limit=30)
    row["runs"], row["why"] = (running.compared(steps, right["plain"]), "") if how == running.SAME else (how, why)
    if row["runs"] == running.OTHER:  # is it what becomes of gradients, or what backward yields?
        how, why, steps, _ = running.run(case, mutant, folder, noise=True, limit=30)
        row["reduces"] = running.compared(steps, right["noise"]) if how == running.SAME else how
    return row


def baseline(case, folder):
    """What ranks get without a mutant, twice, and which lines of each file they run. None where the case is not right or says something else each time."""
    verdict, said = extracting.extract(case, None, folder, jobs=2)
    if verdict != extracting.MATCH:
        say("%s %s is not right: %s: %s" % (case.framework.name, case.name, verdict, said))
        return None
    right = {}
    for name, noise in (("plain", False), ("noise", True)):
        found = [running.run(case, None, folder, noise=noise) for _ in range(2)]
        if any(how != running.SAME for how, *_ in found) or running.compared(found[0][2], found[1][2]) != running.SAME:
            say("%s %s does not run, or not alike: %s" % (case.framework.name, case.name, [one[:2] for one in found]))
            return None
        right[name] = found[0][2]
    right["lines"] = {file: running.run(case, None, folder, file=file)[3] for file in case.framework.files}
    return right


class Pool:
    """So many processes at once, each of which writes one row."""

    def __init__(self, jobs, out):
        self.jobs, self.out, self.running, self.rows = jobs, out, {}, []

    def start(self, work):
        while len(self.running) >= self.jobs:
            self.wait()
        folder = tempfile.mkdtemp(prefix="lockstep-code-mutants-")
        child = os.fork()
        if child == 0:
            status = 1
            try:
                row = work(folder)
                with open(os.path.join(folder, "row.json"), "w", encoding="utf-8") as file:
                    json.dump(row, file)
                status = 0
            except BaseException as failure:
                say("%s: %s" % (type(failure).__name__, failure))
            finally:
                os._exit(status)
        self.running[child] = folder

    def wait(self):
        ended, status = os.wait()
        folder = self.running.pop(ended)
        if status == 0:
            row = json.loads(Path(folder, "row.json").read_text(encoding="utf-8"))
            self.rows.append(row)
            self.out.write(json.dumps(row) + "\n")
            self.out.flush()
        shutil.rmtree(folder, ignore_errors=True)

    def end(self):
        while self.running:
            self.wait()
        return self.rows


def wanted(row):
    return row["runs"] == running.OTHER


def measure(arguments):
    frameworks = [FRAMEWORKS[name] for name in arguments.framework or FRAMEWORKS]
    load(frameworks)
    rows = []
    for framework in frameworks:
        folder = tempfile.mkdtemp(prefix="lockstep-code-mutants-")
        cases = [(case, baseline(case, folder)) for case in cases_of(framework) if not arguments.case or case.name in arguments.case]
        shutil.rmtree(folder, ignore_errors=True)
        cases = [(case, right) for case, right in cases if right]
        say("%s: %d cases are right" % (framework.name, len(cases)))
        for file in framework.files:
            if arguments.file and arguments.file not in file:
                continue
            rows += measure_file(arguments, file, cases)
    return rows


def measure_file(arguments, file, cases):
    from planting import module_of

    lines = set().union(*(right["lines"][file] for _, right in cases))
    drawn = draw(mutants_of(file, Path(module_of(file).__file__).read_bytes()), lines, arguments.seed)
    say("%s: %d mutants on %d lines that are run" % (file, len(drawn), len(lines)))
    with open(arguments.output, "a", encoding="utf-8") as out:
        pool, end = Pool(arguments.jobs, out), time.time() + 60 * arguments.minutes
        for number, mutant in enumerate(drawn):
            if sum(map(wanted, pool.rows)) >= arguments.each or time.time() > end or number >= arguments.most:
                break
            there = [(case, right) for case, right in cases if mutant.line in right["lines"][file]]
            case, right = there[number % len(there)]
            pool.start(lambda folder, case=case, right=right, mutant=mutant: judged(case, mutant, right, folder))
        return pool.end()


def counted(rows):
    """The table, and who was not seen."""
    for file in sorted({row["mutant"]["file"] for row in rows}):
        own = [row for row in rows if row["mutant"]["file"] == file]
        print("\n%s: %d mutants" % (file, len(own)))
        for runs in (running.OTHER, running.DIES, running.HANGS, running.ROUNDED, running.SAME):
            for reduces in sorted({str(row.get("reduces")) for row in own if row["runs"] == runs}):
                those = [row for row in own if row["runs"] == runs and str(row.get("reduces")) == reduces]
                outcomes = {outcome: sum(row["extracted"] == outcome for row in those) for outcome in sorted({row["extracted"] for row in those})}
                print("  ranks get %s%s: %d: %s" % (runs, "" if reduces == "None" else " (of noise: %s)" % reduces, len(those), outcomes))
    for row in rows:
        seen = row["extracted"] in (extracting.MISMATCH, extracting.ERROR)
        if (row["runs"] in (running.SAME, running.ROUNDED)) == seen or row["extracted"] == extracting.UNDECIDED:
            print(shown(row))


def shown(row):
    mutant = Mutant(**row["mutant"])
    return "%s:%d %s: %s\n    %s: ranks get %s %s %s; extracted: %s %s" % (
        mutant.file.split("/")[-1], mutant.line, mutant.kind, mutant.said(), row["case"], row["runs"], row["why"], row.get("reduces", ""), row["extracted"], row["said"][:300])


def main():
    parser = argparse.ArgumentParser(prog="tools/code-mutants", description=__doc__.split("\n")[0])
    parser.add_argument("--framework", action="append", choices=list(FRAMEWORKS), help="of this framework alone (repeatable)")
    parser.add_argument("--file", help="of files alone whose name has this in it")
    parser.add_argument("--case", action="append", help="with this script alone (repeatable)")
    parser.add_argument("--each", type=int, default=30, metavar="N", help="so many of each file that change a gradient (default 30)")
    parser.add_argument("--most", type=int, default=10**6, metavar="N", help="at most so many of each file, whatever they change")
    parser.add_argument("--minutes", type=float, default=60, metavar="M", help="for each file at most (default 60)")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="which are drawn (default 1)")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="mutants at once (default 2)")
    parser.add_argument("-o", "--output", default=str(ROOT / "build" / "code-mutants.jsonl"), help="a line is added for each mutant (build/code-mutants.jsonl)")
    parser.add_argument("--read", action="store_true", help="only counts what is there")
    arguments = parser.parse_args()
    if arguments.read:
        rows = [json.loads(line) for line in Path(arguments.output).read_text(encoding="utf-8").splitlines()]
    else:
        rows = measure(arguments)
    counted(rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
