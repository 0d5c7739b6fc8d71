#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the printed proofs of all scenarios, or of those that are named, with the second checker; or, with --oracle, what
proofs say of single layouts with replays of every rank. tools/proofs calls this.

Exit status 1 if a proof does not follow, or a replay has another verdict.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

import replays
from checker import check_proof
from functions import WrongProof


def main():
    parser = argparse.ArgumentParser(description=__doc__, prog="tools/proofs")
    parser.add_argument("files", nargs="*", type=Path, help="scenarios; default: all of the corpus that fit one host")
    parser.add_argument("--oracle", action="store_true", help="compare the verdicts at single layouts with replays instead")
    parser.add_argument("--sizes", type=int, default=1 << 20, help="with --oracle: layouts of each scenario, at most; default all to 4")
    parser.add_argument("--layouts", type=int, default=20, help="with --oracle: layouts of each framework of the sweep")
    parser.add_argument("--schedules", type=int, default=10000, help="with --oracle: random schedules")
    parser.add_argument("--seed", type=int, default=1, help="with --oracle: of everything that is drawn")
    arguments = parser.parse_args()
    if arguments.oracle:
        return 0 if replays.run(arguments.sizes, arguments.layouts, arguments.schedules, arguments.seed) else 1
    files = arguments.files or replays.corpus()
    wrong, totals = [], [0, 0, 0, 0]
    for number, path in enumerate(files):
        if sys.stderr.isatty():
            print(f"\r\033[K{number + 1} of {len(files)}: {path.name}", end="", file=sys.stderr, flush=True)
        done = subprocess.run([os.environ["LOCKSTEP_BINARY"], "prove", "-f", "json", "--proof", str(path)],
                              capture_output=True, text=True, check=False)
        if not done.stdout:
            continue  # it is no valid scenario, as some of the corpus are meant not to be
        try:
            totals = [total + more for total, more in zip(totals, (1, *check_proof(json.loads(done.stdout))))]
        except WrongProof as error:
            wrong.append(f"{path}: {error}")
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr)
    print("\n".join([*wrong, "{} proofs follow: {} classes, {} steps, {} points".format(*totals)]))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
