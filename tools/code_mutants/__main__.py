# SPDX-License-Identifier: Apache-2.0
"""Breaks the code of frameworks in many ways, one at a time, and asks whether an extraction sees it (tools/code-mutants calls this).

Each mutant is run twice, with a script that is right and that runs the line: by `lockstep extract` and `lockstep check`, and by ranks that really run, on gloo.
The second says whether what optimizers get is another one; it knows nothing of the first. What is installed is only read.
"""

import argparse
import gc
import hashlib
import json
import os
import pickle
import shutil
import sys
import tempfile
import time
from collections import Counter
from dataclasses import asdict
from importlib.metadata import distributions
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(ROOT / "python")]

import document
import extracting
import running
from cases import FRAMEWORKS, cases_of
from mutants import Mutant, draw, mutants_of
from planting import PREPARED, module_of, plant, prepare


def say(text):
    print("code-mutants: " + text, file=sys.stderr, flush=True)


def load(frameworks):
    """All that ranks would load each for itself."""
    from lockstep.extracting import ranks

    ranks.load()
    for framework in frameworks:
        framework.load()
        for file in framework.files:
            if file not in PREPARED:  # what is frozen below is found once
                prepare(file)
    gc.freeze()  # forks need not copy what a collection of garbage only looks through


def run(cases, mutant, folder):
    """A row of the figures: what ranks that really run get with the first of these scripts whose gradients the mutant changes, or with the last."""
    plant(mutant)
    for number, (case, right) in enumerate(cases, 1):
        row = {"framework": case.framework.name, "case": case.name, "ranks": case.ranks, "mutant": asdict(mutant), "tried": [one.name for one, _ in cases[:number]]}
        how, why, steps, _ = running.run(case, folder, limit=240)
        row["runs"], row["why"] = (running.compared(steps, right["plain"]), "") if how == running.SAME else (how, why)
        if row["runs"] == running.OTHER:  # is it what becomes of gradients, or what backward yields?
            how, why, steps, _ = running.run(case, folder, noise=True, limit=240)
            row["reduces"] = running.compared(steps, right["noise"]) if how == running.SAME else how
        if row["runs"] not in (running.SAME, running.ROUNDED):
            break
    return row


def baseline(case, folder):
    """What ranks get without a mutant, and which lines of each file they run. None where they get something else each time."""
    right = {}
    traced, *found = [running.run(case, folder, files=case.framework.files), running.run(case, folder), running.run(case, folder, noise=True)]
    if any(how != running.SAME for how, *_ in (traced, *found)) or running.compared(traced[2], found[0][2]) != running.SAME:
        say("%s %s does not run, or not alike: %s" % (case.framework.name, case.name, [one[:2] for one in (traced, *found)]))
        return None
    right["plain"], right["noise"] = (one[2] for one in found)
    right["lines"] = {file: [{line for where, line in lines if where == file} for lines in traced[3]] for file in case.framework.files}
    return right


def installed():
    """The names and versions of all packages."""
    return sorted({(one.name, one.version) for one in distributions()})


def baselines(cases, folder):
    """[(case, baseline)] of those that have one. They are kept in the folder for as long as script, tool, files and what is installed are what they were."""
    os.makedirs(folder, exist_ok=True)
    found = []
    for case in cases:
        sources = [Path(case.script), HERE / "running.py", *(Path(module_of(file).__file__) for file in case.framework.files)]
        rest = repr((case.arguments, case.ranks, case.calls, installed()))
        name = hashlib.sha256(b"".join(one.read_bytes() for one in sources) + rest.encode()).hexdigest()[:16]
        path = os.path.join(folder, "%s-%s.pickle" % (case.framework.name, name))
        if os.path.exists(path):
            right = pickle.loads(Path(path).read_bytes())
        else:
            with tempfile.TemporaryDirectory(prefix="lockstep-code-mutants-") as own:
                right = baseline(case, own)
            if right:  # what took too long once may run the next time
                with open(path + ".part", "wb") as file:
                    pickle.dump(right, file)
                os.rename(path + ".part", path)
        if right:
            found.append((case, right))
    return found


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
        cases = baselines([case for case in cases_of(framework) if not arguments.case or case.name in arguments.case], os.path.join(os.path.dirname(arguments.output), "code-mutants"))
        say("%s: %d cases run" % (framework.name, len(cases)))
        for file in framework.files:
            if not arguments.file or arguments.file in file:
                rows += measure_file(arguments, file, cases)
    if arguments.run:
        return rows
    drawn = {document.place_of(row) for row in rows}
    return [row for row in extract_rest(arguments) if document.place_of(row) in drawn]


def measured(paths, file):
    """By mutant of the file: the scripts with which it was run and changed nothing, or None where it changed something, or ended in an error."""
    found = {}
    for row in [row for path in paths if path.exists() for row in document.read(path)]:
        if row["mutant"]["file"] == file:
            key = document.key_of(Mutant(**row["mutant"]))
            changes = row["runs"] not in (running.SAME, running.ROUNDED) or found.get(key, ()) is None
            found[key] = None if changes else found.get(key, set()) | {row["case"], *row.get("tried", ())}
    return found


