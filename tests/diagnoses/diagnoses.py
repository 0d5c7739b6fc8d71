#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures blame and repair on the pairs of the corpus, a wrong file and its repaired twin, each twice: as it is written, and
blind, which is plain parameters and plain steps alone. tools/diagnosis calls this.

*Blame is exact* where it names the steps that the fix changes, each of them and no other (fix.py has the definition). *The
fix is offered* at the place of the first repair after which the plain steps are those of the fix. A repair is *wrong* where
a replay of every rank finds it so at a size for which it is said to be right: what is proved for every size is replayed at
sizes that are drawn, the rest at the sizes tried. Pairs whose fix is in the model, or which asks another question than the
wrong file, are counted apart, by name. Times are seconds of processors.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pairs
from diagnose import BEST, diagnose
from drawn import Drawn


@dataclass
class Figure:
    name: str
    values: tuple  # as written and blind, or one for both
    goals: tuple
    unit: str = " %"
    at_least: bool = True

    def met(self):
        return all(value >= goal if self.at_least else value <= goal for value, goal in zip(self.values, self.goals, strict=True))


def share(found, holds):
    return 100 * sum(map(holds, found)) / len(found) if found else 100.0


def figures(found):
    """What the goals are about. `found` is a list of diagnoses."""
    modes = [[one for one in found if one.blind == blind] for blind in (False, True)]

    def both(holds):
        return tuple(share(mode, holds) for mode in modes)

    slowest = max((max(one.check_s, one.repair_s) for one in found), default=0.0)
    ratio = statistics.median([one.check_s / one.plain_check_s for one in found] or [1.0])
    return [
        Figure("blame names exactly the steps that the fix changes", both(lambda one: one.blame == "exact"), (95, 85)),
        Figure("the fix itself is the first repair", both(lambda one: one.place == 1), (80, 65)),
        Figure(f"the fix itself is one of {BEST}", both(lambda one: one.place > 0), (92, 85)),
        Figure("repairs wrong where said to be right", (sum(len(one.wrong) for one in found),), (0,), "", False),
        Figure("slowest diagnosis", (slowest,), (2,), " s", False),
        Figure("check with blame, of check without, at the median", (ratio,), (2,), " times", False),
    ]


def table(found):
    lines = ["| | as written | goal | blind | goal |", "|---|---|---|---|---|"]
    for figure in figures(found):
        cells = []
        for value, goal in zip(figure.values, figure.goals, strict=True):
            number = f"{value:.0f}" if figure.unit == "" else f"{value:.2f}" if figure.unit != " %" else f"{value:.1f}"
            cells += [number + figure.unit, ("≥ " if figure.at_least else "≤ ") + f"{goal}{figure.unit}"]
        lines.append(f"| {figure.name} | {' | '.join(cells + [''] * (4 - len(cells)))} |")
    return "\n".join(lines)


def counts(found, apart):
    """The numbers behind the table."""
    lines = []
    for blind in (False, True):
        mode = [one for one in found if one.blind == blind]
        number = lambda holds: sum(map(holds, mode))  # noqa: E731
        blame = ", ".join(f"{number(lambda one: one.blame == kind)} {kind}" for kind in ("exact", "some", "others", "nothing"))  # noqa: B023
        places = ", ".join(f"{number(lambda one: one.place == place)} at place {place}" for place in range(1, BEST + 1))  # noqa: B023
        lines.append(f"{'blind' if blind else 'as written'}: {len(mode)} pairs; blame: {blame}; the fix: {places}, "
                     f"{number(lambda one: not one.place and one.equal)} other steps with equal gradients, "
                     f"{number(lambda one: not one.place and not one.equal)} neither; {number(lambda one: one.letters)} to the letter")  # fmt: skip
        lines.append(f"  {sum(len(one.repairs) for one in mode)} repairs, {sum(one.replayed for one in mode)} replays, {sum(one.refused for one in mode)} sizes refused, "
                     f"{sum(len(one.wrong) for one in mode)} wrong; slowest check {slowest(mode, 'check_s')}, slowest repair {slowest(mode, 'repair_s')}")  # fmt: skip
    lines.append(f"counted apart: {len(apart)} pairs")
    lines += [f"  {why}: {wrong}" for wrong, why in apart.items()]
    return "\n".join(lines)


def slowest(found, what):
    worst = max(found, key=lambda one: getattr(one, what), default=None)
    return f"{getattr(worst, what):.2f} s ({worst.file})" if worst else "none"


def row(written, blind):
    said = [f"{one.blame:7} {('place ' + str(one.place)) if one.place else 'equal' if one.equal else 'neither':7}" for one in (written, blind)]
    return f"{said[0]}  blind {said[1]}  {written.file}"


def measure(chosen, jobs=1, rounds=2, progress=None):
    """(diagnoses, {wrong file: why it is counted apart}) of pairs of paths."""
    apart = {}

    def one(pair):
        wrong, fixed = pair
        right = pairs.resolved(fixed)
        if why := pairs.why_apart(pairs.resolved(wrong), right):
            apart[str(wrong)] = why
            return []
        with tempfile.TemporaryDirectory(prefix="lockstep-diagnosis-") as name:
            return [diagnose(wrong, right, Path(name), blind, rounds) for blind in (False, True)]

    found = []
    with ThreadPoolExecutor(jobs) as pool:
        for both in pool.map(one, chosen):
            found += both
            if progress:
                progress(both, len(found) // 2 + len(apart))
    return found, dict(sorted(apart.items()))


def of_drawn(seed, count):
    found = Drawn()
    last = found.run(seed, count) - 1
    print(*(f"wrong: {sentence}" for sentence in found.wrong), f"seeds {seed} to {last}: {found.text()}", sep="\n")
    return 1 if found.wrong else 0


def main():
    parser = argparse.ArgumentParser(prog="tools/diagnosis", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="TEXT", help="pairs whose path contains this")
    parser.add_argument("--rows", action="store_true", help="print a line for each pair: blame, and the place of the fix")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything that was found")
    parser.add_argument("--drawn", type=int, metavar="N", help="in place of the pairs, N wrong schedules that are drawn (drawn.py): exit status 1 where a repair is not as it is said to be")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of the first one that is drawn")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="pairs at once; times are those of a machine that does nothing else with 1")
    options = parser.parse_args()
    if "LOCKSTEP_BINARY" not in os.environ:
        parser.error("LOCKSTEP_BINARY names the program; tools/diagnosis builds it")
    if options.drawn is not None:
        return of_drawn(options.seed, options.drawn)
    chosen = [pair for pair in pairs.pairs() if options.only in str(pair[0])]
    if not chosen:
        parser.error(f"no pair has {options.only} in its path")
    begin = time.monotonic()

    def progress(both, number):
        for one in both:
            for sentence in one.wrong:
                print(f"wrong: {one.file}{' (blind)' if one.blind else ''}: {sentence}", flush=True)
        if options.rows and both:
            print(row(*both), flush=True)
        if sys.stderr.isatty() or number % 20 == 0:
            print(f"\r\033[K{number} of {len(chosen)} pairs, {time.monotonic() - begin:.0f} s", end="" if sys.stderr.isatty() else "\n", file=sys.stderr, flush=True)

    found, apart = measure(chosen, options.jobs, progress=progress)
    print(table(found), counts(found, apart), sep="\n\n")
    if options.json:
        options.json.write_text(json.dumps({"apart": apart, "diagnoses": [one.as_json() for one in found]}, indent=1) + "\n", encoding="utf-8")
    missed = [figure.name for figure in figures(found) if not figure.met()]
    for name in missed:
        print(f"missed: {name}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
