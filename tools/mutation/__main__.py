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

from build import Build
from document import GOAL, describe, print_tables, read_reasons, write
from mutants import SYMMETRIC, Mutant, apart
from tests import STAGES, Tests, processor_seconds

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ["mesh", "expression", "model", "schedule", "symbolic", "numeric", "diagnosis"]


def say(text):
    print(f"lockstep: {text}", file=sys.stderr, flush=True)


def choose(found, count, seed):
    """`count` mutants that can live in one source, as many of one file as of another where it has them; the same ones for
    the same sources and seed."""
    generator = random.Random(seed)
    waiting = {}
    for mutant in sorted(found, key=lambda m: (m.file, m.begin, m.end, m.kind, m.new)):
        waiting.setdefault(mutant.file, []).append(mutant)
    for of_file in waiting.values():
        generator.shuffle(of_file)
    files = list(waiting)
    generator.shuffle(files)  # the last round need not reach all of them
    chosen = {file: [] for file in files}
    missing = count
    while missing and any(waiting.values()):
        for file in files:
            while missing and waiting[file]:
                mutant = waiting[file].pop()
                if mutant.function not in SYMMETRIC and apart(mutant, chosen[file]):
                    chosen[file].append(mutant)
                    missing -= 1
                    break
    result = sorted((m for of_file in chosen.values() for m in of_file), key=lambda m: (m.file, m.begin))
    for id, mutant in enumerate(result, 1):
        mutant.id = id
    return result


def identity(mutant):
    return [mutant.file, mutant.kind, mutant.begin, mutant.end, mutant.new]


def earlier_results(file, chosen, with_survivors):
    """({id: (test, how)} of an earlier run, the processor time it took)."""
    if not file.exists():
        return {}, 0.0
    earlier = json.loads(file.read_text())
    ids = {tuple(identity(mutant)): mutant.id for mutant in chosen}
    results, reasons = {}, read_reasons()
    for entry in earlier["mutants"]:
        id = ids.get(tuple(identity(Mutant(**entry["mutant"]))))
        if id and (entry["caught_by"] or with_survivors or describe(Mutant(**entry["mutant"])) in reasons):
            results[id] = (entry["caught_by"], entry["how"])
    return results, earlier["processor_seconds"]


def run(chosen, tests, jobs, minutes, file, results, seconds):
    """Adds {mutant: (test, how)} of those that were tried before the time was over to `results`, and writes `file`."""
    lock = threading.Lock()
    end = time.monotonic() + 60 * minutes
    order = [mutant for mutant in chosen if mutant.id not in results]
    random.Random(0).shuffle(order)  # so that a run that is cut short has seen every folder

    def save():
        file.write_text(json.dumps({
            "processor_seconds": seconds + processor_seconds(),
            "mutants": [{"mutant": asdict(m), "caught_by": results[m.id][0], "how": results[m.id][1]}
                        for m in chosen if m.id in results],
        }, indent=1))

    def one(task):
        mutant, stage = task
        if time.monotonic() > end:
            return
        caught = tests.catch(mutant, stage)
        if not caught[0] and stage + 1 < STAGES:
            return
        with lock:
            results[mutant.id] = caught
            save()
            if not caught[0]:
                say(f"survives ({caught[1] or 'reached'}): {describe(mutant, line=True)}")
            elif len(results) % 25 == 0:
                say(f"{len(results)} of {len(chosen)}")

    with ThreadPoolExecutor(jobs) as pool:
        for stage in range(STAGES):
            list(pool.map(one, [(mutant, stage) for mutant in order if mutant.id not in results]))
    save()


def main():
    parser = argparse.ArgumentParser(prog="tools/mutate", description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=Path, required=True, help="a finished build of all programs")
    parser.add_argument("--count", type=int, default=310, help="how many mutants (default 310)")
    parser.add_argument("--seed", type=int, default=1, help="which ones (default 1)")
    parser.add_argument("--folder", action="append", choices=FOLDERS, help="only sources of this folder")
    parser.add_argument("--only", metavar="TEXT", help="only mutants whose line in the list of survivors contains this")
    parser.add_argument("--minutes", type=float, default=1e6, help="stop trying further mutants after this time")
    parser.add_argument("--oracle", type=int, default=200, help="scenarios for the oracle (default 200)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="mutants at a time (default: processors)")
    parser.add_argument("--python", default=sys.executable, help="a Python with pytest (default: this one)")
    parser.add_argument("--resume", action="store_true", help="go on with an earlier run of the same mutants")
    parser.add_argument("--retry", action="store_true", help="the same, and try those survivors again for which no reason is given")
    parser.add_argument("--write", action="store_true", help="write docs/mutation.md anew")
    parser.add_argument("--list", action="store_true", help="print the mutants and end")
    options = parser.parse_args()
    if options.write and (options.folder or options.only or options.minutes < 1e6):
        parser.error("--write needs a whole run, without --folder, --only and --minutes")
    out = options.build / "mutation"
    out.mkdir(exist_ok=True)

    build = Build(ROOT, options.build, out, options.folder or FOLDERS, options.jobs)
    found = build.find_mutants()
    chosen = choose(found, options.count, options.seed)
    say(f"{len(chosen)} of {len(found)} mutants in {len(build.sources)} sources")
    if options.list:
        print("\n".join(describe(mutant, line=True) for mutant in chosen))
        return 0
    say("compiling…")
    wanted = len(chosen)
    chosen = build.compile(chosen)
    tests = Tests(ROOT, options.build, out, options.oracle, options.python)
    build.link(tests.targets)
    say(f"{len(chosen)} compile; running every test without a mutant…")
    whole = tests.measure()
    for test in tests.left_out:
        say(f"left out, since it fails without any mutant: {test.name}")
    if not whole:
        say("unit tests fail without any mutant, so nothing can be learned")
        return 3
    for test in tests.all:
        say(f"{test.seconds:7.2f} s  {len(test.reaches):>4} mutants reached by {test.name}")
    if options.only:
        chosen = [mutant for mutant in chosen if options.only in describe(mutant, line=True)]
    results, seconds = (earlier_results(out / "results.json", chosen, not options.retry)
                        if options.resume or options.retry else ({}, 0.0))
    run(chosen, tests, options.jobs, options.minutes, out / "results.json", results, seconds)
    share = print_tables(chosen, results, tests)
    if options.write:
        seconds = json.loads((out / "results.json").read_text())["processor_seconds"]
        command = "tools/mutate --write" + "".join(
            f" --{name} {getattr(options, name)}" for name in ("count", "seed", "oracle")
            if getattr(options, name) != parser.get_default(name))
        without = write(ROOT, chosen, results, {
            "command": command, "seed": options.seed, "found": len(found), "sources": len(build.sources),
            "dropped": wanted - len(chosen), "oracle": options.oracle,
            "minutes": None if options.retry else seconds / 60})
        for mutant in without:
            say(f"no reason in tools/mutation/reasons.txt: {describe(mutant)}")
        if without:
            return 1
    return 0 if share >= GOAL else 1


if __name__ == "__main__":
    sys.exit(main())
