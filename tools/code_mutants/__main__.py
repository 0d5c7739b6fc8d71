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
from collections import Counter
from dataclasses import asdict
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(ROOT / "python")]

import document
import extracting
import running
from cases import FRAMEWORKS, cases_of
from mutants import Mutant, draw, is_python, mutants_of


def say(text):
    print("code-mutants: " + text, file=sys.stderr, flush=True)


def load(frameworks):
    """All that ranks would load each for itself."""
    from lockstep.extracting import ranks

    ranks.load()
    for framework in frameworks:
        framework.load()


def judged(case, mutant, right, folder, is_changing=False):
    """A row of the figures: what ranks that really run get, and what the extraction says. `is_changing`: it says nothing of those that change no gradient."""
    row = {"framework": case.framework.name, "case": case.name, "ranks": case.ranks, "mutant": asdict(mutant)}
    how, why, steps, _ = running.run(case, mutant, folder, limit=240)
    row["runs"], row["why"] = (running.compared(steps, right["plain"]), "") if how == running.SAME else (how, why)
    if is_changing and row["runs"] != running.OTHER:
        return row
    begin = time.time()
    row["extracted"], row["said"] = extracting.extract(case, mutant, folder, limit=300)
    row["seconds"] = round(time.time() - begin, 1)
    if row["runs"] == running.OTHER:  # is it what becomes of gradients, or what backward yields?
        how, why, steps, _ = running.run(case, mutant, folder, noise=True, limit=240)
        row["reduces"] = running.compared(steps, right["noise"]) if how == running.SAME else how
    return row


def baseline(case, folder):
    """What ranks get without a mutant, twice, and which lines of each file they run. None where the case is not right or says something else each time."""
    verdict, said = extracting.extract(case, None, folder, jobs=2)
    if verdict != extracting.MATCH:
        say("%s %s is not right: %s: %s" % (case.framework.name, case.name, verdict, said))
        return None
    right = {}
    traced, *found = [running.run(case, None, folder, files=case.framework.files), running.run(case, None, folder), running.run(case, None, folder, noise=True)]
    if any(how != running.SAME for how, *_ in (traced, *found)) or running.compared(traced[2], found[0][2]) != running.SAME:
        say("%s %s does not run, or not alike: %s" % (case.framework.name, case.name, [one[:2] for one in (traced, *found)]))
        return None
    right["plain"], right["noise"] = (one[2] for one in found)
    right["lines"] = {file: [{line for where, line in lines if where == file} for lines in traced[3]] for file in case.framework.files}
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
            if "extracted" in row:
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

    before, training = (set().union(*(right["lines"][file][place] for _, right in cases)) for place in (0, 1))
    text = Path(module_of(file).__file__).read_bytes()
    drawn = draw(mutants_of(file, text), training, before - training, arguments.seed)
    say("%s: %d mutants on %d lines that are run" % (file, len(drawn), len(training | before)))
    known = [path for path in (document.FIGURES, Path(arguments.output)) if path.exists()] if arguments.new else []
    measured = {document.key_of(Mutant(**row["mutant"])) for path in known for row in document.read(path)}
    with open(arguments.output, "a", encoding="utf-8") as out:
        pool, end = Pool(arguments.jobs, out), time.time() + 60 * arguments.minutes
        for number, mutant in enumerate(drawn):
            if sum(map(wanted, pool.rows)) >= arguments.each or time.time() > end or number >= arguments.most:
                break
            if not is_python(mutant, text) or document.key_of(mutant) in measured:
                continue
            by_place = [[one for one in cases if mutant.line in one[1]["lines"][file][place]] for place in (1, 0)]
            there = by_place[0] or by_place[1]
            case, right = there[number % len(there)]
            pool.start(lambda folder, case=case, right=right, mutant=mutant: judged(case, mutant, right, folder, arguments.changing))
        rows = pool.end()
    say("%s: %s" % (file, ", ".join("%d %s" % pair[::-1] for pair in sorted(Counter(row["runs"] for row in rows).items()))))
    return [row for row in rows if "extracted" in row]


def plain(text):
    return " ".join(text.split())


def known(file):
    """Mutants of which it is known what an extraction says: {"file", "case", "old", "new", "place" among those that
    are so, "extracted", "said"}; with nothing in "old" none. How many say something else."""
    from planting import module_of

    wanted = json.loads(Path(file).read_text(encoding="utf-8"))
    frameworks = [one for one in FRAMEWORKS.values() if any(row["file"] in one.files for row in wanted)]
    load(frameworks)
    others = 0
    for row in wanted:
        framework = next(one for one in frameworks if row["file"] in one.files)
        case = next(one for one in cases_of(framework) if one.name == row["case"])
        found = [one for one in mutants_of(row["file"], Path(module_of(row["file"]).__file__).read_bytes())
                 if plain(one.old) == row["old"] and plain(one.new) == row["new"]] [row["place"]:] if row["old"] else [None]
        folder = tempfile.mkdtemp(prefix="lockstep-code-mutants-")
        outcome, said = extracting.extract(case, found[0], folder, jobs=2) if found else ("no such mutant", "")
        shutil.rmtree(folder, ignore_errors=True)
        as_known = outcome == row["extracted"] and row["said"] in said
        others += not as_known
        print("%s: %s, `%s` becomes `%s`: %s: %s" % ("as known" if as_known else "ANOTHER", row["case"], row["old"], row["new"], outcome, said.split("\n")[0]), flush=True)
    return others


