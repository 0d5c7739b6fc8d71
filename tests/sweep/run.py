#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Sweeps over every framework, or those that are named, with all layouts up to 64 ranks. tools/sweep calls this.

Exit status 1 if something is wrong that is no known deviation of the framework, or a known deviation does not occur.
"""

import argparse
import json
import sys
import time
from pathlib import Path

import sweep


def progress_line(begin):
    """Prints where the sweep is, on a terminal; what it returns is called after every batch."""
    if not sys.stderr.isatty():
        return lambda outcome: None

    def show(outcome):
        seconds = time.monotonic() - begin
        print(f"\r\033[K{outcome.framework}: {outcome.layouts} layouts, {outcome.schedules} schedules, "
              f"{len(outcome.alarms)} wrong, {seconds:.0f} s", end="", file=sys.stderr, flush=True)

    return show


def report(outcome, keep):
    """The outcome as text; the scenarios of what is wrong go to `keep`."""
    print(f"{outcome.framework}: {outcome.schedules} schedules on {outcome.layouts} layouts "
          f"({outcome.refused_layouts} refused), {outcome.pairs} pairs of values ({outcome.refused_pairs} refused): "
          f"{outcome.matches} match, {outcome.deviating} as the framework is known to be wrong, {len(outcome.alarms)} alarms")
    for deviation in outcome.deviations:
        print(f"  {deviation.seen:6d} {deviation.wrong}: {deviation.because} ({deviation.scenario})")
        if not deviation.seen:
            print(f"         does not occur: {deviation.when.text}")
    for number, (content, found, expected) in enumerate(outcome.alarms[:10]):
        path = keep / f"{outcome.framework}-{number}.json"
        keep.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
        errors = "; ".join(error["message"] for error in found["errors"])
        print(f"  {path}: {found['verdict']} {errors}, should be {expected}")


def main():
    parser = argparse.ArgumentParser(prog="tools/sweep", description=__doc__)
    parser.add_argument("frameworks", nargs="*", help="names of built-in frameworks (default: all)")
    parser.add_argument("--layouts", type=int, help="so many layouts of each framework, drawn at random, instead of all")
    parser.add_argument("--seed", type=int, default=1, help="of everything that is drawn")
    parser.add_argument("--engine", default="symbolic", help="as lockstep check has it; default symbolic")
    parser.add_argument("--keep", type=Path, default=Path("build/sweep"), help="folder for scenarios that are wrong")
    options = parser.parse_args()
    every = sweep.frameworks()
    unknown = [name for name in options.frameworks if name not in every]
    if unknown:
        parser.error(f'unknown framework "{unknown[0]}"; known are {", ".join(every)}')

    begin = time.monotonic()
    line = progress_line(begin)
    outcomes = []
    for name in options.frameworks or every:
        found = sweep.sweep(name, options.layouts, options.seed, options.engine, line)
        if sys.stderr.isatty():
            print("\r\033[K", end="", file=sys.stderr)
        report(found, options.keep)
        sys.stdout.flush()
        outcomes.append(found)
    alarms = sum(len(found.alarms) for found in outcomes)
    stale = sum(not deviation.seen for found in outcomes for deviation in found.deviations)
    print(f"{sum(found.schedules for found in outcomes)} schedules on {sum(found.layouts for found in outcomes)} layouts of "
          f"{len(outcomes)} frameworks, {alarms} alarms, {stale} known deviations that do not occur "
          f"({time.monotonic() - begin:.0f} s)")
    return 1 if alarms or stale else 0


if __name__ == "__main__":
    sys.exit(main())
