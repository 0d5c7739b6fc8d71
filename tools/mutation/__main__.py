# SPDX-License-Identifier: Apache-2.0
"""Breaks lockstep in many ways, one at a time, and asks which test notices (tools/mutate calls this).

All mutants are compiled into one set of programs, in which an environment variable chooses one. The sources themselves
are only read.
"""

import argparse
import json
import os
import random
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

import document
from build import Build
from document import describe, read_reasons
from folders import ROOT, all_folders, folder_of
from mutants import SYMMETRIC, Mutant, apart, identity
from tests import INNER, LONGEST, OUTER, STAGES, Tests

BELIEVED = "believed to be equivalent"
CUT_OFF = "not tried to the end"
SPARE = 10  # mutants of a folder that are drawn beside, for those that do not compile
MOST_EACH = 500  # mutants of a folder: each folder has numbers of its own, so that its objects do not depend on the others


def say(text):
    print(f"lockstep: {text}", file=sys.stderr, flush=True)


def choose(found, count, seed):
    """`count` mutants that can live in one source, in the order in which they were drawn, as many of one file as of another
    where it has them; the same ones for the same sources and seed. A file draws for itself, so that one that changes leaves
    the draw of the others as it was."""
    waiting = {}
    for mutant in sorted(found, key=lambda m: (m.file, m.begin, m.end, m.kind, m.new)):
        waiting.setdefault(mutant.file, []).append(mutant)
    generators = {file: random.Random(f"{file} {seed}") for file in waiting}
    files = sorted(waiting, key=lambda file: generators[file].random())  # the last round need not reach all of them
    for file in files:
        generators[file].shuffle(waiting[file])
    chosen, of_file = [], {file: [] for file in files}
    while len(chosen) < count and any(waiting.values()):
        for file in files:
            while len(chosen) < count and waiting[file]:
                mutant = waiting[file].pop()
                if mutant.function not in SYMMETRIC and apart(mutant, of_file[file]):
                    of_file[file].append(mutant)
                    chosen.append(mutant)
                    break
    return chosen


def choose_each(found, count, seed):
    """{folder: `count` mutants of it, numbered}. The draw of a folder does not depend on which others are measured."""
    folders = all_folders()
    result = {folder: choose(of_folder, count, seed) for folder, of_folder in found.items()}
    for folder, chosen in result.items():
        for id, mutant in enumerate(sorted(chosen, key=lambda m: (m.file, m.begin)), 1 + MOST_EACH * folders.index(folder)):
            mutant.id = id
    return result


def first_of_each(drawn, compiled, count):
    """(the first `count` of each folder that compile, {folder: how many before them did not})."""
    kept, dropped, compiled = [], {}, {mutant.id for mutant in compiled}
    for folder, of_folder in drawn.items():
        good = [at for at, mutant in enumerate(of_folder) if mutant.id in compiled][:count]
        kept += sorted((of_folder[at] for at in good), key=lambda mutant: mutant.id)
        dropped[folder] = (good[-1] + 1 if len(good) == count else len(of_folder)) - len(good)
    return kept, dropped


def earlier_results(file, chosen, with_survivors):
    """{id: (test, how)} of an earlier run."""
    if not file.exists():
        return {}
    ids = {identity(mutant): mutant.id for mutant in chosen}
    results, reasons = {}, read_reasons()
    for entry in json.loads(file.read_text()):
        mutant = Mutant(**entry["mutant"])
        id = ids.get(identity(mutant))
        if id and (entry["caught_by"] or with_survivors or describe(mutant) in reasons):
            results[id] = (entry["caught_by"], entry["how"])
    return results


def run(chosen, tests, jobs, minutes, files, results):
    """Adds {mutant: (test, how)} of those that were tried before the time was over to `results`, and writes `files`, one for
    each folder. What only the quick tests have met by then counts as a survivor."""
    lock = threading.Lock()
    end = time.monotonic() + 60 * minutes
    met_quick_tests = set()

    def save(folder):
        files[folder].write_text(json.dumps([
            {"mutant": asdict(m), "caught_by": results[m.id][0], "how": results[m.id][1]}
            for m in chosen if m.id in results and folder_of(m.file) == folder], indent=1))

    def one(task):
        mutant, stage = task
        if time.monotonic() > end:
            return
        caught = tests.catch(mutant, stage)
        if not caught[0] and stage + 1 < STAGES:
            met_quick_tests.add(mutant.id)
            return
        with lock:
            results[mutant.id] = caught
            save(folder_of(mutant.file))
            if not caught[0]:
                say(f"survives ({caught[1] or 'reached'}): {describe(mutant, line=True)}")
            elif len(results) % 25 == 0:
                say(f"{len(results)} of {len(chosen)}")

    with ThreadPoolExecutor(jobs) as pool:
        for folder in files:  # so that a run that is cut short has measured some of them whole
            of_folder = [mutant for mutant in chosen if folder_of(mutant.file) == folder]
            for stage in range(STAGES):
                list(pool.map(one, [(mutant, stage) for mutant in of_folder if mutant.id not in results]))
    for mutant in chosen:
        if mutant.id not in results and mutant.id in met_quick_tests:
            results[mutant.id] = (None, CUT_OFF)  # not kept in the file: --resume goes on with it
            say(f"no test has caught it in the time that there was: {describe(mutant, line=True)}")


