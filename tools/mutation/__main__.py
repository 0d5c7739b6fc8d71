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
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

from build import Build
from mutants import apart
from tests import Tests

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ["schedule", "symbolic", "numeric", "mesh", "expression", "model"]
GOAL = 90  # percent


def say(text):
    print(f"lockstep: {text}", file=sys.stderr, flush=True)


def choose(found, count, seed):
    """`count` mutants that can live in one source; the same ones for the same sources and seed."""
    found = sorted(found, key=lambda m: (m.file, m.begin, m.end, m.kind, m.new))
    random.Random(seed).shuffle(found)
    chosen = {}
    for mutant in found:
        if sum(map(len, chosen.values())) == count:
            break
        of_file = chosen.setdefault(mutant.file, [])
        if apart(mutant, of_file):
            of_file.append(mutant)
    result = sorted((m for of_file in chosen.values() for m in of_file), key=lambda m: (m.file, m.begin))
    for id, mutant in enumerate(result, 1):
        mutant.id = id
    return result


def describe(mutant):
    change = f"without: {mutant.old};" if mutant.statement else f"{mutant.old}  →  {mutant.new}"
    return f"{mutant.file}:{mutant.line}: {mutant.kind}: {change}"


def run(chosen, tests, jobs, minutes, out):
    """{mutant: (test, how)} of those that were tried before the time was over."""
    results, lock = {}, threading.Lock()
    end = time.monotonic() + 60 * minutes
    order = list(chosen)
    random.Random(0).shuffle(order)  # so that a run that is cut short has seen every folder

    def one(mutant):
        if time.monotonic() > end:
            return
        caught = tests.catch(mutant)
        with lock:
            results[mutant.id] = caught
            (out / "results.json").write_text(json.dumps(
                [{**asdict(m), "caught_by": results[m.id][0], "how": results[m.id][1]}
                 for m in chosen if m.id in results], indent=1))
            if not caught[0]:
                say(f"survives ({caught[1] or 'reached'}): {describe(mutant)}")
            elif len(results) % 25 == 0:
                say(f"{len(results)} of {len(chosen)}")

    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(one, order))
    return results


def print_tables(chosen, results, tests):
    tried = [mutant for mutant in chosen if mutant.id in results]
    caught = [mutant for mutant in tried if results[mutant.id][0]]
    print(f"\n{'':<24} {'mutants':>8} {'caught':>8}")
    for what, key in (("folder", lambda m: m.file.split("/")[1]), ("kind", lambda m: m.kind)):
        for name in sorted({key(m) for m in tried}):
            whole = [m for m in tried if key(m) == name]
            part = [m for m in caught if key(m) == name]
            print(f"{what + ' ' + name:<24} {len(whole):>8} {100 * len(part) / len(whole):>6.0f} %")
    print("\ncaught by")
    for name, count in Counter(results[mutant.id][0] for mutant in caught).most_common():
        print(f"  {count:>4}  {name}")
    for test in tests.left_out:
        print(f"left out, since it fails without any mutant: {test.name}")
    print("\nsurvivors")
    for mutant in tried:
        if not results[mutant.id][0]:
            print(f"  {describe(mutant)}" + (f" ({results[mutant.id][1]})" if results[mutant.id][1] else ""))
    share = 100 * len(caught) / len(tried) if tried else 0
    print(f"\n{len(tried)} of {len(chosen)} mutants tried, {len(caught)} caught: {share:.1f} % (goal {GOAL} %)")
    return share


def main():
    parser = argparse.ArgumentParser(prog="tools/mutate", description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=Path, required=True, help="a finished build of all programs")
    parser.add_argument("--count", type=int, default=300, help="how many mutants (default 300)")
    parser.add_argument("--seed", type=int, default=1, help="which ones (default 1)")
    parser.add_argument("--folder", action="append", choices=FOLDERS, help="only sources of this folder")
    parser.add_argument("--only", metavar="TEXT", help="only mutants whose line in the list of survivors contains this")
    parser.add_argument("--minutes", type=float, default=1e6, help="stop trying further mutants after this time")
    parser.add_argument("--oracle", type=int, default=200, help="scenarios for the oracle (default 200)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="mutants at a time (default: processors)")
    parser.add_argument("--python", default=sys.executable, help="a Python with pytest (default: this one)")
    parser.add_argument("--list", action="store_true", help="print the mutants and end")
    options = parser.parse_args()
    out = options.build / "mutation"
    out.mkdir(exist_ok=True)

    build = Build(ROOT, options.build, out, options.folder or FOLDERS, options.jobs)
    found = build.find_mutants()
    chosen = choose(found, options.count, options.seed)
    say(f"{len(chosen)} of {len(found)} mutants in {len(build.sources)} sources")
    if options.list:
        print("\n".join(map(describe, chosen)))
        return 0
    say("compiling…")
    chosen = build.compile(chosen)
    tests = Tests(ROOT, options.build, out, options.oracle, options.python)
    build.link(tests.targets)
    say(f"{len(chosen)} compile; running every test without a mutant…")
    tests.measure()
    for test in tests.left_out:
        say(f"left out, since it fails without any mutant: {test.name}")
    if any(test in tests.left_out for test in tests.unit):
        say("unit tests fail without any mutant, so nothing can be learned")
        return 3
    if options.only:
        chosen = [mutant for mutant in chosen if options.only in describe(mutant)]
    results = run(chosen, tests, options.jobs, options.minutes, out)
    return 0 if print_tables(chosen, results, tests) >= GOAL else 1


if __name__ == "__main__":
    sys.exit(main())
