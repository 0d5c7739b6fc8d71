#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the printed proofs of all scenarios, or of those that are named, with the second checker, against the scenarios
themselves; with --lies, that lies in them are found; or, with --oracle, what proofs say of single layouts with replays of
every rank. tools/proofs calls this.

Exit status 1 if a proof does not follow, if more is taken from proofs than is known, if a lie is not found, or if a replay
has another verdict.
"""

import argparse
import json
import os
import random
import subprocess
import sys
from collections import Counter
from fractions import Fraction
from pathlib import Path

import lies
import replays
from functions import WrongProof
from program import Scenario
from whole import Counts, check_whole

# So much is taken from the proofs of the corpus, instead of derived from the scenario: it must not grow.
MOST_TAKEN = 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, prog="tools/proofs")
    parser.add_argument("files", nargs="*", type=Path, help="scenarios; default: all of the corpus that fit one host")
    parser.add_argument("--open", default="all", metavar="AXES", help="what proofs open beside what the layout names, \"\" for nothing; default all")
    parser.add_argument("--lies", type=int, default=0, help="tells so many lies in each proof, which must be found")
    parser.add_argument("--oracle", action="store_true", help="compare the verdicts at single layouts with replays instead")
    parser.add_argument("--sizes", type=int, default=1 << 20, help="with --oracle: layouts of each scenario, at most; default all to 4")
    parser.add_argument("--layouts", type=int, default=20, help="with --oracle: layouts of each framework of the sweep")
    parser.add_argument("--schedules", type=int, default=10000, help="with --oracle: random schedules")
    parser.add_argument("--seed", type=int, default=1, help="of everything that is drawn")
    arguments = parser.parse_args()
    if arguments.oracle:
        return 0 if replays.run(arguments.sizes, arguments.layouts, arguments.schedules, arguments.seed) else 1
    return check(arguments)


def check(arguments):
    files = arguments.files or replays.corpus()
    wrong, counts, lied = [], Counts(), Counter()
    for number, path in enumerate(files):
        if sys.stderr.isatty():
            print(f"\r\033[K{number + 1} of {len(files)}: {path.name}", end="", file=sys.stderr, flush=True)
        done = subprocess.run([os.environ["LOCKSTEP_BINARY"], "prove", "-f", "json", "--proof", *(["--open", arguments.open] if arguments.open else []), str(path)],
                              capture_output=True, text=True, check=False)
        if not done.stdout:
            continue  # it is no valid scenario, as some of the corpus are meant not to be
        scenario = Scenario(path)
        try:
            check_whole(json.loads(done.stdout, parse_float=Fraction), scenario, counts, random.Random(arguments.seed))
        except WrongProof as error:
            wrong.append(f"{path}: {error}")
        for lie in range(arguments.lies):
            wrong += tell(done.stdout, scenario, random.Random(f"{arguments.seed} {path} {lie}"), lied)
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr)
    print("\n".join([*wrong, f"counted: {counts}", *counts.taken.lines()]))
    if arguments.lies:
        print(f"counted: {sum(lied.values())} lies told: {dict(sorted(lied.items()))}")
    return 1 if wrong or counts.taken.count() > MOST_TAKEN else 0


def tell(text, scenario, chance, lied):
    """Tells a lie in a proof, if it can be told there; a line for one that is not found."""
    report = json.loads(text, parse_float=Fraction)
    name = lies.tell(report, chance.randrange(len(lies.LIES)), chance)
    if name is None:
        return []
    lied[name] += 1
    try:
        check_whole(report, scenario, Counts(), random.Random(1))
    except WrongProof:
        return []
    return [f"{scenario.path}: a lie was not found: {name}"]


if __name__ == "__main__":
    sys.exit(main())