def at_size(arguments):
    """Mutants that change a gradient on few ranks, extracted at more."""
    there = [row for row in document.read(document.FIGURES) if row["runs"] == running.OTHER and row["ranks"] != arguments.at]
    frameworks = [FRAMEWORKS[name] for name in arguments.framework or FRAMEWORKS]
    load(frameworks)
    rows = []
    for framework in frameworks:
        for case in cases_of(framework):
            own = [row for row in there if row["framework"] == framework.name and row["case"] == case.name and (not arguments.case or case.name in arguments.case)]
            folder = tempfile.mkdtemp(prefix="lockstep-code-mutants-")
            verdict, said = extracting.extract(case, None, folder, arguments.at, jobs=2) if own else ("", "")
            shutil.rmtree(folder, ignore_errors=True)
            if verdict != extracting.MATCH:
                if own:
                    say("%s %s at %d ranks is not right: %s: %s" % (framework.name, case.name, arguments.at, verdict, said))
                continue
            with open(arguments.output, "a", encoding="utf-8") as out:
                pool = Pool(arguments.jobs, out)
                for row in own[:arguments.most]:
                    pool.start(lambda folder, row=row, case=case: extracted_at(case, row, folder, arguments.at))
                rows += pool.end()
    return rows


def again(arguments):
    """Those of the output that were a match or undecided, extracted again, after a change of lockstep: what ranks that run do does not depend on it."""
    there = [row for row in document.read(arguments.output) if row["extracted"] in (extracting.MATCH, extracting.UNDECIDED)]
    there.sort(key=lambda row: not document.is_survivor(row))
    there = there[:arguments.most]
    frameworks = [FRAMEWORKS[name] for name in sorted({row["framework"] for row in there})]
    load(frameworks)
    with open(arguments.output, "a", encoding="utf-8") as out:
        pool = Pool(arguments.jobs, out)
        for row in there:
            framework = FRAMEWORKS[row["framework"]]
            case = next(one for one in cases_of(framework) if one.name == row["case"])
            pool.start(lambda folder, row=row, case=case: extracted_at(case, row, folder, row["ranks"]))
        pool.end()
    return document.read(arguments.output)


def extracted_at(case, row, folder, ranks):
    begin = time.time()
    outcome, said = extracting.extract(case, Mutant(**row["mutant"]), folder, ranks, limit=300)
    return dict(row, ranks=ranks, extracted=outcome, said=said, seconds=round(time.time() - begin, 1))


def main():
    parser = argparse.ArgumentParser(prog="tools/code-mutants", description=__doc__.split("\n")[0],
                                     epilog="Exit status 1 where one that changes what becomes of a gradient is a match, or one that changes nothing is none.")
    parser.add_argument("--framework", action="append", choices=list(FRAMEWORKS), help="of this framework alone (repeatable)")
    parser.add_argument("--file", help="of files alone whose name has this in it")
    parser.add_argument("--case", action="append", help="with this script alone (repeatable)")
    parser.add_argument("--each", type=int, default=30, metavar="N", help="so many of each file that change a gradient (default 30)")
    parser.add_argument("--most", type=int, default=10**6, metavar="N", help="at most so many of each file, whatever they change")
    parser.add_argument("--minutes", type=float, default=60, metavar="M", help="for each file at most (default 60)")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="which are drawn (default 1)")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="mutants at once (default 2)")
    parser.add_argument("-o", "--output", default=str(ROOT / "build" / "code-mutants.jsonl"), help="a line is added for each mutant (build/code-mutants.jsonl)")
    parser.add_argument("--known", metavar="FILE", help="only extracts the mutants that the file lists; exit status 1 where one has another outcome")
    parser.add_argument("--at", type=int, metavar="RANKS", help="extracts those of tools/code_mutants/figures.jsonl that change a gradient at so many ranks")
    parser.add_argument("--new", action="store_true", help="leaves out those that are in tools/code_mutants/figures.jsonl, or in the output")
    parser.add_argument("--changing", action="store_true", help="only extracts those that change a gradient, and only writes these")
    parser.add_argument("--again", action="store_true", help="extracts again those of the output that were a match or undecided")
    parser.add_argument("--read", action="store_true", help="only counts what is there")
    parser.add_argument("--write", action="store_true", help="with --read: adds it to tools/code_mutants/figures.jsonl, and writes docs/code-mutants.md")
    arguments = parser.parse_args()
    if arguments.known:
        return 1 if known(arguments.known) else 0
    rows = document.read(arguments.output) if arguments.read else again(arguments) if arguments.again else at_size(arguments) if arguments.at else measure(arguments)
    if arguments.write:
        with open(document.FIGURES, "a", encoding="utf-8") as file:
            file.writelines(json.dumps(document.short(row)) + "\n" for row in rows)
        rows = document.read(document.FIGURES)
        document.FIGURES.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        document.write(rows)
    reasons = document.reasons()
    print(document.table(rows))
    print(document.listed(rows, reasons))
    return 1 if any(document.is_unexplained(row, reasons) for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
