#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Attacks the prover with schedules at random, and prints what held. tools/attack calls this.

Exit status 1 if a proof says right, or wrong, where a replay of every rank says otherwise; such files are kept.
"""

import argparse
import concurrent.futures
import json
import sys
import tempfile
import time
from pathlib import Path

import attack
import draw
import own
import shrink

BATCH = 50
SOURCES = {"drawn": lambda seed: draw.Draw(seed).files(), "unnamed": lambda seed: draw.Draw(seed, unnamed=True).files(), "own": own.files}


def one_batch(source, first, count, points, engines, keep, opened):
    with tempfile.TemporaryDirectory(prefix="lockstep-attack-") as name:
        folder = Path(name)
        schedules = {}
        for seed in range(first, first + count):
            files = SOURCES[source](seed)
            schedules[next(iter(files))] = files
        found = attack.Attack(folder, first, points, engines, opened).run(schedules)
    for number, finding in enumerate(found.findings):
        files = schedules[finding.file]
        if number < 3 and finding.kind != "broken":  # the first ones small
            files = shrink.shrink(files, finding.kind, finding.size, opened)
        keep.mkdir(parents=True, exist_ok=True)
        for name, document in files.items():
            (keep / name).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return found


def run(source, first, count, points=12, engines=("symbolic", "parametric"), keep=Path("build/attack"), jobs=1, progress=None, opened=""):
    """Counts over schedules of the seeds `first` to `first + count - 1`: "drawn", of them those that have "unnamed" axes,
    or the frameworks' "own". `opened`: what --open opens."""
    total = attack.Counts()
    batches = [(source, seed, min(BATCH, first + count - seed), points, engines, keep, opened) for seed in range(first, first + count, BATCH)]
    with concurrent.futures.ProcessPoolExecutor(jobs) as pool:
        for found in pool.map(one_batch, *zip(*batches, strict=True)):
            total.add(found)
            if progress:
                progress(total, found)
    return total


def main():
    parser = argparse.ArgumentParser(prog="tools/attack", description=__doc__)
    parser.add_argument("--schedules", type=int, default=10000)
    parser.add_argument("--seed", type=int, default=1, help="of the first schedule")
    parser.add_argument("--points", type=int, default=12, help="sizes of each schedule that are replayed")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--keep", type=Path, default=Path("build/attack"), help="folder for files that were found")
    parser.add_argument("--own", action="store_true", help="schedules of the built-in frameworks in place of drawn ones")
    parser.add_argument("--unnamed", action="store_true", help="drawn ones of which the layout does not name every axis")
    parser.add_argument("--open", default="", metavar="AXES", help="what proofs open beside what the layout names")
    parser.add_argument("--why", action="store_true", help="print why sizes were not decided, and how often")
    options = parser.parse_args()
    begin = time.monotonic()

    def progress(total, found):
        for finding in found.findings:
            print(finding.text(), flush=True)
        if sys.stderr.isatty() or total.schedules % 500 < BATCH:
            print(f"\r\033[K{total.schedules} schedules, {len(total.findings)} findings, {time.monotonic() - begin:.0f} s", end="", file=sys.stderr, flush=True)

    total = run("own" if options.own else "unnamed" if options.unnamed else "drawn", options.seed, options.schedules, options.points,
                keep=options.keep, jobs=options.jobs, progress=progress, opened=options.open)  # fmt: skip
    print(f"{total.text()} ({time.monotonic() - begin:.0f} s)")
    if options.why:
        for why, count in total.why.most_common():
            print(f"{count:8} {why}")
    return 1 if total.findings else 0


if __name__ == "__main__":
    sys.exit(main())