def measure_file(arguments, file, cases):
    before, training = (set().union(*(right["lines"][file][place] for _, right in cases)) for place in (0, 1))
    text = Path(module_of(file).__file__).read_bytes()
    found = mutants_of(file, text)
    drawn = draw(found, training, before - training, arguments.seed)
    say("%s: %d mutants, %d on %d lines that are run, %d on those that training runs" %
        (file, len(found), len(drawn), len(training | before), sum(one.line in training for one in drawn)))
    known = measured([document.FIGURES, Path(arguments.output)], file) if arguments.new else {}
    with open(arguments.output, "a", encoding="utf-8") as out:
        pool, end = Pool(arguments.jobs, out), time.time() + 60 * arguments.minutes
        for number, mutant in enumerate(drawn):
            if sum(map(wanted, pool.rows)) >= arguments.each or time.time() > end or number >= arguments.most:
                break
            done = known.get(document.key_of(mutant), set())
            by_place = [[one for one in cases if mutant.line in one[1]["lines"][file][place]] for place in (1, 0)]
            there = by_place[0] or by_place[1]
            there = there[number % len(there):] + there[:number % len(there)]
            there = [] if done is None else [one for one in there if one[0].name not in done][:max(0, arguments.scripts - len(done))]
            if there:
                pool.start(lambda folder, there=there, mutant=mutant: run(there, mutant, folder))
        rows = pool.end()
    say("%s: %s" % (file, ", ".join("%d %s" % pair[::-1] for pair in sorted(Counter(row["runs"] for row in rows).items()))))
    return rows


def plain(text):
    return " ".join(text.split())


def known(file):
    """Mutants of which it is known what an extraction says: {"file", "case", "old", "new", "place" among those that
    are so, "extracted", "said"}; with nothing in "old" none. How many say something else."""
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


def extract_rest(arguments):
    """Those of the output that no extraction has seen: all, or those alone that change a gradient."""
    return extracted(arguments, [row for row in document.read(arguments.output) if "extracted" not in row and (wanted(row) or not arguments.changing)])


def again(arguments):
    """Those of the output that were a match or undecided, extracted again, after a change of lockstep: what ranks that run do does not depend on it."""
    return extracted(arguments, [row for row in document.read(arguments.output) if row.get("extracted") in (extracting.MATCH, extracting.UNDECIDED)])


def extracted(arguments, there):
    """The output, with these of its rows extracted, of each script whose right code is a match."""
    there = [row for row in there if (not arguments.framework or row["framework"] in arguments.framework) and (not arguments.case or row["case"] in arguments.case)
             and (not arguments.file or arguments.file in row["mutant"]["file"])]
    there = sorted(there, key=lambda row: not wanted(row))[:arguments.most]
    frameworks = [FRAMEWORKS[name] for name in sorted({row["framework"] for row in there})]
    load(frameworks)
    with open(arguments.output, "a", encoding="utf-8") as out:
        pool, end = Pool(arguments.jobs, out), time.time() + 60 * arguments.minutes
        for case in [case for framework in frameworks for case in cases_of(framework)]:
            own = [row for row in there if (row["framework"], row["case"]) == (case.framework.name, case.name)]
            if not own or time.time() > end:
                continue
            with tempfile.TemporaryDirectory(prefix="lockstep-code-mutants-") as folder:
                verdict, said = extracting.extract(case, None, folder, jobs=arguments.jobs)
            if verdict != extracting.MATCH:
                say("%s %s is not right: %s: %s" % (case.framework.name, case.name, verdict, said))
                continue
            for row in own:
                if time.time() < end:
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
    parser.add_argument("--scripts", type=int, default=1, metavar="N", help="of a mutant that changes nothing so many scripts are tried that run its line (default 1)")
    parser.add_argument("--run", action="store_true", help="only runs them; --extract goes on with what is in the output")
    parser.add_argument("--extract", action="store_true", help="extracts those of the output that were only run")
    parser.add_argument("--changing", action="store_true", help="only extracts those that change a gradient")
    parser.add_argument("--again", action="store_true", help="extracts again those of the output that were a match or undecided")
    parser.add_argument("--read", action="store_true", help="only counts what is there")
    parser.add_argument("--write", action="store_true", help="with --read: adds it to tools/code_mutants/figures.jsonl, and writes docs/code-mutants.md")
    arguments = parser.parse_args()
    if arguments.known:
        return 1 if known(arguments.known) else 0
    rows = document.read(arguments.output) if arguments.read else extract_rest(arguments) if arguments.extract else again(arguments) if arguments.again else at_size(arguments) if arguments.at else measure(arguments)
    if arguments.write:
        rows = [row for row in rows if "extracted" in row]
        with open(document.FIGURES, "a", encoding="utf-8") as file:
            file.writelines(json.dumps(document.short(row)) + "\n" for row in rows)
        rows = document.read(document.FIGURES)
        document.FIGURES.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        document.write(rows)
    reasons, rows = document.reasons(), [row for row in rows if "extracted" in row]
    print(document.table(rows))
    print(document.listed(rows, reasons))
    return 1 if any(document.is_unexplained(row, reasons) for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