def measured(options, build, found, dropped, chosen, results):
    """{folder: what figures.json keeps} of those folders of which every mutant was tried."""
    result = {}
    for folder in build.folders:
        of_folder = [mutant for mutant in chosen if folder_of(mutant.file) == folder]
        tried = [mutant for mutant in of_folder if mutant.id in results]
        if len(tried) < len(of_folder):
            say(f"{folder}: {len(tried)} of {len(of_folder)} mutants tried, which is not counted as measured")
            continue
        result[folder] = document.figures_of(ROOT, tried, results, {
            "seed": options.seed, "draw": document.DRAW, "believed": sum(results[mutant.id][1] in (BELIEVED, CUT_OFF) for mutant in tried), "found": len(found[folder]), "sources": sum(folder_of(name) == folder for name in build.sources),
            "dropped": dropped[folder]})
    return result


def main():
    parser = argparse.ArgumentParser(prog="tools/mutate", description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=Path, required=True, help="a finished build of all programs")
    parser.add_argument("--each", type=int, default=40, help="how many mutants of each folder (default 40)")
    parser.add_argument("--seed", type=int, default=1, help="which ones (default 1)")
    parser.add_argument("--folder", action="append", choices=all_folders(), metavar="NAME", help="only this folder of src (repeatable)")
    parser.add_argument("--only", metavar="TEXT", help="only mutants whose line in the list of survivors contains this")
    parser.add_argument("--minutes", type=float, default=1e6, help="stop trying further mutants after this time")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="mutants at a time (default: processors)")
    parser.add_argument("--python", default=sys.executable, help="a Python with pytest (default: this one)")
    parser.add_argument("--resume", action="store_true", help="go on with an earlier run of the same mutants")
    parser.add_argument("--retry", action="store_true", help="the same, and try those survivors again for which no reason is given")
    parser.add_argument("--tests", action="append", default=[], metavar="TEXT",
                        help="with --retry: only tests whose name contains this, where no others were written since (repeatable)")
    parser.add_argument("--believe", action="store_true",
                        help="do not try mutants whose reason says that they are equivalent, which takes longest")
    parser.add_argument("--write", action="store_true", help="write into docs/mutation.md what was measured")
    parser.add_argument("--beside", action="store_true",
                        help="with --write: adds the share in a sentence, as that of another seed than the page's")
    parser.add_argument("--list", action="store_true", help="print the mutants and end")
    options = parser.parse_args()
    if options.write and options.only:
        parser.error("--write needs all mutants of a folder, without --only")
    if options.tests and not options.retry:
        parser.error("--tests needs --retry: what was not tried before has to meet every test")
    if not 0 < options.each < MOST_EACH - SPARE:
        parser.error(f"--each must be from 1 to {MOST_EACH - SPARE - 1}")
    out = options.build / "mutation"
    out.mkdir(exist_ok=True)

    build = Build(ROOT, options.build, out, [f for f in all_folders() if f in (options.folder or all_folders())], options.jobs)
    found = build.find_mutants()
    drawn = choose_each(found, options.each + SPARE, options.seed)
    say(f"{options.each} of each folder's mutants, {sum(map(len, found.values()))} in {len(build.sources)} sources")
    if options.list:
        print("\n".join(describe(mutant, line=True) for of_folder in drawn.values() for mutant in of_folder[:options.each]))
        return 0
    say("compiling…")
    compiled = build.compile([mutant for of_folder in drawn.values() for mutant in of_folder])
    chosen, dropped = first_of_each(drawn, compiled, options.each)
    say(f"{sum(dropped.values())} of them do not compile; running every test without a mutant…")
    tests = Tests(ROOT, options.build, out, options.python, chosen, build.link, options.tests)
    whole = tests.measure()
    for test, why in tests.left_out:
        say(f"left out, since it {why}: {test.name}")
    if not whole:
        say("unit tests fail without any mutant, so nothing can be learned")
        return 3
    for test in tests.all:
        say(f"{test.seconds:7.2f} s  {len(test.reaches):>4} mutants reached by {test.name}")
    tried = [mutant for mutant in chosen if not options.only or options.only in describe(mutant, line=True)]
    files = {folder: out / f"results-{folder.replace('/', '-')}.json" for folder in build.folders}
    results = {}
    if options.resume or options.retry:
        for file in files.values():
            results.update(earlier_results(file, chosen, not options.retry))
    if options.tests:
        known = {id for file in files.values() for id in earlier_results(file, chosen, True)}
        if any(mutant.id not in known for mutant in tried):
            say("some of these mutants were not tried before, and have to meet every test: leave out --tests")
            return 3
    if options.believe:
        reasons = read_reasons()
        results.update({mutant.id: (None, BELIEVED) for mutant in tried
                        if mutant.id not in results and reasons.get(describe(mutant), "").startswith(document.EQUIVALENT)})
    run(tried, tests, options.jobs, options.minutes, files, results)
    if options.only:
        return int(any(not results[mutant.id][0] for mutant in tried if mutant.id in results))
    figures = measured(options, build, found, dropped, chosen, results)
    if not figures:
        return 3
    document.print_tables(figures)
    if options.write:
        document.write(ROOT, figures, options.beside, INNER, OUTER, LONGEST)
    reasons = read_reasons()
    return int(any(document.misses(folder, of_folder, reasons) for folder, of_folder in figures.items()))


if __name__ == "__main__":
    sys.exit(main())
